"""What people read of an audit."""

from __future__ import annotations

from consumers.audit import Certificate, render
from consumers.audit.certificate import MOST_OF_A_RULE, Book


def test_violations_that_are_not_kept_are_counted_where_they_belong() -> None:
    book = Book()
    for i in range(MOST_OF_A_RULE + 7):
        book.find("5", "seen_elsewhere", f"finding {i}", f"event/{i}")
    book.find("3", "seen_early", "one finding", "event")
    certificate = Certificate(
        run="run",
        identity={},
        ended=True,
        events={"observations": 9},
        checked=dict(book.checked),
        digest="0" * 64,
        digest_topics=(),
        digest_left_out={},
        found=dict(book.found),
        findings=tuple(book.findings),
        not_shown=book.not_shown,
    )
    assert len(certificate.findings) == MOST_OF_A_RULE + 1
    assert certificate.violations == MOST_OF_A_RULE + 8
    lines = render(certificate).splitlines()
    assert f"{MOST_OF_A_RULE + 8} violations of the invariants" in lines[1]
    of = {line.split()[0]: line.split()[-1] for line in lines[4:12]}
    assert of == {
        **dict.fromkeys(("form", "1", "2", "4", "6", "7"), "none"),
        "3": "1",
        "5": str(MOST_OF_A_RULE + 7),
    }
