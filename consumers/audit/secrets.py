"""Invariant 6, and what 5 says of texts: where evidence, gold behaviour and what was asked may be read.

What is looked for is found verbatim, but for capitals. A text of length n is indexed by its pieces of g characters
(g about n/2), and what is read is looked up at every g-th character: wherever the text occurs, one such piece lies
wholly in it. So the cost grows with what is read, and not with how many anchors there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from consumers.audit.certificate import Book, Kept, Place
from simulator.events import (
    AnchorEvent,
    AnyEvent,
    CommitEvent,
    CommittedEvent,
    DatasetReportEvent,
    DeltaEvent,
    FeedbackEvent,
    LaneFailedEvent,
    LaneRebuiltEvent,
    ObservationEvent,
    ProbeEvent,
    ResponseEvent,
    RunStartedEvent,
    Subject,
    TaskEvent,
    TrajectoryClosedEvent,
)
from simulator.log.protocol import StoredRecord

SHORTEST: Final = 8
"""Characters. Shorter texts prove nothing: anybody may say them."""
SENTENCE: Final = 40
"""Characters from which on nobody says the same by chance."""

_PIECES: Final = (16, 8, 4)


class TextFinder:
    """Finds which of many texts occur in a text."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._pieces: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for text in sorted({text.lower() for text in texts if len(text) >= SHORTEST}):
            size = next(size for size in _PIECES if 2 * size - 1 <= len(text))
            for start in range(size):
                self._pieces[size][text[start : start + size]].append(text)

    def find(self, text: str) -> set[str]:
        """Those that occur, in lower case."""
        found: set[str] = set()
        text = text.lower()
        for size, pieces in self._pieces.items():
            for start in range(0, len(text) - size + 1, size):
                for candidate in pieces.get(text[start : start + size], ()):
                    if candidate in text:
                        found.add(candidate)
        return found


class _Secret(NamedTuple):
    kind: Literal["evidence", "gold behaviour", "gold of a probe"]
    anchors: frozenset[str]


