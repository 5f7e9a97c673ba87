"""The protocol of a load's questions: T1 → R1, and nothing after.

A question is a task of a trajectory with one step: nobody judges it, and there is no feedback and no commit. It names
the newest segment whose delta its lane had published, and the answer the newest that its memory had taken in when it
was asked: that may be a later one by then, never an earlier one, and nothing that the answer rests on is newer. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from simulator.errors import InvariantError
from simulator.events import Questions, ResponseEvent, RunStartedEvent, TrajectoryClosedEvent
from simulator.protocols.trajectory import STEPS, common_of

_ID: Final = re.compile(r"(?s)(.+)/s(0|[1-9][0-9]*)/q(0|[1-9][0-9]*)")


class QuestionName(NamedTuple):
    """What a question's trajectory is called after."""

    lane: str
    segment: int
    number: int
    """Questions are numbered through the run in the order in which they are due."""

    @property
    def trajectory(self) -> str:
        """`<lane>/s<segment>/q<number>`."""
        return f"{self.lane}/s{self.segment}/q{self.number}"

    @property
    def anchor(self) -> str:
        """What stands in place of an anchor's name."""
        return f"{self.lane.partition('@')[2]}/s{self.segment}/q{self.number}"


def question_of(trajectory: str, questions: Questions) -> QuestionName | None:
    """The question that a trajectory is; None where it is none of these."""
    found = _ID.fullmatch(trajectory)
    if found is None:
        return None
    name = QuestionName(found[1], int(found[2]), int(found[3]))
    return name if name.number < questions.total else None


class Answers:
    """Takes each question's answer and closes its trajectory; knows how many are still to come. `closed`: the
    trajectories that have ended by what the log holds already. A run without questions waits for none."""

    def __init__(self, started: RunStartedEvent, closed: Iterable[str] = ()) -> None:
        self.questions = started.questions or Questions()
        names = (question_of(trajectory, self.questions) for trajectory in closed)
        self._answered = {name.number for name in names if name is not None}

    @property
    def left(self) -> int:
        """How many questions have no answer yet."""
        return self.questions.total - len(self._answered)

    def take(self, event: ResponseEvent) -> TrajectoryClosedEvent | None:
        """The end of the trajectory that a response answers; None where it is no question's. Raises InvariantError,
        and changes nothing, for a response that can't be."""
        name = question_of(event.trajectory, self.questions)
        if name is None:
            return None
        expected = {
            "lane": name.lane,
            "phase": "R1",
            "arm": "committed",
            "step": STEPS["R1"],
            "id": f"{event.trajectory}/R1",
        }
        for field, value in expected.items():
            if getattr(event, field) != value:
                raise InvariantError(
                    f"the answer to question {event.trajectory} has {field} {getattr(event, field)!r}, not {value!r}",
                    (event.id,),
                )
        if event.as_of is None or event.as_of < name.segment:
            raise InvariantError(
                f"the answer to question {event.trajectory} is as of segment {event.as_of}, before the question",
                (event.id,),
            )
        if name.number in self._answered:
            raise InvariantError(f"question {name.number} has two answers", (event.id,))
        self._answered.add(name.number)
        return TrajectoryClosedEvent(
            **common_of(event, event.trajectory, "closed"),
            anchor=name.anchor,
            reason="" if event.error is None else f"R1 failed: {event.error}",
        )
