"""docs/prometheus.md and what is served name the same metrics."""

from __future__ import annotations

import re

from consumers.exposition import METRICS, family
from consumers.windows import BOUNDS_US
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "prometheus.md").read_text()
ROW = re.compile(r"\| `(egostream_\w+)` \| (\w+) \| (.+?) \| (\S+) \| (.+) \|")
UNITS = {"ms": 1e3, "s": 1e6, "min": 60e6, "h": 3600e6}


def test_every_metric_is_on_the_page_as_it_is_served() -> None:
    rows = [match.groups() for line in PAGE.splitlines() if (match := ROW.fullmatch(line))]
    served = [
        (
            metric.exposed,
            metric.kind,
            ", ".join(f"`{label}`" for label in metric.labels) or "–",
            metric.unit or "–",
            metric.help,
        )
        for metric in METRICS
    ]
    assert rows == served


def test_queries_name_what_is_served() -> None:
    known = {metric.exposed for metric in METRICS} | {
        f"{metric.exposed}_{part}"
        for metric in METRICS
        if metric.kind == "histogram"
        for part in ("bucket", "sum", "count")
    }
    assert set(re.findall(r"egostream_\w+", PAGE)) <= known


def test_the_bounds_are_those_on_the_page() -> None:
    (text,) = re.findall(r"have the bounds (.+?)\. ", PAGE.replace("\n", " "))
    bounds: list[float] = []
    waiting: list[float] = []
    for number, unit in re.findall(r"([\d.]+)(?: (ms|s|min|h)\b)?", text):
        waiting.append(float(number))
        if unit:
            bounds += [value * UNITS[unit] for value in waiting]
            waiting = []
    assert tuple(bounds) == BOUNDS_US


def test_names_keep_prometheus_conventions() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"[a-z_]+", metric.name)
        assert not metric.name.endswith("_total")
        assert metric.help.endswith((".", ")."))
        assert not {"trajectory", "segment", "run", "le"} & set(metric.labels)
        if metric.unit:
            assert metric.name.endswith(f"_{metric.unit}")
        assert family(metric, None).name == f"egostream_{metric.name}"
