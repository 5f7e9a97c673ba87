"""How a run stands in numbers, at any moment: a pure fold over its events, one at a time, each in constant time.

What `consumers.latency` reports when a load is over, this keeps up to date while one goes on, and beside it whatever
else of a run can be counted. It may be fed topic by topic or in any mixture, as the log gives them: in order within a
partition, in none between topics: the totals are the same. It keeps what the slowest lane has yet to remember, the ids
of trajectories and of dead letters, and no texts.

Labels come from what the run announced, never from what an attached agent writes: nobody can make it grow.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Final, get_args

import msgspec

from consumers.lags import Lags, LaneState, Recent, StreamState
from consumers.process_use import Sample
from consumers.spending import cast_votes
from consumers.status import role_of
from consumers.windows import WINDOW_S, Buckets, Counted, RecentTimes, percentile
from simulator.events import (
    AnyEvent,
    CommitEvent,
    CommittedEvent,
    DeadLetterEvent,
    DeltaEvent,
    FeedbackEvent,
    LaneEvent,
    LaneFailedEvent,
    LoadCutShortEvent,
    ObservationEvent,
    Outcome,
    ProcessSampleEvent,
    ReadyEvent,
    ReplayEndedEvent,
    ResponseEvent,
    RunEndedEvent,
    RunStartedEvent,
    SegmentClosedEvent,
    SegmentReleasedEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    Usage,
    VerdictEvent,
)
from simulator.log.protocol import Headers
from simulator.protocols.streammembench import METRICS
from simulator.topics import TOPIC_OF_KIND, boot_of, wall_of
from simulator.waits import CONDUCTOR_ROLE, JUDGE_ROLE, REPLAYER_ROLE, agent_role

Labels = tuple[str, ...]
CALLS: Final = ("ingest", "answer", "commit")


class ProcessState(msgspec.Struct, frozen=True, kw_only=True):
    """What a process said last of itself. The shares are of a core, over the window; None of fewer than two samples."""

    cpu_us: int
    children_cpu_us: int
    rss_bytes: int
    children_rss_bytes: int
    loop_lag_us: int
    cpu: float | None
    children_cpu: float | None


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All of it at one moment; nothing in it changes any more.

    `begun_us`: when the first observation was due, or published if none is due by a clock. `counts`: name → label
    values → number (see `Gauges.__init__`). `latency`: (system, stage); `calls`: (system, call); `answers`: (system),
    of a load's questions, from due to read by a consumer.
    """

    started: RunStartedEvent
    begun_us: int | None
    now_us: int
    replayed: bool
    ended: bool
    streams: Mapping[str, StreamState]
    lanes: tuple[LaneState, ...]
    counts: Mapping[str, Mapping[Labels, int]]
    latency: Mapping[Labels, Counted]
    calls: Mapping[Labels, Counted]
    answers: Mapping[Labels, Counted]
    answers_us: tuple[int | None, int | None]
    """p50 and p99 of the newest 10 seconds."""
    open_trajectories: Mapping[str, int]
    open_branches: Mapping[str, int]
    processes: Mapping[str, ProcessState]
    last_us: Mapping[str, int]
    """Role → wall time of the newest event that it wrote."""
    recent: Recent


class _Trajectory(msgspec.Struct):
    """One that was not closed. `begun`: its T1 was read."""

    system: str
    begun: bool = False
    due_us: int | None = None
    """Of a question."""
    branches: int = 1


