"""A run's numbers in Prometheus's format: a table of metrics, each with how it is read off a `State`.

Names and units follow Prometheus's conventions: base units, counters end in `_total`, rates are left to `rate()`. Every
sample has the label `run`. No label names a trajectory, a segment or a record: a run has thousands. docs/prometheus.md
lists all of them; a test holds the two against each other.

Needs the extra `egostream[metrics]`: importing this module raises ModuleNotFoundError without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final, Literal, NamedTuple, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from consumers.gauges import Labels, State
from consumers.lags import LaneState, StreamState
from consumers.windows import BOUNDS_US, Counted

Unit = Literal["", "seconds", "bytes"]
Samples = Iterable[tuple[Labels, float]]


class Metric(NamedTuple):
    """One metric but for its label `run`. `name`: without `egostream_`, and a counter's without `_total`."""

    name: str
    help: str
    read: Callable[[State], Samples] | Callable[[State], Mapping[Labels, Counted]]
    labels: tuple[str, ...] = ()
    kind: Literal["counter", "gauge", "histogram"] = "gauge"
    unit: Unit = ""

    @property
    def exposed(self) -> str:
        """As it is called in what is served."""
        return f"egostream_{self.name}{'_total' if self.kind == 'counter' else ''}"


def _count(name: str) -> Callable[[State], Samples]:
    return lambda state: state.counts[name].items()


def _stream(value: Callable[[StreamState], float]) -> Callable[[State], Samples]:
    return lambda state: (((name,), value(stream)) for name, stream in state.streams.items())


def _lane(value: Callable[[LaneState], float]) -> Callable[[State], Samples]:
    return lambda state: (((lane.system, lane.stream), value(lane)) for lane in state.lanes)


def _system(values: Callable[[State], Mapping[str, int]]) -> Callable[[State], Samples]:
    return lambda state: (((system,), value) for system, value in values(state).items())


def _processor_s(state: State) -> Samples:
    for name, process in state.processes.items():
        yield (name, "itself"), process.cpu_us / 1e6
        yield (name, "children"), process.children_cpu_us / 1e6


def _resident_bytes(state: State) -> Samples:
    for name, process in state.processes.items():
        yield (name, "itself"), process.rss_bytes
        yield (name, "children"), process.children_rss_bytes


_LANE: Final = ("system", "stream")

