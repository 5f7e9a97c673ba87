"""Samples for annotators, their sheets, and how far they agree."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from producers.anchors.agreement import agreement, compare
from producers.anchors.criteria import CRITERIA, QUESTIONS
from producers.anchors.sampling import draw, stratum
from producers.anchors.sheets import SheetFormat, read_sheet, write_sheets
from producers.anchors.stated import Place, Release, Stated, StatedAnchor, read_stated
from producers.datasets import one_layout, read_dataset, write_release
from simulator.errors import ConfigError, DatasetError

# --- kappa -----------------------------------------------------------------------------------------


def pairs(both_yes: int, only_a: int, only_b: int, both_no: int) -> list[tuple[bool | None, bool | None]]:
    return (
        [(True, True)] * both_yes
        + [(True, False)] * only_a
        + [(False, True)] * only_b
        + [(False, False)] * both_no
    )


@pytest.mark.parametrize(
    ("table", "observed", "kappa"),
    [
        # 35 of 50 the same; A says yes 25 times, B 30 times: p_e = 0.5 * 0.6 + 0.5 * 0.4 = 0.5
        ((20, 5, 10, 15), 0.7, 0.4),
        # 60 of 100 the same, with p_e = 0.6 * 0.7 + 0.4 * 0.3 = 0.54
        ((45, 15, 25, 15), 0.6, 0.06 / 0.46),
        # 60 of 100 the same, with p_e = 0.6 * 0.3 + 0.4 * 0.7 = 0.46
        ((25, 35, 5, 35), 0.6, 0.14 / 0.54),
        ((3, 0, 0, 2), 1.0, 1.0),
        ((0, 1, 1, 0), 0.0, -1.0),
        # A says yes throughout: agreement is what chance gives
        ((9, 1, 0, 0), 0.9, 0.0),
    ],
)
def test_kappa_by_hand(table: tuple[int, int, int, int], observed: float, kappa: float) -> None:
    found = agreement(pairs(*table))
    assert found.n == sum(table)
    assert found.agreement == pytest.approx(observed)
    assert found.kappa == pytest.approx(kappa)
    assert found.undefined == ""


@pytest.mark.parametrize("one", [True, False])
def test_kappa_has_no_value_where_all_answers_are_one(one: bool) -> None:
    found = agreement([(one, one)] * 7)
    assert (found.n, found.agreement, found.kappa) == (7, 1.0, None)
    assert "one and the same answer" in found.undefined


def test_nothing_is_computed_from_what_is_not_answered() -> None:
    found = agreement([(None, True), (False, None), (None, None)])
    assert (found.n, found.unanswered, found.agreement, found.kappa) == (0, 3, None, None)
    assert "no item" in found.undefined


answer = st.sampled_from([True, False, None])


@given(st.lists(st.tuples(answer, answer)))
def test_kappa_is_symmetric_and_at_most_the_agreement(
    given_pairs: list[tuple[bool | None, bool | None]],
) -> None:
    found = agreement(given_pairs)
    turned = agreement([(b, a) for a, b in given_pairs])
    assert (found.n, found.agreement, found.kappa) == (turned.n, turned.agreement, turned.kappa)
    assert (found.only_a, found.only_b) == (turned.only_b, turned.only_a)
    assert found.n + found.unanswered == len(given_pairs)
    flipped = agreement(
        [(None if a is None else not a, None if b is None else not b) for a, b in given_pairs]
    )
    assert flipped.kappa == found.kappa
    if found.kappa is None:
        assert found.undefined != ""
        assert found.n == 0 or found.agreement == 1
    else:
        assert found.agreement is not None
        assert -1 <= found.kappa <= found.agreement <= 1
        assert (found.kappa == 1) == (found.agreement == 1)


def test_sheets_are_held_against_each_other_by_item() -> None:
    yes = dict.fromkeys(CRITERIA, True)
    a = {1: yes, 2: {**yes, "leak": False}, 3: {**yes, "need": None}, 5: yes}
    b = {7: yes, 3: yes, 2: yes, 1: {**yes, "type": None, "leak": False}}
    compared = compare(a, b)
    assert (compared.items, compared.only_in_a, compared.only_in_b) == (3, [5], [7])
    leak = compared.criteria["leak"]
    assert (leak.n, leak.both_yes, leak.only_a, leak.only_b) == (3, 1, 1, 1)
    assert (compared.criteria["need"].n, compared.criteria["type"].n) == (2, 2)
    # item 3 can't be said to pass, item 1 fails for B though one answer is missing
    assert (compared.all_criteria.n, compared.all_criteria.only_a, compared.all_criteria.only_b) == (2, 1, 1)


# --- samples ---------------------------------------------------------------------------------------


def bare(stream: str, kind: str, day: int, number: int) -> Stated:
    place = Place("x.json", f"$[{number}]", stream, f"DAY{day}", 0)
    return Stated(place, StatedAnchor(evidence_id=f"{stream}{kind}{day}{number}", evidence_type=kind))


@given(
    st.lists(
        st.tuples(st.sampled_from("AB"), st.sampled_from(["stated", "inferred"]), st.integers(1, 3)),
        min_size=1,
        max_size=60,
    ),
    st.data(),
)
def test_every_stratum_has_its_share(places: list[tuple[str, str, int]], data: st.DataObject) -> None:
    anchors = [bare(*place, number) for number, place in enumerate(places)]
    release = Release({}, anchors, "digest")
    count = data.draw(st.integers(1, len(anchors)))
    rows = draw(release, count, seed=data.draw(st.integers(0, 3)))
    assert [row.item for row in rows] == list(range(1, count + 1))
    assert len({row.evidence_id for row in rows}) == count
    for depth in (1, 2, 3):
        in_all = Counter(stratum(anchor)[:depth] for anchor in anchors)
        drawn = Counter((row.stream, row.evidence_type, row.day)[:depth] for row in rows)
        for key, size in in_all.items():
            assert abs(drawn[key] - size * count / len(anchors)) < 2


def test_a_seed_gives_one_sample() -> None:
    release = Release({}, [bare("A", "stated", 1, number) for number in range(50)], "digest")
    assert draw(release, 10, 1) == draw(release, 10, 1)
    ids = [{row.evidence_id for row in draw(release, 10, seed)} for seed in range(3)]
    assert ids[0] != ids[1] != ids[2]
    assert draw(release, 10, 1)[0].sample != draw(replace(release, digest="other"), 10, 1)[0].sample
    for count in (0, 51):
        with pytest.raises(ConfigError, match="from 1 to 50"):
            draw(release, count, 0)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    path = tmp_path_factory.mktemp("audit") / "made_up"
    write_release(read_dataset("synthetic:seed=2,wearers=2"), path)
    return read_stated(one_layout(path, kind="streammembench")[0])


def test_a_row_shows_the_evidence_in_its_segment(release: Release) -> None:
    for row in draw(release, 8, 0, context_lines=2):
        stated = next(
            s
            for s in release.anchors
            if s.anchor.evidence_id == row.evidence_id and s.place.stream == row.stream
        )
        supporting = stated.anchor.supporting_observations or []
        marked = [line[2:] for line in row.context.splitlines() if line.startswith("> ")]
        assert marked == [f"[{o.stream_index}] {o.text}" for o in supporting]
        assert row.quotes.splitlines() == [f"[{o.stream_index}] {o.quote}" for o in supporting]
        assert len(row.context.splitlines()) < 40
        assert row.initial_request == stated.anchor.tasks.initial_task.user_request


# --- sheets ----------------------------------------------------------------------------------------


def filled(path: Path, edit: dict[tuple[int, str], str]) -> None:
    """Answer a sheet as a spreadsheet or an editor would: yes to all but what is edited, by (item, column)."""
    text = path.read_bytes().decode("utf-8-sig")
    if path.suffix == ".csv":
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    else:
        rows = [json.loads(line) for line in text.splitlines()]
    for row in rows:
        row.update(dict.fromkeys(CRITERIA, "yes"))
        row.update({column: value for (item, column), value in edit.items() if int(row["item"]) == item})
    if path.suffix == ".csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        path.write_bytes(out.getvalue().encode())
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_sheets_go_out_and_come_back(release: Release, tmp_path: Path, form: SheetFormat) -> None:
    rows = draw(release, 5, 0)
    a, b = write_sheets(rows, tmp_path / "new" / "sheets", form, overwrite=False)
    assert a.read_bytes() == b.read_bytes()
    assert read_sheet(a).answers == {item: dict.fromkeys(CRITERIA) for item in range(1, 6)}
    filled(a, {(2, "leak"): "No", (3, "leak"): "", (4, "leak"): " n ", (5, "leak"): "是"})
    filled(b, {(2, "leak"): "否", (1, "leak"): "0"})
    sheet_a, sheet_b = read_sheet(a), read_sheet(b)
    assert sheet_a.sample == sheet_b.sample == rows[0].sample
    leak = compare(sheet_a.answers, sheet_b.answers).criteria["leak"]
    assert (leak.n, leak.both_yes, leak.both_no, leak.only_a, leak.only_b) == (4, 1, 1, 1, 1)
    with pytest.raises(ConfigError, match="may hold answers"):
        write_sheets(rows, a.parent, form, overwrite=False)
    write_sheets(rows, a.parent, form, overwrite=True)
    instructions = (a.parent / "README.md").read_text()
    assert all(question in instructions for question in QUESTIONS.values())


def test_a_wrong_answer_is_named_with_its_line(release: Release, tmp_path: Path) -> None:
    rows = draw(release, 3, 0)
    for form in ("csv", "jsonl"):
        a, _ = write_sheets(rows, tmp_path / form, form, overwrite=False)
        filled(a, {(2, "need"): "perhaps"})
        with pytest.raises(DatasetError, match="need is 'perhaps': write yes or no") as caught:
            read_sheet(a)
        line = caught.value.line
        assert line is not None
        # the line on which the row begins, though its cells have line breaks in them
        begins = a.read_text().split("\n")[line - 1]
        assert f"{rows[0].sample},2," in begins or json.loads(begins)["item"] == 2


@pytest.mark.parametrize(
    ("name", "content", "line", "reason"),
    [
        ("x.csv", "", None, "has no rows"),
        ("x.txt", "", None, "ends in .csv or .jsonl"),
        ("x.csv", "a;b\n1;2\n", 1, "with commas between them"),
        ("x.csv", "sample,item\ns,1\n", 2, "no evidence_support"),
        ("x.csv", b"sample,item\ns,\xff\n", 2, "not UTF-8"),
        ("x.jsonl", '{"item": 1}\n{', 1, "no sample"),
        ("x.jsonl", "\n{", 2, "not JSON"),
        ("x.jsonl", "[]", 1, "not a JSON object"),
    ],
)
def test_what_is_no_sheet_is_named(
    tmp_path: Path, name: str, content: str | bytes, line: int | None, reason: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DatasetError) as caught:
        read_sheet(path)
    assert reason in caught.value.reason
    assert caught.value.line == line
    with pytest.raises(DatasetError, match="can't be read"):
        read_sheet(tmp_path / "nowhere.csv")


def sheet_lines(*items: tuple[str, object]) -> str:
    rows = ({"sample": sample, "item": item, **dict.fromkeys(CRITERIA, "")} for sample, item in items)
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (sheet_lines(("s", 1), ("s", 1)), "item 1 is there twice, first in line 1"),
        (sheet_lines(("s", 1), ("t", 2)), "is of sample t, line 1 of s"),
        (sheet_lines(("s", 1), ("s", "two")), "item is 'two', not a number"),
    ],
)
def test_rows_of_another_sample_or_twice_are_refused(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(DatasetError) as caught:
        read_sheet(path)
    assert (caught.value.line, caught.value.reason) == (2, reason)
