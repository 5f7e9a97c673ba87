"""The page of runs in a real browser: narrow and wide, light and dark; its numbers are those of the runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from simulator.report.shares import MAIN
from tests.conftest import ROOT
from tests.load.browser import chromium, looking
from tests.report.conftest import Runs, scores_of

CHECK = (ROOT / "tests" / "load" / "report.js").read_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def look(browser: Any) -> Iterator[Any]:
    with looking(browser) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(browser: Any, runs: Runs) -> Iterator[Any]:
    """The page as nobody has touched it: tests that open what is closed take `look`."""
    with looking(browser) as opened:
        yield opened(runs.page.as_uri()).page


def values_in(page: Any, selector: str) -> list[float]:
    """The exact numbers behind what is shown."""
    found: list[float] = page.locator(selector).evaluate_all("all => all.map(each => Number(each.value))")
    return found


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (400, "dark"), (1400, "light")])
def test_all_can_be_seen_and_read(runs: Runs, look: Any, width: int, scheme: str) -> None:
    """`CHECK` also finds a page that is wider than its window."""
    seen = look(runs.page.as_uri(), width, scheme)
    assert seen.page.evaluate(CHECK) == []
    assert (seen.said, len(seen.requests)) == ([], 1)


def test_the_summary_fits_a_wide_window_and_scrolls_by_itself_in_a_narrow_one(runs: Runs, look: Any) -> None:
    for width, fits in ((1400, True), (400, False)):
        page = look(runs.page.as_uri(), width).page
        box = page.locator(".wide", has=page.locator("#summary"))
        assert box.evaluate("box => box.scrollWidth <= box.clientWidth") is fits


def test_each_run_has_the_numbers_of_its_scores(runs: Runs, page: Any) -> None:
    for number, folder in enumerate(runs.folders.values(), 1):
        scores = scores_of(folder)
        expected = [value_of(score) for score in scores["scores"] if value_of(score) is not None]
        assert values_in(page, f"#run-{number}-scores td data") == expected
        texts = page.locator(f"#run-{number}-scores td").all_text_contents()
        for score, text in zip(scores["scores"], texts, strict=True):
            counted = f"{score['passed']}/{score['judged']}" if "passed" in score else f"n={score['n']}"
            assert f"({counted})" in text
            assert (f", {score['unjudged']}\N{NO-BREAK SPACE}unjudged" in text) is (score["unjudged"] > 0)
        findings = [
            value
            for found in scores["findings"]
            for value in (found["value"], found["n"])
            if value is not None
        ]
        assert values_in(page, f"#run-{number}-findings data") == findings


def test_the_summary_has_all_systems_and_each_benchmarks_metrics(runs: Runs, page: Any) -> None:
    names = page.locator("#summary tbody th").all_text_contents()
    assert names == ["oracle †", "bm25", "shaky", "recency", "null"]
    spans = page.locator("#summary .span").all_text_contents()
    assert spans == ["", "StreamMemBench", "LifeDialBench", "RealMem", "APM"]
    expected: list[list[float | str]] = [[] for _ in names]
    for benchmark, folder in runs.folders.items():
        scores = scores_of(folder)
        by = {(s["system"], s["metric"]): value_of(s) for s in scores["scores"]}
        by |= {(f["system"], f["name"]): f["value"] for f in scores["findings"]}
        metrics = [metric for metric in MAIN[benchmark] if any(m == metric for _, m in by)]  # type: ignore[index]
        for place, name in enumerate(names):
            for metric in metrics:
                at_a_glance = "decision_balanced_accuracy" if metric == "decision" else metric
                value = by.get((name.removesuffix(" †"), at_a_glance))
                expected[place].append("–" if value is None else value)
    shown = page.locator("#summary tbody tr").evaluate_all(
        "all => all.map(row => [...row.querySelectorAll('td')].map(cell => "
        "cell.querySelector('data') ? Number(cell.querySelector('data').value) : cell.textContent))"
    )
    assert shown == expected
    texts = page.locator("#summary td data").all_text_contents()
    assert all(re.fullmatch(r"\d+\.\d% \((\d+/\d+|n=\d+)\)(, \d+\sunjudged)?", text) for text in texts), texts


def test_groups_failures_and_costs_have_the_numbers_of_the_scores(runs: Runs, page: Any) -> None:
    folders = list(runs.folders.values())

    def numbers_of(plot: str) -> list[list[str]]:
        rows = page.locator("figure", has=page.locator(f"#plot-{plot}")).locator("tbody tr")
        texts: list[list[str]] = rows.evaluate_all(
            "all => all.map(row => [...row.cells].map(c => c.textContent))"
        )
        return texts

    groups = [
        g for g in scores_of(folders[1])["groups"] if (g["by"], g["metric"]) == ("quarter", "mcq_accuracy")
    ]
    shown = {(row[0], row[1]): row for row in numbers_of("run-2-quarter-mcq-accuracy")}
    assert len(shown) == len(groups) >= 4
    for group in groups:
        row = shown[group["group"], group["system"]]
        assert row[2:6] == [
            f"{100 * group['value']:.4g}",
            str(round(group["value"] * group["n"])),
            str(group["n"]),
            "0",
        ]
        assert float(row[6]) <= 100 * group["value"] <= float(row[7])
    means = [g for g in scores_of(folders[2])["groups"] if (g["by"], g["metric"]) == ("quarter", "ndcg@10")]
    shown = {(row[0], row[1]): row for row in numbers_of("run-3-quarter-ndcg-10")}
    for group in means:
        assert shown[group["group"], group["system"]][2:5] == [
            f"{100 * group['value']:.4g}",
            "–",
            str(group["n"]),
        ]

    smb = scores_of(folders[0])
    rows = {row[0]: row[1:] for row in numbers_of("run-1-labels")}
    for place, labels in enumerate(smb["labels"]):
        assert rows["no failure"][place] == str(labels["no_failure"])
        assert {label: int(rows[label][place]) for label in labels["labels"]} == labels["labels"]
        assert rows["can't tell: unjudged"][place] == str(sum(labels["unlabelled"].values()))
    stored = dict(numbers_of("run-1-stored"))
    for cost in smb["costs"]:
        name = f"{cost['system']} †" if cost["system"] == "oracle" else cost["system"]
        assert stored[name] == f"{cost['stored_bytes']['mean']:,.6g}"


def test_every_plot_has_its_title_its_unit_and_its_numbers(runs: Runs, look: Any) -> None:
    page = look(runs.page.as_uri()).page
    plots = page.locator("figure").evaluate_all(
        "all => all.map(figure => [figure.querySelector('svg').getAttribute('aria-label'), "
        "[...figure.querySelectorAll('svg text')].map(text => text.textContent.trim()), "
        "figure.querySelectorAll('tbody tr').length])"
    )
    assert len(plots) > 20
    for label, texts, rows in plots:
        assert any(len(text) > 8 and label.startswith(text) for text in texts), (label, texts)
        assert sum(text.endswith(("(%)", "(number)", "(B)", "(ms)", "(s)")) for text in texts) == 1, texts
        assert rows >= 1
    page.locator("summary").evaluate_all("all => all.forEach(each => each.click())")
    assert page.evaluate(CHECK) == []  # with all tables open


def test_what_one_must_know_is_said_first(runs: Runs, page: Any) -> None:
    unjudged = scores_of(runs.folders["streammembench"])["unjudged"]
    said = f"{unjudged['trajectories']} of 12 trajectories unjudged ({unjudged['share']:.1%}; shaky"
    assert said in page.locator(".warnings li").first.text_content()
    assert said in page.locator(".answer p").first.text_content()
    assert said in page.locator("#run-1 > p").first.text_content()
    assert "every metric judged" in page.locator("#run-2 > p").first.text_content()
    facts = page.locator("#run-2 > .facts").text_content()
    for fact in (
        "when due and at the end of the stream",
        "invariants 1-7 hold",
        "20 records",
        "letter (exact",
    ):
        assert fact in facts
    text = page.locator("main").text_content()
    for meaning in (
        "Contamination: how well",
        "Overwriting: the share",
        "Decision balanced accuracy: the mean",
    ):
        assert meaning in text
    assert "† is handed the evidence: an upper bound, not a competitor." in text


def value_of(score: dict[str, Any]) -> float | None:
    """A rate's or a mean's."""
    value: float | None = score["rate"] if "rate" in score else score["value"]
    return value
