"""The page as text; `test_report_in_browser` looks at it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from consumers.latency import LatencyReport
from simulator.errors import ConfigError
from simulator.load.comparison import Comparison
from simulator.load.sweep import Found
from simulator.report.page import write_report
from simulator.report.words import time_text
from tests.cli.helpers import egostream, one_line
from tests.load.reports import compared, loaded, swept, written
from tests.load.test_latency import folded

ADDRESSES = ("src", "href", "xlink:href", "action", "data", "poster", "srcset")


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ADDRESSES]

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


@pytest.mark.parametrize(
    "result",
    [  # made by the test, for to collect the tests is everybody's time
        loaded,
        partial(loaded, asked=True),
        swept,
        partial(swept, "lag"),
        partial(swept, "answer p99 < 10ms"),
        compared,
    ],
    ids=("load", "load with questions", "sweep", "sweep by lag", "sweep by answers", "comparison"),
)
def test_a_page_stands_alone(
    tmp_path: Path, result: Callable[[], LatencyReport | Found | Comparison]
) -> None:
    text = write_report(written(tmp_path, result())).read_text()
    page = Page(text)
    assert "script" not in page.tags
    assert page.tags.count("svg") >= 3
    assert [address for address in page.addresses if not address.startswith(("#", "data:"))] == []
    assert "@import" not in text
    assert "url(http" not in text
    assert "#0500" not in text  # a stand-in colour


def test_equal_results_give_equal_bytes_in_any_process(tmp_path: Path) -> None:
    pages = []
    for seed in ("1", "2"):
        folder = written(tmp_path / seed, swept())
        ran = egostream("report", folder, "--json", env={"PYTHONHASHSEED": seed, "TZ": f"UTC{seed}"})
        assert (ran.code, ran.json) == (0, {"report": str(folder / "report.html")}), ran.err
        pages.append((folder / "report.html").read_bytes())
    assert pages[0] == pages[1]


def test_what_is_known_of_several_loads_is_told_first(tmp_path: Path) -> None:
    for folder, result in (("one", loaded()), ("several", compared())):
        written(tmp_path / folder, result)
    written(
        tmp_path / "several", loaded()
    )  # as beside a comparison: its folder holds no load of its own, but might
    assert "<h1>Load of it</h1>" in write_report(tmp_path / "one").read_text()
    assert "<h1>it against other=it:slow=1" in write_report(tmp_path / "several").read_text()


def test_questions_are_told_loaded_beside_idle(tmp_path: Path) -> None:
    report = loaded(asked=True)
    assert report.answers is not None
    page = Page(write_report(written(tmp_path, report)).read_text())
    received = report.answers.loaded.stages["received"]
    assert received is not None
    place = page.texts.index("answer read by a consumer")
    cells = [text for text in page.texts[place : place + 30] if text]
    assert cells[1:3] == ["loaded", "200"]
    assert time_text(received.p99_us) in cells
    assert cells[9:11] == ["7.50", "4.25"]
    assert "not streamed" in page.texts

    broken = replace(report, answers=replace(report.answers, loaded=replace(report.answers.loaded, failed=7)))
    assert "Questions, loaded: 200 of 200 answered" in write_report(written(tmp_path, broken)).read_text()


def test_warnings_come_with_the_worst_first(tmp_path: Path) -> None:
    report = replace(loaded(), failed=3, unfinished=2, growth=0.5)
    page = Page(write_report(written(tmp_path, report)).read_text())
    said = [
        text for text in page.texts if text.startswith(("3 segments failed", "Lag grows", "Of 40 segments"))
    ]
    assert [text.split(" ")[0] for text in said] == ["3", "Lag", "Of"]
    assert page.texts.index(said[0]) < page.texts.index("p99")


def test_what_a_system_is_called_is_text_and_nothing_else(tmp_path: Path) -> None:
    name = "<script>alert('x')</script>&$x^2$"
    report = loaded()
    report = replace(report, identity={**report.identity, "systems": name}, by_lane={name: None, "é€": None})
    text = write_report(written(tmp_path, report)).read_text()
    assert "<script" not in text
    assert name in "".join(Page(text).texts)


def test_a_load_of_which_nothing_came_has_a_page(tmp_path: Path) -> None:
    text = write_report(written(tmp_path, folded([]))).read_text()
    assert "No segment was due by a clock" in text
    assert "<svg" not in text


def test_results_of_before_there_were_pages_can_be_read(tmp_path: Path) -> None:
    """`latency.json` without what was added since."""
    old = json.loads(msgspec.json.encode(loaded()))
    del old["identity"]
    for use in old["processes"]:
        del use["points"]
    for point in (*old["lag"], old["highest"]):
        del point["due_observations"], point["remembered_observations"]
    (tmp_path / "latency.json").write_text(json.dumps(old))
    text = write_report(tmp_path).read_text()
    assert "<h1>Load of it</h1>" in text
    assert "plot-lag-segments" in text
    assert "plot-rates" not in text


def test_a_folder_without_results_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no latency\.json, sweep\.json or compare\.json"):
        write_report(tmp_path)
    (tmp_path / "sweep.json").write_text('{"axis": 1}')
    with pytest.raises(ConfigError, match=r"sweep\.json can't be read: .*axis"):
        write_report(tmp_path)
    ran = egostream("report", tmp_path / "nothing")
    assert ran.code == 2
    assert "`egostream load SYSTEM --data PATH --rate RATE --out" in one_line(ran)
    assert not (tmp_path / "nothing").exists()
