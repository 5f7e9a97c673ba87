"""The page in a real browser: from disk and over HTTP, light and dark, wide and narrow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulator.report.page import write_report
from tests.cli.helpers import egostream
from tests.load.browser import chromium, looking, served
from tests.load.reports import compared, loaded, swept, written

CHECK = Path(__file__).with_name("report.js").read_text()
DATA = "synthetic:wearers=2,segments_per_day=6,observations_per_segment=5,anchors_per_day=0"
PAGES = ("load", "failing", "processes", "asked", "sweep", "comparison")
UNIT = re.compile(
    r"\((ms|s|MiB|1/s|count|number|no unit|s of event time|% of a core|% of the time|× real time|observations/s"
    r"|%, spaced by 1/\(1 − p\))(, log scale)?\)$"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> dict[str, Path]:
    """Real loads by the real command, one with a segment that fails; made-up ones beside them."""
    out = tmp_path_factory.mktemp("pages")
    for name, system in (
        ("load", "rag_raw:retrieval=bm25"),
        ("failing", "it=tests.load.systems:FixedTime:fails_at=2"),
    ):
        common = ("--data", DATA, "--wearers", 2, "--rate", 1500, "--duration", 6, "--out", out / name)
        ran = egostream("load", system, *common, cwd=Path(__file__).parents[2])
        assert ran.code == (0 if name == "load" else 4), ran.err
    write_report(written(out / "processes", loaded()))
    write_report(written(out / "asked", loaded(asked=True)))
    write_report(written(out / "sweep", swept()))
    write_report(written(out / "comparison", compared()))
    return {name: out / name for name in PAGES}


@pytest.fixture
def look(browser: Any) -> Iterator[Any]:
    with looking(browser) as opened:
        yield opened


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
def test_all_can_be_seen_and_read(
    folders: dict[str, Path], look: Any, name: str, scheme: str, width: int
) -> None:
    seen = look((folders[name] / "report.html").as_uri(), width, scheme)
    assert seen.page.evaluate(CHECK) == []
    assert seen.said == []
    assert len(seen.requests) == 1


@pytest.mark.parametrize("name", PAGES)
def test_over_http_it_asks_for_itself_and_nothing_else(
    folders: dict[str, Path], look: Any, name: str
) -> None:
    with served(folders[name]) as address:
        seen = look(f"{address}/report.html")
        assert seen.page.evaluate(CHECK) == []
        assert (seen.requests, seen.said) == ([f"{address}/report.html"], [])


@pytest.mark.parametrize("name", PAGES)
def test_every_plot_has_its_title_its_units_and_its_numbers(
    folders: dict[str, Path], look: Any, name: str
) -> None:
    page = look((folders[name] / "report.html").as_uri()).page
    plots = page.locator("svg.plot").all()
    assert len(plots) >= (3 if name in ("sweep", "comparison") else 7)
    for plot in plots:
        texts = [text.strip() for text in plot.locator("text").all_text_contents()]
        label = plot.get_attribute("aria-label")
        assert any(len(text) > 8 and label.startswith(text) for text in texts), (label, texts)  # its title
        units = [text for text in texts if UNIT.search(text)]
        # the figures of a comparison, each in a row of its own, have no axis
        assert len(units) == (1 if plot.get_attribute("id") == "plot-ratios" else 2), (label, texts)
        figure = page.locator("figure", has=page.locator(f"#{plot.get_attribute('id')}"))
        figure.locator("summary").click()
        rows = figure.locator("tbody tr")
        assert rows.count() >= 1
        assert rows.first.is_visible()
        assert figure.locator("tbody data").count() >= rows.count()
    assert page.evaluate(CHECK) == []  # with all tables open


def test_the_table_has_the_numbers_of_the_results(folders: dict[str, Path], look: Any) -> None:
    page = look((folders["load"] / "report.html").as_uri()).page
    report = json.loads((folders["load"] / "latency.json").read_text())
    expected = [report["pacing"], *report["stages"].values()]
    rows = page.locator("#stages tbody tr").all()
    assert len(rows) == len(expected) == 9
    names = ("n", "mean_us", "p50_us", "p90_us", "p99_us", "p999_us", "max_us")
    for row, numbers in zip(rows, expected, strict=True):
        cells = row.locator("data").all()
        assert [float(cell.get_attribute("value")) for cell in cells] == [numbers[name] for name in names]
        for cell, name in zip(cells[1:], names[1:], strict=True):
            assert microseconds(cell.text_content()) == pytest.approx(numbers[name], rel=0.06, abs=0.5)
    lanes = page.locator("#lanes tbody th").all_text_contents()
    assert lanes == list(report["by_lane"])
    facts = page.locator(".facts").text_content()
    machine = json.loads(report["identity"]["machine"])
    for fact in (
        report["run"],
        machine["os"],
        machine["python"],
        f"{machine['cores']} of",
        "2 lanes",
        "for 6 s",
    ):
        assert fact in facts


def test_what_failed_is_said_before_anything_else(folders: dict[str, Path], look: Any) -> None:
    page = look((folders["failing"] / "report.html").as_uri()).page
    first = page.locator(".warnings li").first
    assert first.text_content().startswith("2 segments failed and 0 were not finished, of ")
    assert first.bounding_box()["y"] < page.locator(".answer").bounding_box()["y"]


def microseconds(text: str) -> float:
    number, unit = text.split(" ")
    return float(number.replace(",", "")) * {"µs": 1, "ms": 1e3, "s": 1e6}[unit]