class Secrets:
    """What nobody may read too early. Keeps the anchors' texts, and which trajectories were told."""

    def __init__(self, started: RunStartedEvent, book: Book) -> None:
        self._book = book
        self._shared = started.isolation == "shared"
        self._privileged = frozenset(started.privileged)
        self._anchors: list[AnchorEvent] = []
        self._probes: list[ProbeEvent] = []
        self._secrets: dict[str, _Secret] = {}
        self._finder = TextFinder(())
        self._asked: dict[str, dict[str, set[str]]] = {}
        """What is asked, in lower case → T1 or T2 → whose anchor."""
        self._questions = TextFinder(())
        self._gold = TextFinder(())
        self._in_streams = TextFinder(())
        self._told: set[str] = set()
        """Trajectories to which feedback was given."""
        self._supporting: dict[tuple[str, int], set[str]] = defaultdict(set)

    def anchor(self, event: Subject) -> None:
        """Take an anchor or a probe; all are taken before what is searched."""
        if isinstance(event, ProbeEvent):
            self._probes.append(event)
            return
        self._anchors.append(event)
        for seq in event.supporting_seqs:
            self._supporting[event.stream, seq].add(event.anchor)

    def ready(self) -> None:
        """All anchors are there."""
        evidence: dict[str, set[str]] = defaultdict(set)
        behaviour: dict[str, set[str]] = defaultdict(set)
        for anchor in self._anchors:
            evidence[anchor.evidence_statement.lower()].add(anchor.anchor)
            for phase, task in (("T1", anchor.initial_task), ("T2", anchor.followup_task)):
                behaviour[task.expected_behavior.lower()].add(anchor.anchor)
                if len(task.user_request) >= SENTENCE:
                    asked = self._asked.setdefault(task.user_request.lower(), {"T1": set(), "T2": set()})
                    asked[phase].add(anchor.anchor)
        of_probes: dict[str, set[str]] = defaultdict(set)
        for probe in self._probes:
            if len(probe.question) >= SENTENCE:
                asked = self._asked.setdefault(probe.question.lower(), {"T1": set(), "T2": set()})
                asked["T1"].add(probe.anchor)
            for text in (probe.gold.answer, *probe.gold.memories):
                if len(text) >= SENTENCE:
                    of_probes[text.lower()].add(probe.anchor)
        gold = TextFinder(of_probes)
        for probe in self._probes:  # an option is in the question, and may be in another's
            for text in gold.find(probe.text):
                of_probes.pop(text, None)
        self._know_within()
        self._secrets = {
            text: _Secret("gold of a probe", frozenset(names)) for text, names in of_probes.items()
        }
        self._secrets |= {
            text: _Secret("gold behaviour", frozenset(names)) for text, names in behaviour.items()
        }
        self._secrets |= {text: _Secret("evidence", frozenset(names)) for text, names in evidence.items()}
        self._finder = TextFinder(self._secrets)
        self._questions = TextFinder(self._asked)
        self._in_streams = TextFinder((*self._secrets, *self._asked))
        self._gold = TextFinder(
            text
            for text, secret in self._secrets.items()
            if secret.kind != "evidence" and len(text) >= SENTENCE
        )

    def _know_within(self) -> None:
        """Who is asked a question knows the shorter ones that stand in it."""
        asked = TextFinder(self._asked)
        for anchor in self._anchors:
            for text in asked.find(anchor.initial_task.user_request):
                self._asked[text]["T1"].add(anchor.anchor)
            for text in asked.find(anchor.followup_task.user_request):
                self._asked[text]["T2"].add(anchor.anchor)
        for probe in self._probes:
            for text in asked.find(probe.text):
                self._asked[text]["T1"].add(probe.anchor)

    def observation(self, event: ObservationEvent, record: StoredRecord) -> None:
        """What a wearer says and sees holds no evidence statement (but where it supports that very evidence) and no
        gold. What is asked of the memory may be overheard as well: then it proves nothing."""
        for text in self._in_streams.find(event.text):
            self._asked.pop(text, None)
            secret = self._secrets.get(text)
            if secret is not None and secret.kind == "gold of a probe":  # what is asked about is in life
                del self._secrets[text]
                continue
            if secret is None or (
                secret.kind == "evidence"
                and self._supporting.get((event.stream, event.seq), set()) & secret.anchors
            ):
                continue
            self._book.find(
                "6",
                "revealed_early",
                f"observation {event.id} holds the {secret.kind} of {_names(secret.anchors)}",
                (event.id, Place.of(record)),
            )

    def overheard(self) -> None:
        """All observations are there."""
        self._questions = TextFinder(self._asked)

    def control(self, event: AnyEvent, record: StoredRecord) -> None:
        """Agents read all of the control topic."""
        texts: list[str] = []
        match event:
            case RunStartedEvent():
                texts += event.identity.values()
            case DatasetReportEvent():
                texts += event.oddities
            case TrajectoryClosedEvent() | LaneFailedEvent():
                texts.append(event.reason)
            case LaneRebuiltEvent():
                texts.append(event.difference)
            case _:
                return
        self._check(event.id, Place.of(record), "\n".join(texts), None)

    def task(self, event: TaskEvent, kept: Kept, anchor: str) -> None:
        """A task holds no evidence and no gold, but what its trajectory was told before T2."""
        told = anchor if event.phase == "T2" and event.trajectory in self._told else None
        self._check(event.id, kept.place, event.text, told)

    def feedback(self, event: FeedbackEvent, kept: Kept, anchor: str) -> None:
        """Feedback reveals what it reveals of its own anchor, and of no other. Fed before the other parts of
        trajectories."""
        self._told.add(event.trajectory)
        self._check(event.id, kept.place, event.text, anchor)

    def commit(self, event: CommitEvent, kept: Kept, anchor: str) -> None:
        """What the person says in a commit is what the person said; what the agent said is its own."""
        told = anchor if event.trajectory in self._told else None
        for turn in event.interaction:
            if turn.role == "user":
                self._check(event.id, kept.place, turn.text, told)

    def _check(self, name: str, place: Place, text: str, told: str | None) -> None:
        self._book.checked["6"] += 1
        for found in self._finder.find(text):
            secret = self._secrets.get(found)
            if secret is not None and told not in secret.anchors:
                self._book.lacks(
                    "6",
                    "revealed_early",
                    f"{name}, which agents read, holds the {secret.kind} of "
                    f"{_names(secret.anchors)} before any feedback told it",
                    (name, place),
                )

    def delta(self, event: DeltaEvent, record: StoredRecord) -> None:
        """The main memory knows of no conversation that was committed to a branch."""
        if self._shared:
            return
        self._book.checked["5"] += 1
        for written in event.records:
            for text in self._questions.find(written.text):
                if text in self._asked:
                    names = self._asked[text]["T1"] | self._asked[text]["T2"]
                    self._book.find(
                        "5",
                        "conversation_in_main",
                        f"{event.id} wrote record {written.id} with what was asked in a "
                        f"trajectory of {_names(names)}",
                        (event.id, Place.of(record)),
                    )

    def said(self, event: ResponseEvent | CommittedEvent, place: Place, anchor: str) -> None:
        """What an agent says or stores in one trajectory: nothing that was asked in another, no task that it was not
        given yet, and no gold behaviour word for word."""
        texts = [event.text] if isinstance(event, ResponseEvent) else [r.text for r in event.records]
        system = event.lane.partition("@")[0]
        given = ("T1", "T2") if isinstance(event, ResponseEvent) and event.phase == "R2" else ("T1",)
        knows_gold = system in self._privileged or event.trajectory in self._told
        for text in texts:
            if not self._shared:
                self._book.checked["5"] += 1
                for found in self._questions.find(text):
                    self._check_asked(event, place, self._asked.get(found), anchor, given)
            if not knows_gold:
                self._book.checked["6"] += 1
                for found in self._gold.find(text):
                    if (secret := self._secrets.get(found)) is None:
                        continue
                    self._book.lacks(
                        "6",
                        "gold_in_answer",
                        f"{event.id} holds the {secret.kind} of {_names(secret.anchors)} word for word, and "
                        "nobody told it",
                        (event.id, place),
                    )

    def _check_asked(
        self,
        event: ResponseEvent | CommittedEvent,
        place: Place,
        asked: dict[str, set[str]] | None,
        anchor: str,
        given: tuple[str, ...],
    ) -> None:
        if asked is None or any(anchor in asked[phase] for phase in given):
            return
        if any(anchor in names for names in asked.values()):
            self._book.lacks(
                "3",
                "foreseen_task",
                f"{event.id} holds the text of T2, which had not been asked",
                (event.id, place),
            )
        else:
            names = asked["T1"] | asked["T2"]
            self._book.lacks(
                "5",
                "foreign_conversation",
                f"{event.id} holds what was asked in another trajectory, of {_names(names)}",
                (event.id, place),
            )


def _names(anchors: Iterable[str]) -> str:
    first, *others = sorted(anchors)
    return f"{first} and {len(others)} more" if others else first
