"""What a load's questions have to keep of invariants 3 and 4: T1 after its lane's delta, R1 as of that segment or a
later one and resting on nothing newer, the end after it, and nothing else. Checked once all topics are read."""

from __future__ import annotations

import msgspec

from consumers.audit.certificate import Book, Invariant, Kept, Place
from consumers.audit.form import Form
from consumers.audit.memory import ATTACHED_SKEW_US, SKEW_US, Memories
from consumers.audit.parts import Part, name_of
from simulator.events import (
    Questions,
    ResponseEvent,
    RunStartedEvent,
    TaskEvent,
    TrajectoryClosedEvent,
    TrajectoryEvent,
)
from simulator.log.protocol import StoredRecord
from simulator.protocols.questions import QuestionName, question_of
from simulator.protocols.trajectory import STEPS


class _Told(msgspec.Struct):
    """What the log tells of one question."""

    name: QuestionName
    parts: dict[str, Part] = msgspec.field(default_factory=dict)
    closed: TrajectoryClosedEvent | None = None
    closed_at: Place | None = None


class Asked:
    """All questions of a load; in a run without any it is never asked."""

    def __init__(self, started: RunStartedEvent, book: Book, form: Form, memories: Memories) -> None:
        self._book = book
        self._form = form
        self._memories = memories
        self._questions = started.questions or Questions()
        self._told: dict[int, _Told] = {}

    @property
    def total(self) -> int:
        """How many questions the log knows of."""
        return len(self._told)

    def part(self, event: TrajectoryEvent, record: StoredRecord) -> None:
        """Take one event of a trajectory."""
        told, name = self._of(event, record), name_of(event)
        if told is None:
            return
        part = Part.of(
            event,
            record,
            failed=isinstance(event, ResponseEvent) and event.error is not None,
            segment=event.segment if isinstance(event, TaskEvent) else None,
        )
        self._book.checked["4"] += 1
        if name not in ("T1", "R1"):
            self._book.find("4", "unasked", f"{event.id}: a question has a T1 and an R1 alone", part)
            return
        if event.step != STEPS.get(name):
            self._book.find("4", "step", f"{event.id} is a {name} at step {event.step}", part)
        if (known := told.parts.setdefault(name, part)) is not part:
            self._book.find("4", "twice", f"{event.trajectory} has two of {name}", part, known)
        elif isinstance(event, ResponseEvent):
            self._memories.check_response(event, part, event.as_of or 0)

    def closed(self, event: TrajectoryClosedEvent, record: StoredRecord) -> None:
        """Take the end of a trajectory."""
        told, place = self._of(event, record), Place.of(record)
        if told is None:
            return
        self._book.checked["4"] += 1
        if told.closed is not None and told.closed_at is not None:
            first = (told.closed.id, told.closed_at)
            self._book.find("4", "twice", f"{event.trajectory} was closed twice", (event.id, place), first)
        else:
            told.closed, told.closed_at = event, place

    def _of(self, event: TrajectoryEvent | TrajectoryClosedEvent, record: StoredRecord) -> _Told | None:
        name = question_of(event.trajectory, self._questions)
        if name is None or name.lane != event.lane:
            what = f"{event.id} is of {event.trajectory}, which is no question to {event.lane} in this run"
            self._book.find("form", "trajectory", what, (event.id, Place.of(record)))
            return None
        told = self._told.setdefault(name.number, _Told(name))
        if told.name != name:
            what = f"{event.id} is of question {name.number}, which is {told.name.trajectory} elsewhere"
            self._book.find("4", "twice", what, (event.id, Place.of(record)))
            return None
        return told

    def close(self, *, ended: bool) -> None:
        """Check each question as a whole."""
        is_open = self._questions.total - len(self._told)
        for told in self._told.values():
            self._check_task(told)
            self._check_answer(told)
            self._check_closed(told)
            if told.closed is None:
                is_open += 1
                if ended:
                    last = told.name.trajectory
                    self._book.find(
                        "4", "missing", f"the run has ended, and {last} has not", f"{last}/closed"
                    )
        if ended and len(self._told) < self._questions.total:
            what = f"{len(self._told)} of {self._questions.total} questions were asked, and the run has ended"
            self._book.find("4", "missing", what)
        elif is_open and not ended:
            self._book.leave_open(f"{is_open} of {self._questions.total} questions have no answer yet")

    def _check_task(self, told: _Told) -> None:
        task, name, book = told.parts.get("T1"), told.name, self._book
        if task is None:
            return
        if (task.as_of, task.segment) != (name.segment, name.segment):
            what = f"{task.id} is as of segment {task.as_of} and about {task.segment}, not {name.segment}"
            book.find("3", "as_of", what, task)
        delta = self._memories.delta_of(name.lane, name.segment)
        book.checked["3"] += 1
        if delta is None:
            what = f"{task.id} is there, and its lane's delta of segment {name.segment} is not"
            book.lacks("3", "task_without_delta", what, task)
        else:
            self._check_follows("3", name.lane, task, delta)
            self._check_time(task, delta)

    def _check_answer(self, told: _Told) -> None:
        task, answer, name, book = told.parts.get("T1"), told.parts.get("R1"), told.name, self._book
        if answer is None:
            return
        book.checked["3"] += 1
        if task is None:
            book.lacks("4", "unasked", f"{answer.id} is there, and nobody asked", answer)
        else:
            self._check_follows("4", name.lane, answer, task)
        if answer.as_of is None or answer.as_of < name.segment:
            what = f"{answer.id} is as of segment {answer.as_of}; what was asked stands on {name.segment}"
            book.find("3", "as_of", what, answer)
            return
        delta = self._memories.delta_of(name.lane, answer.as_of)
        if delta is None:
            what = f"{answer.id} is as of segment {answer.as_of}, of which its lane has no delta"
            book.lacks("3", "answer_without_delta", what, answer)
        else:
            self._check_time(answer, delta)

    def _check_closed(self, told: _Told) -> None:
        closed, place, answer = told.closed, told.closed_at, told.parts.get("R1")
        if closed is None or place is None:
            return
        at = (closed.id, place)
        if answer is None or closed.causes != (answer.id,):
            what = f"{closed.id} has causes {closed.causes}, not the answer that ends it"
            self._book.lacks("4", "causes", what, at)
        elif bool(closed.reason) != answer.failed:
            said = f"gives the reason {closed.reason!r}" if closed.reason else "gives no reason"
            did = "failed" if answer.failed else "did not fail"
            self._book.find("4", "closed_reason", f"{closed.id} {said}, and its answer {did}", at)
        if closed.anchor != told.name.anchor or closed.unjudged:
            what = f"{closed.id} names an anchor or what can't be judged, and a question has neither"
            self._book.find("4", "closed_anchor", what, at)

    def _check_follows(self, invariant: Invariant, lane: str, part: Part, cause: Kept) -> None:
        if part.causes != (cause.id,):
            what = f"{part.id} has causes {part.causes}, not what it follows"
            self._book.find(invariant, "causes", what, part, cause)
        skew_us = ATTACHED_SKEW_US if self._form.is_attached(lane) else SKEW_US
        began_us = part.began_us if part.began_us is not None else part.wall_us
        if began_us is not None and cause.wall_us is not None and began_us < cause.wall_us - skew_us:
            early_s = (cause.wall_us - began_us) / 1e6
            apart = f"clocks may be {skew_us / 1e6:g} s apart"
            what = f"{part.id} was begun {early_s:.1f} s before what it follows; {apart}"
            self._book.find(invariant, "before_cause", what, part, cause)

    def _check_time(self, part: Part, delta: Kept) -> None:
        if part.event_time_us != delta.event_time_us:
            what = f"{part.id} is not at the event time at which segment {delta.as_of} ended"
            self._book.find("3", "event_time", what, part, delta)