METRICS: Final = (
    Metric(
        "run_info",
        "Always 1; its labels say what the run is: code, the version; dataset, its digest; isolation, how trajectories "
        "are kept apart.",
        lambda state: [
            (
                (
                    state.started.identity.get("code", ""),
                    state.started.identity.get("dataset", ""),
                    state.started.isolation,
                ),
                1,
            )
        ],
        ("code", "dataset", "isolation"),
    ),
    Metric("run_ended", "1 once everything has been ingested and judged, else 0.", lambda s: [((), s.ended)]),
    Metric("replay_ended", "1 once everything has been published, else 0.", lambda s: [((), s.replayed)]),
    # --- what is offered
    Metric(
        "observations_published",
        "Observations in the log. Its rate() is the rate at which life goes on.",
        _stream(lambda stream: stream.observations),
        ("stream",),
        "counter",
    ),
    Metric(
        "segments_published",
        "Segments (five minutes of a stream each) whose end is in the log: due for ingest.",
        _stream(lambda stream: stream.segments),
        ("stream",),
        "counter",
    ),
    Metric(
        "segments_expected",
        "Segments that the stream will have had at the end.",
        _stream(lambda stream: stream.expected),
        ("stream",),
    ),
    Metric(
        "event_time_seconds",
        "Event time of the newest that was published, in seconds since 1970. Its deriv() is how many times as fast as "
        "in life the replay goes.",
        _stream(lambda stream: stream.event_time_us / 1e6),
        ("stream",),
        unit="seconds",
    ),
    # --- what becomes of it
    Metric(
        "segments_remembered",
        "Segments that the lane has ingested: their delta is in the log. Compare its rate() with that of "
        "segments_published: where it is lower, the lane falls behind.",
        _lane(lambda lane: lane.remembered),
        _LANE,
        "counter",
    ),
    Metric(
        "segments_failed",
        "Segments whose ingest failed: nothing of them was stored, and they have no latency.",
        _lane(lambda lane: lane.failed),
        _LANE,
        "counter",
    ),
    Metric(
        "lag_segments",
        "Segments that were published and that the lane has neither ingested nor failed.",
        _lane(lambda lane: lane.lag_segments),
        _LANE,
    ),
    Metric(
        "lag_observations",
        "Observations in the segments that the lane lacks.",
        _lane(lambda lane: lane.lag_observations),
        _LANE,
    ),
    Metric(
        "lag_event_time_seconds",
        "How much of life the lane lacks: from the end of what it has ingested to the end of the newest segment.",
        _lane(lambda lane: lane.lag_event_time_s),
        _LANE,
        unit="seconds",
    ),
    Metric(
        "lane_given_up",
        "1 where an attached agent was silent for so long that nothing waits for the lane any more.",
        _lane(lambda lane: lane.given_up),
        _LANE,
    ),
    Metric(
        "ingest_latency_seconds",
        "How long after a segment was DUE by the clock a stage of its ingest was reached, however late it was sent (no "
        "coordinated omission). Stages: published, read, begun, ended, written (the delta handed to the log), and in a "
        "load remembered (read by a consumer). Nothing at an infinite rate, where nothing is ever due.",
        lambda state: state.latency,
        ("system", "stage"),
        "histogram",
        "seconds",
    ),
    Metric(
        "call_duration_seconds",
        "How long the memory system itself took: ingest, answer (R1, R_F, R2) or commit, failed ones included. An "
        "attached agent that doesn't stamp when it began has none.",
        lambda state: state.calls,
        ("system", "call"),
        "histogram",
        "seconds",
    ),
    Metric(
        "answer_latency_seconds",
        "How long after a question of a load was DUE its answer was read by a consumer. Failed answers have none.",
        lambda state: state.answers,
        ("system",),
        "histogram",
        "seconds",
    ),
    # --- trajectories
    Metric(
        "trajectories_begun",
        "Trajectories whose first task (T1) was asked.",
        _count("begun"),
        ("system",),
        "counter",
    ),
    Metric(
        "trajectories_closed",
        "Trajectories that have ended: whole, or early with what they lack unjudged (see the events on control).",
        _count("closed"),
        ("system", "ending"),
        "counter",
    ),
    Metric(
        "open_trajectories",
        "Trajectories that have begun and not ended. --open-trajectories bounds their sum.",
        _system(lambda state: state.open_trajectories),
        ("system",),
    ),
    Metric(
        "open_branches",
        "Isolated forks of memories that open trajectories hold: one each, two from the commit on with the commit "
        "ablation; none with --isolation shared, nor for a load's questions that are answered in turn with the ingest.",
        _system(lambda state: state.open_branches),
        ("system",),
    ),
    Metric("tasks", "Tasks asked (T1, T2).", _count("tasks"), ("system", "phase"), "counter"),
    Metric(
        "responses",
        "Responses written (R1, R_F, R2). Failed: the memory system gave no answer.",
        _count("responses"),
        ("system", "phase", "outcome"),
        "counter",
    ),
    Metric(
        "feedback",
        "Feedback given to R1: affirm, or revise, which asks for R_F.",
        _count("feedback"),
        ("system", "type"),
        "counter",
    ),
    Metric("commits", "Interactions handed to memories.", _count("commits"), ("system",), "counter"),
    Metric(
        "committed",
        "Interactions that memories took in, or failed to.",
        _count("committed"),
        ("system", "outcome"),
        "counter",
    ),
    Metric(
        "verdicts",
        "Judgments by metric and outcome. Unjudged is no fail: it leaves the denominator.",
        _count("verdicts"),
        ("system", "metric", "outcome"),
        "counter",
    ),
    # --- what it takes, and what goes wrong
    Metric(
        "model_tokens",
        "Tokens of language models that an ingest, an answer, a commit, a branch made by replay, or judging took, by "
        "what those say: of the prompt, or of the completion. One from the cache counts as when it was paid for.",
        _count("tokens"),
        ("system", "call", "kind"),
        "counter",
    ),
    Metric(
        "model_calls",
        "Answers of language models that these took, where they say so.",
        _count("model_calls"),
        ("system", "call"),
        "counter",
    ),
    Metric(
        "dead_letters",
        "Records that could not be used and were buried whole with the reason, by the topic that they came from.",
        _count("dead"),
        ("topic",),
        "counter",
    ),
    Metric(
        "events", "Events of the run that this endpoint has read.", _count("events"), ("topic",), "counter"
    ),
    Metric(
        "last_event_timestamp_seconds",
        "When a role wrote its newest event, by its own clock, in seconds since 1970: time() less this is its silence.",
        lambda state: (((role,), us / 1e6) for role, us in state.last_us.items()),
        ("role",),
        unit="seconds",
    ),
    Metric(
        "process_cpu_seconds",
        "Processor time that a process of a load and its children took.",
        _processor_s,
        ("process", "of"),
        "counter",
        "seconds",
    ),
    Metric(
        "process_resident_memory_bytes",
        "Resident memory of a process of a load, and of its children.",
        _resident_bytes,
        ("process", "of"),
        unit="bytes",
    ),
    Metric(
        "process_event_loop_lag_seconds",
        "The longest that the event loop of a process of a load came late to a timer within its last second.",
        lambda state: (((name,), process.loop_lag_us / 1e6) for name, process in state.processes.items()),
        ("process",),
        unit="seconds",
    ),
)
"""In the order in which they are served."""


class StateCollector(Collector):
    """Collects the state that it was handed last: one reference, replaced as a whole, so that a scrape in another
    thread sees one moment. Before the first there is nothing."""

    def __init__(self) -> None:
        self.state: State | None = None

    def collect(self) -> Iterator[Family]:
        """Everything, as Prometheus's client has it."""
        state = self.state
        for metric in METRICS if state is not None else ():
            yield family(metric, state)

    def describe(self) -> Iterator[Family]:
        """The same without samples."""
        for metric in METRICS:
            yield family(metric, None)


def family(metric: Metric, state: State | None) -> Family:
    """One metric with its samples."""
    name, labels = f"egostream_{metric.name}", ("run", *metric.labels)
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(name, metric.help, labels=labels, unit=metric.unit)
        for values, counted in _histograms(metric, state):
            histogram.add_metric(values, _cumulative(counted), counted.sum_us / 1e6)
        return histogram
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    found = kind(name, metric.help, labels=labels, unit=metric.unit)
    for values, value in _samples(metric, state):
        found.add_metric(values, float(value))
    return found


def _samples(metric: Metric, state: State | None) -> Iterator[tuple[Labels, float]]:
    if state is not None:
        for labels, value in cast(Samples, metric.read(state)):
            yield (state.started.run, *labels), value


def _histograms(metric: Metric, state: State | None) -> Iterator[tuple[Labels, Counted]]:
    if state is not None:
        for labels, counted in cast(Mapping[Labels, Counted], metric.read(state)).items():
            yield (state.started.run, *labels), counted


def _cumulative(counted: Counted) -> list[tuple[str, float]]:
    ends = [*(str(bound_us / 1e6) for bound_us in BOUNDS_US), "+Inf"]
    return list(zip(ends, accumulate(counted.counts), strict=True))
