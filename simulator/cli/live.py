"""The live view of a load: what `consumers.gauges` knows, on a terminal, twice a second.

It is text laid out by hand: rich's tables take several times as long, and whatever the view takes is taken from the
load that it shows. Needs the extra `egostream[load]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from rich.live import Live
from rich.text import Text

from consumers.follow import Watcher
from consumers.gauges import State
from consumers.histogram import Histogram
from consumers.lags import LaneState
from consumers.monitor import Progress
from simulator.cli import common
from simulator.cli.metrics import Tell, watching
from simulator.cli.progress import Update, progress_bar

_PER_S: Final = 2
_LANES: Final = 4
_LATE_US: Final = 500_000
_NAME: Final = 32
"""Characters of a name."""
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_SPARK_WIDTH: Final = 48
_WHOLE_EVERY: Final = 4
"""The percentiles since the start take a millisecond: only every so many times, while the pace has to be kept."""


class LiveView:
    """What is shown of the newest state that it was told. A new run begins anew."""

    def __init__(self, title: str, duration_s: float, drain_s: float) -> None:
        self._title, self._duration_s, self._drain_s = title, duration_s, drain_s
        self._text = Text()
        self._begin("")

    def _begin(self, run: str) -> None:
        self._run = run
        self._whole, self._told = Histogram(), 0
        self._percentiles: tuple[int, int] | None = None
        self._lag = Sparks(_SPARK_WIDTH)
        self._replayed_us: int | None = None

    def __rich__(self) -> Text:
        """Called by rich's own thread: a whole text, replaced and never changed."""
        return self._text

    def remembered(self, late_us: int) -> None:
        """A segment was remembered so long after it was due."""
        self._whole.record(late_us)

    def show(self, state: State) -> None:
        """Show this state from now on."""
        if state.started.run != self._run:
            self._begin(state.started.run)
        if state.replayed and self._replayed_us is None:
            self._replayed_us = state.now_us
        if state.replayed or self._told % _WHOLE_EVERY == 0:
            self._percentiles = self._whole.middle_and_tail()
        self._told += 1
        if state.begun_us is not None:
            self._lag.add(sum(lane.lag_segments for lane in state.lanes))
        self._text = Text("\n", no_wrap=True, overflow="ellipsis").join(self._lines(state))

    def _lines(self, state: State) -> Iterator[Text]:
        recent, lanes = state.recent, state.lanes
        yield Text.assemble(
            (f"{self._title} {_short(', '.join(state.started.systems), _NAME)}", "bold"),
            "  ",
            self._time(state),
        )
        for name, observations, segments in (
            ("offered", recent.offered_observations_per_s, recent.offered_segments_per_s),
            ("achieved", recent.achieved_observations_per_s, recent.achieved_segments_per_s),
        ):
            yield _line(name, f"{_rate(observations)} observations/s  {_rate(segments)} segments/s")
        failed = sum(lane.failed for lane in lanes)
        due = sum(lane.remembered + lane.failed + lane.lag_segments for lane in lanes)
        total = sum(state.started.segments.values()) * len(state.started.systems)
        done = sum(lane.remembered for lane in lanes)
        yield _line("remembered", f"{done:>10,} of {due:,} segments due, {total:,} in all")
        yield _line(
            "latency",
            f"last 10 s p50 {_time(recent.p50_us)}  p99 {_time(recent.p99_us)}   since the start p50 "
            f"{_time(self._percentiles and self._percentiles[0])}  p99 "
            f"{_time(self._percentiles and self._percentiles[1])}",
        )
        yield _line("lag", f"{self._lag}  {due - done - failed:,} segments, at most {self._lag.most:,}")
        yield from (_lane_line(lane, len(state.started.systems) > 1) for lane in worst(lanes, _LANES))
        for name, process in state.processes.items():
            shares = f"{_share(process.cpu)} of a core, {_size(process.rss_bytes)}"
            if process.children_rss_bytes:
                shares += f"; children {_share(process.children_cpu)}, {_size(process.children_rss_bytes)}"
            late = f"event loop late by {_time(process.loop_lag_us)}"
            yield _line("process", f"{_short(name, _NAME):<{_NAME}}  {shares}; {late}")
        if asked := sum(state.counts["tasks"].values()):
            answers = _sum(state, "responses", "answered")
            p50, p99 = map(_time, state.answers_us)
            yield _line(
                "questions", f"{asked:>10,} asked, {answers:,} answers; last 10 s p50 {p50}  p99 {p99}"
            )
        yield from _troubles(state, failed)

    def _time(self, state: State) -> str:
        if state.begun_us is None:
            return "beginning"
        elapsed_s = (state.now_us - state.begun_us) / 1e6
        if state.ended:
            return "all is done; reading the log"
        behind = any(lane.lag_segments and not lane.given_up for lane in state.lanes)
        if (
            state.started.questions is not None
            and state.started.questions.idle
            and state.replayed
            and not behind
        ):
            return "all is remembered; asking it idle"
        if self._replayed_us is not None:
            left_s = self._drain_s - (state.now_us - self._replayed_us) / 1e6
            if left_s < 0.5:
                return "all was due; waits no longer for what is owed"
            return f"all was due; waits {left_s:.0f} s at most for what is owed"
        left_s = max(0.0, self._duration_s - elapsed_s)
        return f"{min(elapsed_s, self._duration_s):.0f} of {self._duration_s:g} s, {left_s:.0f} s left"