class Gauges:
    """Feed it a run's events; ask for the state at any time. `remembered` hears each latency from due to remembered, in
    microseconds."""

    def __init__(
        self, started: RunStartedEvent, remembered: Callable[[int], None] = lambda late_us: None
    ) -> None:
        self._started = started
        self._lags = Lags(started, remembered)
        systems, topics = started.systems, sorted(set(TOPIC_OF_KIND.values()))
        # What can be foreseen stands at zero from the beginning: else the first of a kind is no increase.
        self._counts: dict[str, Counter[Labels]] = {
            "tasks": _zeros(systems, ("T1", "T2")),
            "responses": _zeros(systems, ("R1", "R_F", "R2"), ("answered", "failed")),
            "feedback": _zeros(systems, ("affirm", "revise")),
            "commits": _zeros(systems),
            "committed": _zeros(systems, ("stored", "failed")),
            "begun": _zeros(systems),
            "closed": _zeros(systems, ("whole", "early")),
            "verdicts": _zeros(systems, _judged(started), get_args(Outcome)),
            "dead": _zeros(topics),
            "tokens": _zeros(systems, (*CALLS, "replay", "judge"), ("prompt", "completion")),
            "model_calls": _zeros(systems, (*CALLS, "replay", "judge")),
            "events": _zeros(topics),
        }
        self._calls = {(system, call): Buckets() for system in systems for call in CALLS}
        self._open: dict[str, _Trajectory] = {}
        self._closed: dict[str, bool] = {}
        """Trajectory → whether its T1 was read."""
        asked = systems if started.questions is not None else ()
        self._answers: dict[Labels, Buckets] = {(system,): Buckets() for system in asked}
        self._received_us: dict[str, int] = {}
        """Question that was closed before its T1 was read → when its answer was."""
        self._took = RecentTimes()
        self._forking: set[str] = set()
        """Systems whose agents say that they answer on forks."""
        self._buried: set[str] = set()
        self._samples: dict[str, deque[Sample]] = {}
        self._last_us = dict.fromkeys(
            (REPLAYER_ROLE, CONDUCTOR_ROLE, JUDGE_ROLE, *map(agent_role, systems)), 0
        )
        self._replayed = self._ended = self._cut_short = False

    @property
    def over(self) -> bool:
        """Whether nothing of the run follows."""
        return self._ended or self._cut_short or (self._replayed and not self._started.systems)

    # --- what comes in --------------------------------------------------------------------------------------

    def observed(self, stream: str, event_time_us: int, headers: Headers) -> None:
        """Take an observation in: of the many, nothing is needed that its value says."""
        wall_us, due_us = wall_of(headers), wall_of(headers, "due_us")
        if self._lags.observed(stream, event_time_us, due_us, wall_us):
            self._counts["events"]["observations",] += 1
            self._wrote(REPLAYER_ROLE, wall_us)

    def feed(self, event: AnyEvent, headers: Headers) -> None:
        """Take any event in."""
        if isinstance(event, ObservationEvent):
            self.observed(event.stream, event.event_time_us, headers)
            return
        self._counts["events"][TOPIC_OF_KIND[str(event.__struct_config__.tag)],] += 1
        if isinstance(event, LaneEvent) and _system(event.lane) not in self._started.systems:
            return  # nobody's of this run: it is buried
        self._wrote(role_of(event), wall_of(headers))
        match event:
            case RunStartedEvent():
                self._lags.began(boot_of(headers))
            case SegmentClosedEvent():
                self._lags.closed(event, headers)
            case DeltaEvent():
                if self._lags.delta(event, headers):
                    self._spend(_system(event.lane), "ingest", event.usage)
                    self._time(_system(event.lane), "ingest", headers)
            case SegmentReleasedEvent():
                self._lags.released(event, headers)
            case LaneFailedEvent():
                self._lags.give_up(event.lane)
            case TaskEvent() | ResponseEvent() | FeedbackEvent() | CommitEvent() | CommittedEvent():
                self._take_part(event, headers)
            case TrajectoryClosedEvent():
                self._close(event, headers)
            case VerdictEvent():
                self._count("verdicts", _system(event.lane), event.metric, event.outcome)
                for vote in cast_votes(event.votes):
                    self._spend(_system(event.lane), "judge", vote.usage)
            case DeadLetterEvent():
                if event.id not in self._buried:  # several readers may bury one record
                    self._buried.add(event.id)
                    self._count("dead", event.topic.rpartition(".")[2])
            case ProcessSampleEvent():
                self._take_sample(event, headers)
            case ReadyEvent(means="fork"):
                self._forking.update(one for one in self._started.systems if agent_role(one) == event.role)
            case ReplayEndedEvent():
                self._replayed = True
            case RunEndedEvent():
                self._ended = True
            case LoadCutShortEvent():
                self._cut_short = True
            case _:
                pass

    def _count(self, name: str, *labels: str) -> None:
        self._counts[name][labels] += 1

    def _wrote(self, role: str, wall_us: int | None) -> None:
        if wall_us is not None and wall_us > self._last_us.get(role, wall_us):
            self._last_us[role] = wall_us

    # --- trajectories ---------------------------------------------------------------------------------------

    def _take_part(
        self,
        event: TaskEvent | ResponseEvent | FeedbackEvent | CommitEvent | CommittedEvent,
        headers: Headers,
    ) -> None:
        system = _system(event.lane)
        match event:
            case TaskEvent():
                self._count("tasks", system, event.phase)
                if event.phase == "T1":
                    self._begin(event.trajectory, system, wall_of(headers, "due_us"))
            case ResponseEvent():
                self._count("responses", system, event.phase, "answered" if event.error is None else "failed")
                self._spend(system, "answer", event.usage)
                self._spend(system, "replay", event.replayed.usage)
                self._time(system, "answer", headers)
            case FeedbackEvent():
                self._count("feedback", system, event.type)
            case CommitEvent():
                self._count("commits", system)
                if event.keep_uncommitted and event.trajectory not in self._closed:
                    self._open.setdefault(event.trajectory, _Trajectory(system)).branches = 2
            case CommittedEvent():
                self._count("committed", system, "stored" if event.error is None else "failed")
                self._spend(system, "commit", event.usage)
                self._spend(system, "replay", event.replayed.usage)
                self._time(system, "commit", headers)

    def _begin(self, key: str, system: str, due_us: int | None) -> None:
        if (known := self._closed.get(key)) is not None:
            self._closed[key] = True
            self._answered(system, due_us, self._received_us.pop(key, None))
        else:
            trajectory = self._open.setdefault(key, _Trajectory(system))
            known, trajectory.begun, trajectory.due_us = trajectory.begun, True, due_us
        if not known:
            self._count("begun", system)

    def _close(self, event: TrajectoryClosedEvent, headers: Headers) -> None:
        key, system = event.trajectory, _system(event.lane)
        if key in self._closed:
            return
        trajectory = self._open.pop(key, None)
        begun = self._closed[key] = trajectory is not None and trajectory.begun
        self._count("closed", system, "early" if event.reason else "whole")
        received_us = None if event.reason else wall_of(headers, "read_us")
        if self._started.questions is None or received_us is None:
            return
        if trajectory is not None and begun:
            self._answered(system, trajectory.due_us, received_us)
        else:
            self._received_us[key] = received_us

    def _answered(self, system: str, due_us: int | None, received_us: int | None) -> None:
        """A question's answer was read by the conductor: nothing but that closes its trajectory."""
        if due_us is not None and received_us is not None and not self._lags.conductor_apart:
            self._answers[system,].record(received_us - due_us)
            self._took.add(received_us, max(0, received_us - due_us))

    def _spend(self, system: str, call: str, usage: Usage) -> None:
        self._counts["tokens"][system, call, "prompt"] += usage.prompt_tokens
        self._counts["tokens"][system, call, "completion"] += usage.completion_tokens
        self._counts["model_calls"][system, call] += usage.calls

    def _time(self, system: str, call: str, headers: Headers) -> None:
        began_us, ended_us = wall_of(headers, "began_us"), wall_of(headers, "ended_us")
        if began_us is not None and ended_us is not None:
            self._calls[system, call].record(ended_us - began_us)

    # --- processes ------------------------------------------------------------------------------------------

    def _take_sample(self, event: ProcessSampleEvent, headers: Headers) -> None:
        sample = Sample.of(headers)
        if sample is None:
            return
        samples = self._samples.setdefault(event.process, deque())
        samples.append(sample)
        while samples[-1].at_us - samples[0].at_us > WINDOW_S * 1e6:
            samples.popleft()

    # --- what it comes to -----------------------------------------------------------------------------------

    def state(self, now_us: int) -> State:
        """How it stands. `now_us`: the wall time up to which everything was fed."""
        systems = self._started.systems
        begun = [one for one in self._open.values() if one.begun]
        forks = systems if self._started.isolation == "branch" else self._forking
        trajectories, branches = Counter(dict.fromkeys(systems, 0)), Counter(dict.fromkeys(systems, 0))
        trajectories.update(one.system for one in begun)
        for one in begun:
            branches[one.system] += one.branches if one.system in forks else 0
        took_us = self._took.values(now_us)
        return State(
            started=self._started,
            begun_us=self._lags.begun_us,
            now_us=now_us,
            replayed=self._replayed,
            ended=self._ended,
            streams=self._lags.streams(),
            lanes=self._lags.lanes(),
            counts={name: dict(counts) for name, counts in self._counts.items()},
            latency=self._lags.latency(),
            calls={labels: buckets.counted() for labels, buckets in self._calls.items()},
            answers={labels: buckets.counted() for labels, buckets in self._answers.items()},
            answers_us=(percentile(took_us, 50), percentile(took_us, 99)),
            open_trajectories=dict(trajectories),
            open_branches=dict(branches),
            processes={name: _process(samples) for name, samples in sorted(self._samples.items())},
            last_us={role: us for role, us in self._last_us.items() if us},
            recent=self._lags.recent(now_us, replayed=self._replayed),
        )


def _zeros(*labels: Iterable[str]) -> Counter[Labels]:
    return Counter(dict.fromkeys(product(*labels), 0))


def _judged(started: RunStartedEvent) -> tuple[str, ...]:
    """What verdicts are on, as far as the run says."""
    if started.protocol == "streammembench":
        return METRICS[: 5 if started.ablate_commit else 4]
    return tuple(name.removeprefix("judge.") for name in started.identity if name.startswith("judge."))


def _system(lane: str) -> str:
    return lane.partition("@")[0]


def _process(samples: Sequence[Sample]) -> ProcessState:
    first, last = samples[0], samples[-1]
    span_us = last.at_us - first.at_us

    def share(used_us: int) -> float | None:
        # a child that ended is in none of the later samples
        return max(0, used_us) / span_us if span_us > 0 else None

    return ProcessState(
        cpu_us=last.cpu_us,
        children_cpu_us=last.children_cpu_us,
        rss_bytes=last.rss_bytes,
        children_rss_bytes=last.children_rss_bytes,
        loop_lag_us=last.loop_lag_us,
        cpu=share(last.cpu_us - first.cpu_us),
        children_cpu=share(last.children_cpu_us - first.children_cpu_us),
    )
