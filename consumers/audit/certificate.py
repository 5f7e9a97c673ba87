"""What an audit gives: findings and a certificate, both data; and the book in which they are kept meanwhile."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Literal, Self

import msgspec

from consumers.rebuild import LaneRebuilds
from simulator.events import Event
from simulator.log.protocol import StoredRecord
from simulator.topics import wall_of

Invariant = Literal["form", "1", "2", "3", "4", "5", "6", "7"]
"""Of DESIGN; `form` for what all events have: ids, causes, place, run, key."""

INVARIANTS: Final[dict[Invariant, str]] = {
    "form": "every event is whole, in its place, and there once",
    "1": "observations in event-time order, gapless in sequence",
    "2": "one delta a segment, after its end; rebuilt, the same",
    "3": "tasks after their delta; answers rest on nothing newer",
    "4": "T1, R1, F, R_F, commit, T2 and R2 follow each other",
    "5": "nothing of one trajectory is visible elsewhere",
    "6": "evidence and gold behaviour stay unseen until revealed",
    "7": "one verdict for each trajectory and metric",
}

MOST_OF_A_RULE: Final = 100
"""Findings kept for each rule; the others are counted."""
MOST_OPEN: Final = 100


class Place(msgspec.Struct, frozen=True, order=True, gc=False):
    """Where a record is."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, record: StoredRecord) -> Place:
        """A record's place."""
        return cls(record.topic, record.partition, record.offset)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One violation. `rule` is its short name, `explanation` a sentence for a stranger, `events` the offending
    events' ids (the one that should not be so comes first), `records` where these are in the log."""

    invariant: Invariant
    rule: str
    explanation: str
    events: tuple[str, ...] = ()
    records: tuple[Place, ...] = ()


class Kept(msgspec.Struct, gc=False):
    """What is kept of one event. Wall times come from the record's headers, where it has them."""

    id: str
    place: Place
    causes: tuple[str, ...] = ()
    as_of: int | None = None
    event_time_us: int = 0
    began_us: int | None = None
    wall_us: int | None = None

    @classmethod
    def of(cls, event: Event, record: StoredRecord, **more: Any) -> Self:
        """What is kept of an event that its record stamped. `more`: fields of a kind of its own."""
        return cls(
            event.id,
            Place.of(record),
            event.causes,
            event.as_of,
            event.event_time_us,
            wall_of(record.headers, "began_us"),
            wall_of(record.headers),
            **more,
        )


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked, and what came of it. `checked`: invariant → how many things were held against it.
    `events`: topic → how many count. `digest` is that of the events on `digest_topics` (an order-independent
    sum, so that equal runs have equal digests on any log); `digest_left_out` says why others are not in it.
    `open`: what is not there yet, on a run that has not ended. `unproved`: what could not be checked, and why;
    `ignored`: what attached agents wrote that is no part of the run, and why.
    """

    run: str
    identity: dict[str, str]
    ended: bool
    events: dict[str, int]
    checked: dict[Invariant, int]
    digest: str
    digest_topics: tuple[str, ...]
    digest_left_out: dict[str, str]
    found: dict[Invariant, int] = {}
    """Invariant → how many violations there are, kept or not."""
    findings: tuple[Finding, ...] = ()
    not_shown: dict[str, int] = {}
    """Rule → findings beyond those that are kept."""
    open: tuple[str, ...] = ()
    open_not_shown: int = 0
    unproved: dict[str, int] = {}
    """Why → how often."""
    ignored: dict[str, int] = {}
    """Why → how often."""
    buried: int = 0
    """Records that could not be used; each is whole in the dead letters."""
    canaries: int = 0
    rebuilds: tuple[LaneRebuilds, ...] = ()
    """The lanes whose memory was built again, after a restart or by a new owner."""

    @property
    def sound(self) -> bool:
        """No invariant is broken."""
        return not self.findings

    @property
    def violations(self) -> int:
        """How many findings there are, shown or not."""
        return sum(self.found.values())

    def held_against(self, earlier: Certificate) -> Certificate:
        """With a finding more where an earlier certificate of the same ended run counted the same events, and their
        content has another digest by now: a text or an outcome was changed, which breaks no invariant."""
        counted = [(c.run, c.ended, [c.events.get(t) for t in c.digest_topics]) for c in (earlier, self)]
        if counted[0] != counted[1] or not self.ended or earlier.digest == self.digest:
            return self
        changed = Finding(
            invariant="form",
            rule="changed",
            explanation=f"the log has as many events as when it was first audited, and another digest: it was "
            f"{earlier.digest[:12]}. What one of them says was changed since",
        )
        found: dict[Invariant, int] = {**self.found, "form": self.found.get("form", 0) + 1}
        return msgspec.structs.replace(self, findings=(changed, *self.findings), found=found)


class Book:
    """Findings, counts and open things, while an audit is under way.

    `settled`: (topic, partition) → the offset before which everything rests on what is read as well. A record
    after it may rest on something that was read too early to be seen: what it lacks is open.
    """

    def __init__(self, settled: Mapping[tuple[str, int], int] | None = None) -> None:
        self.settled = settled
        self.findings: list[Finding] = []
        self.found: Counter[Invariant] = Counter()
        self.checked: Counter[Invariant] = Counter(dict.fromkeys(INVARIANTS, 0))
        self.unproved: Counter[str] = Counter()
        self.ignored: Counter[str] = Counter()
        self.open: list[str] = []
        self.open_not_shown = 0
        self.unsettled = 0
        """Records that came while the log was read, and rest on what was read too early to be seen."""
        self._of_rule: Counter[str] = Counter()

    @property
    def not_shown(self) -> dict[str, int]:
        """Rule → findings that are not kept."""
        return {rule: n - MOST_OF_A_RULE for rule, n in self._of_rule.items() if n > MOST_OF_A_RULE}

    def find(
        self, invariant: Invariant, rule: str, explanation: str, *events: Kept | tuple[str, Place] | str
    ) -> None:
        """A violation, with the events that show it."""
        self.found[invariant] += 1
        self._of_rule[rule] += 1
        if self._of_rule[rule] > MOST_OF_A_RULE:
            return
        kept = [
            (e.id, e.place) if isinstance(e, Kept) else (e, None) if isinstance(e, str) else e for e in events
        ]
        self.findings.append(
            Finding(
                invariant=invariant,
                rule=rule,
                explanation=explanation,
                events=tuple(name for name, _ in kept),
                records=tuple(place for _, place in kept if place is not None),
            )
        )

    def lacks(
        self,
        invariant: Invariant,
        rule: str,
        explanation: str,
        first: Kept | tuple[str, Place],
        *others: Kept | tuple[str, Place] | str,
    ) -> None:
        """An event rests on something that is not there: a violation, unless it may be there by now."""
        place = first.place if isinstance(first, Kept) else first[1]
        if self.is_settled(place):
            self.find(invariant, rule, explanation, first, *others)
        else:
            self.unsettled += 1

    def is_settled(self, place: Place) -> bool:
        """Whether all that this record rests on has been read, if it is there at all."""
        return self.settled is None or place.offset < self.settled.get((place.topic, place.partition), 0)

    def leave_open(self, what: str) -> None:
        """Something is not there yet."""
        if len(self.open) < MOST_OPEN:
            self.open.append(what)
        else:
            self.open_not_shown += 1


def fingerprint(text: str) -> bytes:
    """16 bytes that stand for a text: texts themselves are not kept."""
    return hashlib.sha256(text.encode()).digest()[:16]
