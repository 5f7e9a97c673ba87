"""Fetches metrics over HTTP and reads them with Prometheus's own parsers."""

from __future__ import annotations

import re
import time
import urllib.request
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from consumers.exposition import METRICS

DEADLINE_S = 60.0
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def fetch(url: str, accept: str = "text/plain") -> list[Metric]:
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
        text = response.read().decode()
    return list((parse_openmetrics if accept == OPENMETRICS else parse_text)(text))


def values(families: list[Metric], name: str) -> dict[tuple[str, ...], float]:
    """Label values in the order of the table, without `run` → value, of one metric that is no histogram."""
    (metric,) = [metric for metric in METRICS if metric.exposed == name]
    return {
        tuple(sample.labels[label] for label in metric.labels): sample.value
        for family in families
        for sample in family.samples
        if sample.name == name
    }


def as_counted(families: list[Metric]) -> dict[str, Any]:
    """As `tests.metrics.recount` counts."""
    names = {
        "observations": "observations_published_total",
        "segments": "segments_published_total",
        "remembered": "segments_remembered_total",
        "failed": "segments_failed_total",
        "tasks": "tasks_total",
        "responses": "responses_total",
        "feedback": "feedback_total",
        "commits": "commits_total",
        "committed": "committed_total",
        "begun": "trajectories_begun_total",
        "closed": "trajectories_closed_total",
        "verdicts": "verdicts_total",
        "dead": "dead_letters_total",
        "events": "events_total",
        "tokens": "model_tokens_total",
        "model_calls": "model_calls_total",
    }
    found: dict[str, Any] = {
        name: values(families, f"egostream_{exposed}") for name, exposed in names.items()
    }
    for name in ("open_trajectories", "open_branches"):
        found[name] = {labels[0]: v for labels, v in values(families, f"egostream_{name}").items()}
    return found


def histogram(families: list[Metric], name: str, **labels: str) -> tuple[list[float], float, float]:
    """Cumulative counts, the whole count, and the sum in seconds."""
    samples = [
        sample for family in families for sample in family.samples if labels.items() <= sample.labels.items()
    ]
    buckets = [
        (float(sample.labels["le"]), sample.value) for sample in samples if sample.name == f"{name}_bucket"
    ]
    (count,) = [sample.value for sample in samples if sample.name == f"{name}_count"]
    (total_s,) = [sample.value for sample in samples if sample.name == f"{name}_sum"]
    return [value for _, value in sorted(buckets)], count, total_s


def announced(path: Path) -> str:
    """The URL that a process says on its standard error, once it does."""
    ends_s = time.monotonic() + DEADLINE_S
    while (match := re.search(r"metrics: (http://\S+)", path.read_text())) is None:
        assert time.monotonic() < ends_s, path.read_text()
        time.sleep(0.02)
    return match[1]
