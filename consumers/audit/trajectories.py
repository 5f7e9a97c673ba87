"""Invariants 3 and 4, and the order that 5 asks for in isolation `shared`: what follows what in each trajectory.

A trajectory keeps ids, causes, times and fingerprints of its parts, and is checked as a whole once all topics are
read: they have no order between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from consumers.audit.certificate import Book, Invariant, Kept, Place, fingerprint
from consumers.audit.form import Form
from consumers.audit.memory import ATTACHED_SKEW_US, SKEW_US, Memories
from consumers.audit.parts import Part, Told, name_of
from consumers.audit.verdicts import check_verdicts
from simulator.events import (
    CommitEvent,
    FeedbackEvent,
    ProbeEvent,
    ResponseEvent,
    RunStartedEvent,
    Subject,
    TaskEvent,
    TrajectoryClosedEvent,
    TrajectoryEvent,
    Turn,
)
from simulator.log.protocol import StoredRecord
from simulator.protocols.subjects import basis_of, metrics_of
from simulator.protocols.trajectory import STEPS, trajectory_id

_TASKS: Final = ("T1", "T2", "T2-uncommitted")


class Trajectories:
    """One for each system and anchor."""

    def __init__(self, started: RunStartedEvent, book: Book, form: Form, memories: Memories) -> None:
        self._started = started
        self._book = book
        self._form = form
        self._memories = memories
        self._only = frozenset(started.only)
        self.told: dict[str, Told] = {}
        self._turns: dict[str, list[str]] = defaultdict(list)
        """Lane → its trajectories in the order of their T1."""

    def anchor(self, anchor: Subject) -> None:
        """Each system has a trajectory of each anchor, but in a retry."""
        for system in self._started.systems:
            lane = f"{system}@{anchor.stream}"
            name = trajectory_id(lane, anchor)
            if not self._only or name in self._only:
                self.told[name] = Told(name, lane, anchor)

    def of(self, event: TrajectoryEvent | TrajectoryClosedEvent, place: Place) -> Told | None:
        """The trajectory of an event; None, and a finding, where it is of none."""
        told = self.told.get(event.trajectory)
        if told is None or told.lane != event.lane:
            self._book.find(
                "form",
                "trajectory",
                f"{event.id} is of {event.trajectory}, and no anchor gives {event.lane} such a trajectory",
                (event.id, place),
            )
            return None
        return told

    def part(self, told: Told, event: TrajectoryEvent, record: StoredRecord) -> Part:
        """Take one part of a trajectory."""
        name = name_of(event)
        part = Part.of(event, record, failed=getattr(event, "error", None) is not None)
        match event:
            case TaskEvent():
                part.text, part.segment = fingerprint(event.text), event.segment
                if name == "T1" and name not in told.parts:
                    turns = self._turns[event.lane]
                    self._memories.turns[told.id] = len(turns)
                    turns.append(told.id)
            case ResponseEvent():
                part.text = fingerprint(event.text)
            case FeedbackEvent():
                part.text, part.type = fingerprint(event.text), event.type
            case CommitEvent():
                part.turns = tuple(_turn(turn) for turn in event.interaction)
                part.keeps_uncommitted = event.keep_uncommitted
        self._book.checked["4"] += 1
        if event.step != STEPS.get(name):
            self._book.find("4", "step", f"{event.id} is a {name} at step {event.step}", part)
        if name not in STEPS:
            self._book.find("4", "unasked", f"{event.id}: no trajectory has a {name}", part)
        elif name in told.parts:
            self._book.find("4", "twice", f"{told.id} has two of {name}", part, told.parts[name])
        else:
            told.parts[name] = part
        return part

    def closed(self, event: TrajectoryClosedEvent, record: StoredRecord) -> None:
        """Take the end of a trajectory. Whether it fits the parts is checked at the end."""
        told, place = self.of(event, Place.of(record)), Place.of(record)
        if told is None:
            return
        self._book.checked["4"] += 1
        if told.closed_at is not None:
            self._book.find(
                "4", "twice", f"{told.id} was closed twice", (event.id, place), (event.id, told.closed_at)
            )
            return
        told.closed, told.closed_at = event, place
        if event.anchor != told.anchor.anchor:
            self._book.find(
                "4", "closed_anchor", f"{event.id} names another anchor, {event.anchor}", (event.id, place)
            )

    def close(self, *, ended: bool) -> None:
        """Check every trajectory as a whole."""
        is_open = 0
        for told in self.told.values():
            self._check_parts(told)
            self._check_chain(told, ended=ended)
            self._check_texts(told)
            self._check_closed(told, ended=ended)
            delta = self._memories.delta_of(told.lane, told.anchor.segment)
            check_verdicts(
                told, self._book, delta, self._failed_delta(told), self._started.ablate_commit, ended=ended
            )
            is_open += told.closed is None
        if is_open and not ended:
            self._book.leave_open(f"{is_open} of {len(self.told)} trajectories have not ended")
        if self._started.isolation == "shared":
            for lane, turns in self._turns.items():
                self._check_turns(lane, turns)

    def _failed_delta(self, told: Told) -> bool:
        return (told.lane, told.anchor.segment) in self._memories.errors

    def _check_parts(self, told: Told) -> None:
        """What holds for every part by itself."""
        delta = self._memories.delta_of(told.lane, told.anchor.segment)
        find, segment = self._book.find, told.anchor.segment
        for name, part in told.parts.items():
            self._book.checked["3"] += 1
            if part.as_of != segment:
                find(
                    "3",
                    "as_of",
                    f"{part.id} says that it is as of segment {part.as_of}; its trajectory stands on {segment}",
                    part,
                )
            if part.segment not in (None, segment):
                find("3", "task_segment", f"{part.id} is about segment {part.segment}, not {segment}", part)
            if part.event_time_us != told.at_us(delta):
                find(
                    "3", "event_time", f"{part.id} is not at the event time at which its segment ended", part
                )
            if name == "commit" and part.keeps_uncommitted != self._started.ablate_commit:
                find(
                    "5",
                    "uncommitted_branch",
                    f"{part.id} keeps a branch without the commit, or should and does not",
                    part,
                )

    def _check_chain(self, told: Told, *, ended: bool) -> None:
        """Each part is there if, and only if, what it answers is there and did not fail; it names that as its cause,
        and is no older."""
        parts, book = told.parts, self._book
        attached = self._form.is_attached(told.lane)
        skew_us = ATTACHED_SKEW_US if attached else SKEW_US
        closed = told.closed
        given_up = closed is not None and bool(closed.reason) and attached
        for name, due, causes, why in self._follows(told):
            invariant: Invariant = "3" if name == "T1" else "4"
            part = parts.get(name)
            book.checked[invariant] += 1
            if part is None:
                if due and not given_up and (ended or closed is not None):
                    book.find(
                        invariant,
                        "missing",
                        f"{told.id} has no {name}, though {why}",
                        f"{told.id}/{name}",
                        *(cause for cause in causes if cause is not None),
                    )
                continue
            if not due:
                rule = "task_without_delta" if name == "T1" else "unasked"
                book.lacks(
                    invariant, rule, f"{part.id} is there, and nothing asked for it: not so that {why}", part
                )
                continue
            known = [cause for cause in causes if cause is not None]
            if part.causes != tuple(cause.id for cause in known):
                book.find(
                    invariant,
                    "causes",
                    f"{part.id} has causes {part.causes}, not what it follows",
                    part,
                    *known,
                )
            began_us = part.began_us if part.began_us is not None else part.wall_us
            for cause in known:
                if began_us is not None and cause.wall_us is not None and began_us < cause.wall_us - skew_us:
                    early_s = (cause.wall_us - began_us) / 1e6
                    book.find(
                        invariant,
                        "before_cause",
                        f"{part.id} was begun {early_s:.1f} s before what it follows; clocks "
                        f"may be {skew_us / 1e6:g} s apart",
                        part,
                        cause,
                    )

    def _follows(self, told: Told) -> Iterator[tuple[str, bool, tuple[Kept | None, ...], str]]:
        """Part, whether it is due, what it follows, and when it is due in words."""
        parts, alive = told.parts, told.alive
        delta = self._memories.delta_of(told.lane, told.anchor.segment)
        ieu = told.verdicts.get("ieu")
        judged = ieu is not None and ieu.outcome != "unjudged"
        revise = "F" in parts and parts["F"].type == "revise"
        after = ("R_F",) if revise else ("R1",)
        last = (parts.get("R_F"),) if revise else (parts.get("R1"), ieu)
        ablated = self._started.ablate_commit
        yield "T1", delta is not None and not self._failed_delta(told), (delta,), "its lane's delta is there"
        yield "R1", "T1" in parts, (parts.get("T1"),), "T1 asks for it"
        if isinstance(
            told.anchor, ProbeEvent
        ):  # of which nothing else follows: what is there all the same is unasked
            for name in told.parts.keys() - {"T1", "R1"}:
                yield name, False, (), "it is about an anchor, and no probe"
            return
        yield "F", alive("R1") and judged, (parts.get("R1"), ieu), "R1 is there and judged"
        yield "R_F", revise, (parts.get("F"),), "F asks to revise"
        yield "commit", "F" in parts and all(map(alive, after)), last, "the last response before it is there"
        yield "committed", "commit" in parts, (parts.get("commit"),), "the commit asks for it"
        yield "T2", alive("committed"), (parts.get("committed"),), "the interaction is committed"
        yield "R2", "T2" in parts, (parts.get("T2"),), "T2 asks for it"
        yield (
            "T2-uncommitted",
            ablated and alive("committed"),
            (parts.get("committed"),),
            "the ablation asks for it",
        )
        yield (
            "R2-uncommitted",
            "T2-uncommitted" in parts,
            (parts.get("T2-uncommitted"),),
            "its T2 asks for it",
        )

    def _check_texts(self, told: Told) -> None:
        """What the person says is what the anchor and the judge gave, and the commit holds what was said."""
        parts, find, anchor = told.parts, self._book.find, told.anchor
        if isinstance(anchor, ProbeEvent):
            if "T1" in parts and parts["T1"].text != fingerprint(anchor.text):
                find("3", "task_text", f"{parts['T1'].id} does not ask what its probe asks", parts["T1"])
            return
        for name in _TASKS:
            task = anchor.initial_task if name == "T1" else anchor.followup_task
            if name in parts and parts[name].text != fingerprint(task.user_request):
                which = "initial" if name == "T1" else "follow-up"
                find(
                    "3", "task_text", f"{parts[name].id} does not ask its anchor's {which} task", parts[name]
                )
        feedback, ieu = parts.get("F"), told.verdicts.get("ieu")
        drafted = ieu.draft if ieu is not None else None
        if feedback is not None and ieu is not None and drafted not in (None, (feedback.type, feedback.text)):
            find(
                "4",
                "feedback_text",
                f"{feedback.id} does not say what the verdict on R1 drafted",
                feedback,
                ieu,
            )
        commit, t1, r1, r_f = parts.get("commit"), parts.get("T1"), parts.get("R1"), parts.get("R_F")
        if commit is None or t1 is None or r1 is None or feedback is None:
            return  # found by the chain
        said = [("user", t1.text), ("assistant", r1.text), ("user", feedback.text)]
        if feedback.type == "revise" and r_f is not None:
            said.append(("assistant", r_f.text))
        if commit.turns != tuple(said):
            find("4", "interaction", f"{commit.id} holds another conversation than {told.id} had", commit)

    def _check_closed(self, told: Told, *, ended: bool) -> None:
        closed, place, find = told.closed, told.closed_at, self._book.find
        if closed is None or place is None:
            if ended:
                find(
                    "4",
                    "not_closed",
                    f"the run has ended, and {told.id} was never closed",
                    f"{told.id}/closed",
                )
            return
        attached, ablated = self._form.is_attached(told.lane), self._started.ablate_commit
        at = (closed.id, place)
        whole = told.alive("R2") and (told.alive("R2-uncommitted") or not ablated)
        if isinstance(told.anchor, ProbeEvent):
            whole = told.alive("R1")
        if whole and closed.reason:
            find(
                "4",
                "closed_reason",
                f"{closed.id} says {closed.reason!r}, and yet the trajectory is whole",
                at,
            )
        elif not whole and not closed.reason:
            self._book.lacks(
                "4", "closed_reason", f"{closed.id} gives no reason, and the trajectory is not whole", at
            )
        unknown = [cause for cause in closed.causes if not self._form.knows(cause)]
        if unknown:
            self._book.lacks(
                "form", "causes", f"{closed.id} names causes that are not there: {', '.join(unknown)}", at
            )
        if attached and closed.reason:
            return  # given up: what came late is not in it
        alive = {name for name in told.parts if told.alive(name)}
        if self._memories.delta_of(told.lane, told.anchor.segment) is not None and not self._failed_delta(
            told
        ):
            alive.add("delta")
        if "ieu" in told.verdicts:
            alive.add("ieu")
        ieu = told.verdicts.get("ieu")
        asked = metrics_of(
            told.anchor, ieu.outcome if ieu is not None and "R1" in alive else "fail", ablate_commit=ablated
        )
        unjudged = tuple(metric for metric in asked if basis_of(metric) not in alive)
        if closed.unjudged != unjudged:
            self._book.lacks(
                "7",
                "closed_unjudged",
                f"{closed.id} says that {', '.join(closed.unjudged) or 'nothing'} can't be judged; "
                f"by its parts it is {', '.join(unjudged) or 'nothing'}",
                at,
            )

    def _check_turns(self, lane: str, turns: list[str]) -> None:
        """Isolation `shared`: one trajectory after the other, on every topic, and no ingest in between."""
        book = self._book
        newest: dict[str, Part] = {}
        for name in turns:
            told = self.told[name]
            book.checked["5"] += 1
            before = dict(newest)
            delta = self._memories.delta_of(lane, told.anchor.segment + 1)
            for part in told.parts.values():
                topic = part.place.topic
                earlier = before.get(topic)
                if earlier is not None and part.place.offset < earlier.place.offset:
                    book.find(
                        "5",
                        "interleaved",
                        f"{part.id} comes before {earlier.id}, though its trajectory began later: in "
                        "isolation shared one runs after the other",
                        part,
                        earlier,
                    )
                if topic not in newest or newest[topic].place.offset < part.place.offset:
                    newest[topic] = part
                if (
                    delta is not None
                    and delta.place.topic == topic
                    and delta.place.offset < part.place.offset
                ):
                    book.find(
                        "5",
                        "ingest_between",
                        f"{delta.id} comes before {part.id}: in isolation shared the replay waits "
                        "for all trajectories of a segment",
                        delta,
                        part,
                    )


def _turn(turn: Turn) -> tuple[str, bytes]:
    return turn.role, fingerprint(turn.text)