class Sparks:
    """A line of little bars: the values so far, however many; what shares a bar is shown by its highest."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._bars: list[int] = []
        self._each = 1
        """Values to a bar."""
        self._last = 0
        """Values in the last bar."""
        self.most = 0

    def add(self, value: int) -> None:
        """Add the next value."""
        self.most = max(self.most, value)
        if self._bars and self._last < self._each:
            self._bars[-1] = max(self._bars[-1], value)
            self._last += 1
            return
        if len(self._bars) == self._width:
            self._bars = [max(self._bars[i : i + 2]) for i in range(0, self._width, 2)]
            self._each *= 2
        self._bars.append(value)
        self._last = 1

    def __str__(self) -> str:
        top = len(_SPARKS) - 1
        return "".join(_SPARKS[-(-bar * top // self.most) if self.most else 0] for bar in self._bars)


def worst(lanes: tuple[LaneState, ...], count: int) -> list[LaneState]:
    """The lanes that lack most of life, of those that lack a segment."""
    behind = [lane for lane in lanes if lane.lag_segments]
    return sorted(behind, key=lambda lane: (-lane.lag_event_time_s, lane.system, lane.stream))[:count]


class Shown(NamedTuple):
    """What a load is to be run with so that it shows: see `simulator.load.single.execute_load`."""

    show: Callable[[Progress], None] | None
    watchers: tuple[Watcher, ...]


@contextmanager
def load_shown(
    title: str,
    duration_s: float,
    drain_s: float,
    quiet: bool,
    plain: Callable[[Update, Progress], None],
    tell: Tell | None,
) -> Iterator[Shown]:
    """What shows a load: a live view on a terminal that can move its cursor, else lines now and then by `plain`. The
    view is gone at the end: what comes then says more. `tell` hears of the state as well."""
    if quiet or not common.err.is_terminal or common.err.is_dumb_terminal:
        with progress_bar(title, quiet) as update:
            yield Shown(lambda progress: plain(update, progress), watching(tell))
        return
    view = LiveView(title, duration_s, drain_s)
    with Live(view, console=common.err, refresh_per_second=_PER_S, transient=True):
        yield Shown(None, watching(tell, view.show, remembered=view.remembered))


def _line(name: str, text: str, style: str = "") -> Text:
    return Text.assemble((f"{name:<11}", "dim"), (text, style))


def _lane_line(lane: LaneState, several: bool) -> Text:
    name = _short(f"{lane.system}@{lane.stream}" if several else lane.stream, _NAME)
    behind = f"{lane.lag_segments:>7,} segments  {lane.lag_event_time_s:>11,.0f} s of life"
    return _line("", f"{name:<{_NAME}}{behind}{'  given up' if lane.given_up else ''}")


def _short(name: str, most: int) -> str:
    """Its end says more than its beginning: a class, a stream."""
    return name if len(name) <= most else f"…{name[-most + 1 :]}"


def _troubles(state: State, failed: int) -> Iterator[Text]:
    """What a person should see at once."""
    late_us = state.recent.late_us or 0
    if late_us > _LATE_US and not state.replayed:
        yield _line(
            "LATE",
            f"the replay itself is {_time(late_us).strip()} late: no more can be offered here",
            "bold red",
        )
    if failed:
        yield _line("FAILED", f"{failed:,} segments were not ingested", "bold red")
    if unanswered := _sum(state, "responses", "failed") + _sum(state, "committed", "failed"):
        yield _line("FAILED", f"{unanswered:,} answers or commits", "bold red")
    if dead := sum(state.counts["dead"].values()):
        yield _line("DEAD", f"{dead:,} records could not be used: `egostream tap RUN dead`", "bold red")


def _sum(state: State, name: str, outcome: str) -> int:
    return sum(count for labels, count in state.counts[name].items() if labels[-1] == outcome)


def _rate(per_s: float | None) -> str:
    return f"{'–' if per_s is None else f'{per_s:,.1f}':>10}"


def _share(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:,.0f} MiB"


def _time(us: int | None) -> str:
    if us is None:
        return f"{'–':>9}"
    return f"{f'{us / 1e3:,.1f} ms' if us < 10e6 else f'{us / 1e6:,.1f} s':>9}"
