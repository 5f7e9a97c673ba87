"""How late a load's questions are answered: a pure fold over a run's events and their headers, in any order of topics.

A question is due by its own rate, and every latency here runs from that moment (no coordinated omission). The stages,
each as the time since due:

    published    the asker handed the question to the log
    read         the agent read it
    begun        the answer began: what was between is the wait for a turn, and for a fork
    first_token  the answer's first token was there, of systems that stream and say so
    answered     the answer ended
    written      the agent handed the response to the log
    received     the conductor, a consumer, read the response: by now it was in the log

`branch` (the fork of the snapshot, for one question) and `answer` (begun to ended) stand beside them. `loaded` are the
questions that were due while segments were offered, `idle` those after, of the same memories with nothing else to do.
A failed answer has no latency, nor has one that did not come; with any of those the percentiles are too low.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from consumers.histogram import Histogram, Percentiles
from simulator.events import (
    AnyEvent,
    DeltaEvent,
    Questions,
    ReadyEvent,
    ResponseEvent,
    RunStartedEvent,
    TaskEvent,
    TrajectoryClosedEvent,
)
from simulator.log.protocol import Headers
from simulator.protocols.questions import question_of
from simulator.topics import wall_of
from simulator.waits import agent_role

ANSWER_STAGES: Final = ("published", "read", "begun", "first_token", "answered", "written", "received")
_BY_AGENT: Final = {
    "read": "read_us",
    "begun": "began_us",
    "first_token": "first_token_us",
    "answered": "ended_us",
    "written": "wall_us",
}
"""Stage → the header of the response that says when."""
_BETWEEN: Final = {"branch": ("isolating_us", "began_us"), "answer": ("began_us", "ended_us")}
ANSWER_BESIDE: Final = tuple(_BETWEEN)
AnsweredOn = Literal["fork", "turn", "unknown"]


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """How many times as long a stage takes loaded as idle; None where idle took no microsecond."""

    p50: float | None
    p99: float | None


class AnswerTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The questions of one part of a load: `due` by the schedule, `asked` in the log, and what came of them."""

    due: int
    asked: int
    answered: int
    failed: int
    unfinished: int
    asked_per_s: float | None
    stages: dict[str, Percentiles | None]


class AnswersReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a load's questions came to. `on`: system → what they are answered on: a `fork` of the newest snapshot, or
    the one memory in `turn` with its ingest; `unknown` of agents that are not ours. `snapshot`: how long the fork after
    each ingest took. `ratios`: stage → loaded by idle. `error_us`: stage → how far off its values may be, where another
    clock took its stamps."""

    on: dict[str, AnsweredOn]
    loaded: AnswerTimes
    idle: AnswerTimes
    ratios: dict[str, Ratio]
    snapshot: Percentiles | None
    error_us: dict[str, float] = {}


class _Question(msgspec.Struct):
    """What is known of one: times by name."""

    lane: str
    due_us: int | None = None
    published_us: int | None = None
    times_us: dict[str, int] | None = None
    received_us: int | None = None
    failed: bool = False


class AnswersFold:
    """Feed every event of the run with its headers; ask for the report, as often as wanted."""

    def __init__(self, started: RunStartedEvent, questions: Questions) -> None:
        self._started = started
        self._questions = questions
        self._of: dict[int, _Question] = {}
        self._snapshot = Histogram()
        self._forking: set[str] = set()
        """Roles of agents that said that they answer on forks."""

    def feed(self, event: AnyEvent, headers: Headers) -> None:
        """Take one event in."""
        match event:
            case TaskEvent():
                if (question := self._question(event.trajectory)) is not None:
                    question.due_us = wall_of(headers, "due_us")
                    question.published_us = wall_of(headers)
            case ResponseEvent():
                # the first counts: that there is only one is the audit's to check
                question = self._question(event.trajectory)
                if question is not None and question.times_us is None:
                    names = ("isolating_us", *_BY_AGENT.values())
                    found = {name: wall_of(headers, name) for name in names}
                    question.times_us = {name: at for name, at in found.items() if at is not None}
                    question.failed = event.error is not None
            case TrajectoryClosedEvent():
                if (question := self._question(event.trajectory)) is not None:
                    question.received_us = wall_of(headers, "read_us")
            case ReadyEvent(means="fork"):
                self._forking.add(event.role)
            case DeltaEvent():
                ended_us, snapshot_us = wall_of(headers, "ended_us"), wall_of(headers, "snapshot_us")
                if ended_us is not None and snapshot_us is not None:
                    self._snapshot.record(snapshot_us - ended_us)
            case _:
                pass

    def _question(self, trajectory: str) -> _Question | None:
        name = question_of(trajectory, self._questions)
        return None if name is None else self._of.setdefault(name.number, _Question(name.lane))

    def report(
        self, ahead_us: Mapping[str, float | None], *, error_us: float = 0.0, conductor: bool = True
    ) -> AnswersReport:
        """What came of all that was fed.

        `ahead_us`: lane → by how much its agent's clock is ahead of the asker's, which is the replayer's; None: nobody
        knows. `error_us`: how far off that may be, at most; 0 of one clock. `conductor`: whether the conductor has that
        clock. What is not known to be of one clock has no latency.
        """
        loaded, idle = (
            self._times(numbers, ahead_us, conductor=conductor)
            for numbers in (
                range(self._questions.loaded),
                range(self._questions.loaded, self._questions.total),
            )
        )
        on: dict[str, AnsweredOn] = {
            system: "fork"
            if agent_role(system) in self._forking
            else "unknown"
            if system in self._started.attached
            else "turn"
            for system in self._started.systems
        }
        ratios: dict[str, Ratio] = {}
        for stage, numbers in loaded.stages.items():
            base = idle.stages[stage]
            if numbers is not None and base is not None:
                ratios[stage] = Ratio(
                    p50=_ratio(numbers.p50_us, base.p50_us), p99=_ratio(numbers.p99_us, base.p99_us)
                )
        return AnswersReport(
            on=on,
            loaded=loaded,
            idle=idle,
            ratios=ratios,
            snapshot=self._snapshot.percentiles(),
            error_us=dict.fromkeys(_BY_AGENT, error_us) if error_us else {},
        )

    def _times(self, numbers: range, ahead_us: Mapping[str, float | None], *, conductor: bool) -> AnswerTimes:
        stages = {name: Histogram() for name in (*ANSWER_STAGES, *ANSWER_BESIDE)}
        asked = answered = failed = 0
        dues_us: list[int] = []
        for number in numbers:
            question = self._of.get(number)
            if question is None or question.due_us is None:
                continue
            asked += 1
            dues_us.append(question.due_us)
            if question.times_us is None:
                continue
            if question.failed:
                failed += 1
                continue
            answered += 1
            since_due = {
                "published": question.published_us,
                **_agent_times(question.times_us, ahead_us.get(question.lane, 0.0)),
                "received": question.received_us if conductor else None,
            }
            for name, at_us in since_due.items():
                if at_us is not None:
                    stages[name].record(at_us - question.due_us)
            for name, (first, last) in _BETWEEN.items():
                if first in question.times_us and last in question.times_us:
                    stages[name].record(question.times_us[last] - question.times_us[first])
        span_s = (max(dues_us) - min(dues_us)) / 1e6 if dues_us else 0.0
        return AnswerTimes(
            due=len(numbers),
            asked=asked,
            answered=answered,
            failed=failed,
            unfinished=len(numbers) - answered - failed,
            # n points in time have n - 1 gaps
            asked_per_s=(asked - 1) / span_s if span_s > 0 else None,
            stages={name: histogram.percentiles() for name, histogram in stages.items()},
        )


def _agent_times(times_us: Mapping[str, int], ahead_us: float | None) -> dict[str, int]:
    """Stage → when, by the asker's clock; nothing where nobody knows."""
    if ahead_us is None:
        return {}
    late_us = round(ahead_us)
    return {stage: times_us[name] - late_us for stage, name in _BY_AGENT.items() if name in times_us}


def _ratio(loaded_us: int, idle_us: int) -> float | None:
    return loaded_us / idle_us if idle_us > 0 else None
