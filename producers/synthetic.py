"""Synthetic lifelogs: seeded, of any size, in the release layout too. What they say is in `vocabulary.toml`.

The same options give the same dataset on every Python version: random numbers come from
`random.Random.random()` alone, whose sequence for an integer seed is guaranteed, and the seeds from SHA-256.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Sequence
from importlib import resources
from string import Formatter
from typing import TypeVar

import msgspec

from producers.lifelog import (
    DAY1_US,
    DAY_US,
    SEGMENT_US,
    Dataset,
    Lifelog,
    RawObservation,
    Report,
    SegmentSpan,
    spread_us,
)
from producers.seeded import PREFIX, seeded
from simulator.errors import ConfigError
from simulator.events import AnchorEvent, AnchorTask, Source

__all__ = ["SyntheticOptions", "synthesise"]

_VERSION = 1  # part of the digest: raise it when the same options give another dataset
_WINDOWS = 288  # five-minute windows of a day
_MORNING = 108  # days begin at 09:00 if they are short enough
_COMPANIONS = 5
_DIALOG_SHARE = 0.45  # as in EgoLife, where 55,600 of 124,856 observations are speech
T = TypeVar("T")


class _Setting(msgspec.Struct, frozen=True):
    """What goes on in a segment."""

    verbs: tuple[str, ...]
    things: tuple[str, ...]
    topics: tuple[str, ...]


class _Fact(msgspec.Struct, frozen=True):
    """A piece of evidence with the lines that show it and its tasks; its slots are filled for each
    telling."""

    id: str
    type: str
    statement: str
    lines: tuple[str, ...]
    initial_task: AnchorTask
    followup_task: AnchorTask
    slots: dict[str, tuple[str, ...]]


class _Vocabulary(msgspec.Struct, frozen=True):
    names: tuple[str, ...]
    qualities: tuple[str, ...]
    places: tuple[str, ...]
    descriptions: tuple[str, ...]
    dialogs: tuple[str, ...]
    settings: tuple[_Setting, ...]
    facts: tuple[_Fact, ...]


_WORDS = msgspec.convert(
    tomllib.loads(resources.files("producers").joinpath("vocabulary.toml").read_text("utf-8")), _Vocabulary
)
_LONGEST_FACT = max(len(fact.lines) for fact in _WORDS.facts)


class SyntheticOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much to make. `anchors_per_day` is per wearer; each needs up to three lines of its segment.
    Raises ConfigError for numbers that don't fit together."""

    seed: int = 0
    wearers: int = 2
    days: int = 1
    segments_per_day: int = 24
    observations_per_segment: int = 40
    anchors_per_day: int = 8

    def __post_init__(self) -> None:
        for name, least in (
            ("wearers", 1),
            ("days", 1),
            ("segments_per_day", 1),
            ("observations_per_segment", 1),
        ):
            if getattr(self, name) < least:
                raise ConfigError(f"synthetic lifelog: {name} must be at least {least}")
        if self.segments_per_day > _WINDOWS:
            raise ConfigError(f"synthetic lifelog: segments_per_day must be at most {_WINDOWS}, a whole day")
        most = self.observations_per_segment // _LONGEST_FACT * self.segments_per_day
        if not 0 <= self.anchors_per_day <= most:
            raise ConfigError(
                f"synthetic lifelog: anchors_per_day must be between 0 and {most} for "
                f"{self.segments_per_day} segments of {self.observations_per_segment} observations"
            )


def _shuffled(items: Sequence[T], random: Callable[[], float]) -> list[T]:
    return [item for _, item in sorted(((random(), item) for item in items), key=lambda pair: pair[0])]


def stream_name(wearer: int) -> str:
    """The stream of wearer 0, 1 ...: `W01_ADA`, `W02_BORIS` ...; the number keeps them distinct."""
    return f"W{wearer + 1:02d}_{_WORDS.names[wearer % len(_WORDS.names)].upper()}"


def _compiled(template: str) -> tuple[str, Callable[[tuple[str, ...]], tuple[str, ...]]]:
    """A template as a %-format and what picks its values from `_FIELDS`: half the time of `str.format`."""
    fields = [field for _, field, _, _ in Formatter().parse(template) if field]
    numbers = [_FIELDS.index(field) for field in fields]
    pattern = template.replace("%", "%%").format(**dict.fromkeys(_FIELDS, "%s"))
    return pattern, lambda values: tuple([values[number] for number in numbers])


_FIELDS = ("name", "other", "verb", "thing", "quality", "topic", "where")
_DESCRIPTIONS = tuple(_compiled(template) for template in _WORDS.descriptions)
_DIALOGS = tuple(_compiled(template) for template in _WORDS.dialogs)


def _lines(
    setting: _Setting, people: Sequence[str], count: int, random: Callable[[], float]
) -> list[tuple[Source, str]]:
    """`count` lines of what goes on: descriptions by the wearer and dialog between people."""
    verbs, things, topics = setting.verbs, setting.things, setting.topics
    qualities, places = _WORDS.qualities, _WORDS.places
    lines: list[tuple[Source, str]] = []
    for _ in range(count):
        first = int(random() * len(people))
        name = people[first]
        other = people[(first + 1 + int(random() * (len(people) - 1))) % len(people)]
        verb = verbs[int(random() * len(verbs))]
        thing = things[int(random() * len(things))]
        quality = qualities[int(random() * len(qualities))]
        topic = topics[int(random() * len(topics))]
        where = places[int(random() * len(places))].replace("{name}", other)
        kind = random()
        source: Source
        if kind < _DIALOG_SHARE:
            source = "dialog"
            pattern, pick = _DIALOGS[int(kind / _DIALOG_SHARE * len(_DIALOGS))]
        else:
            source = "description"
            share = (kind - _DIALOG_SHARE) / (1 - _DIALOG_SHARE)
            pattern, pick = _DESCRIPTIONS[int(share * len(_DESCRIPTIONS))]
        lines.append((source, pattern % pick((name, other, verb, thing, quality, topic, where))))
    return lines


class _Told(msgspec.Struct, frozen=True):
    """A fact with its slots filled."""

    fact: _Fact
    subject: str
    words: dict[str, str]

    def fill(self, text: str) -> str:
        """The text with the slots' words; the first letter of a line or of what is said is upper case."""
        filled = text.format(**self.words)
        head, mark, said = (
            filled.partition(": ") if text.startswith("{") and "}: " in text else ("", "", filled)
        )
        return f"{head}{mark}{said[:1].upper()}{said[1:]}"

    def task(self, task: AnchorTask) -> AnchorTask:
        """The task with the slots' words."""
        request, expected = self.fill(task.user_request), self.fill(task.expected_behavior)
        return AnchorTask(user_request=request, expected_behavior=expected)


def _tell(fact: _Fact, wearer: str, companions: Sequence[str], random: Callable[[], float]) -> _Told:
    people = (wearer, *companions)
    first = int(random() * len(people))
    who = people[first]
    other = companions[int(random() * len(companions))] if first == 0 else wearer
    words = {slot: choices[int(random() * len(choices))] for slot, choices in fact.slots.items()}
    return _Told(
        fact,
        f"{who} (self)" if who == wearer else who,
        {**words, "wearer": wearer, "who": who, "other": other},
    )


def _lifelog(options: SyntheticOptions, wearer: int) -> tuple[Lifelog, list[AnchorEvent]]:
    stream, me = stream_name(wearer), _WORDS.names[wearer % len(_WORDS.names)]
    random = seeded(f"{options.seed}/{stream}").random
    companions = _shuffled([name for name in _WORDS.names if name != me], random)[:_COMPANIONS]
    people = [me, *companions]
    observations: list[RawObservation] = []
    spans: list[SegmentSpan] = []
    anchors: list[AnchorEvent] = []
    first_window = min(_MORNING, _WINDOWS - options.segments_per_day)
    count = options.observations_per_segment
    facts: list[_Fact] = []
    for number in range(options.days):
        day, day_us = f"DAY{number + 1}", DAY1_US + number * DAY_US
        day_first_seq = len(observations)
        told_in = _anchors_of_segments(options, random)
        for segment_id in range(options.segments_per_day):
            start = day_us + (first_window + segment_id) * SEGMENT_US
            first_seq, segment = len(observations), len(spans)
            setting = _WORDS.settings[int(random() * len(_WORDS.settings))]
            told = []
            for _ in range(told_in[segment_id]):
                if not facts:
                    facts = _shuffled(_WORDS.facts, random)
                told.append(_tell(facts.pop(), me, companions, random))
            lines = _lines(setting, people, count - sum(len(t.fact.lines) for t in told), random)
            lines, places = _weave(lines, told, random)
            for position, (source, text) in enumerate(lines):
                index = first_seq - day_first_seq + position
                at = spread_us(start, start + SEGMENT_US, position, count)
                observations.append(RawObservation(at, source, text, day, index))
            spans.append(
                SegmentSpan(day, segment_id, start, start + SEGMENT_US, first_seq, first_seq + count - 1)
            )
            for ordinal, (one, at_lines) in enumerate(zip(told, places, strict=True)):
                seqs = tuple(first_seq + place for place in at_lines)
                anchors.append(_anchor(stream, segment, ordinal, start + SEGMENT_US, one, seqs))
    return Lifelog(stream, observations, spans), anchors


def _anchors_of_segments(options: SyntheticOptions, random: Callable[[], float]) -> list[int]:
    """How many anchors each segment of a day has: spread over different segments first."""
    told_in = [0] * options.segments_per_day
    order: list[int] = []
    for _ in range(options.anchors_per_day):
        if not order:
            order = _shuffled(range(options.segments_per_day), random)
        told_in[order.pop()] += 1
    return told_in


def _weave(
    lines: list[tuple[Source, str]], told: Sequence[_Told], random: Callable[[], float]
) -> tuple[list[tuple[Source, str]], list[list[int]]]:
    """Put the lines of each fact, in their order and close together, between the others; and where they
    went."""
    slots: list[list[tuple[int, Source, str]]] = [[] for _ in range(len(lines) + 1)]
    for which, one in enumerate(told):
        at = int(random() * len(slots))
        for line in one.fact.lines:
            source: Source = "dialog" if line.startswith("{") and "}: " in line else "description"
            slots[min(at, len(lines))].append((which, source, one.fill(line)))
            at += int(random() * 3)
    woven: list[tuple[Source, str]] = []
    places: list[list[int]] = [[] for _ in told]
    for position, slot in enumerate(slots):
        for which, source, text in slot:
            places[which].append(len(woven))
            woven.append((source, text))
        if position < len(lines):
            woven.append(lines[position])
    return woven, places


def _anchor(
    stream: str, segment: int, ordinal: int, end_us: int, told: _Told, seqs: tuple[int, ...]
) -> AnchorEvent:
    fact, opaque = told.fact, f"{stream}/s{segment}/e{ordinal}"
    return AnchorEvent(
        id=f"{opaque}/anchor",
        run="",
        stream=stream,
        event_time_us=end_us,
        anchor=opaque,
        segment=segment,
        evidence_id=f"{told.words['who'].lower()}_{fact.id}_{segment}_{ordinal}",
        evidence_statement=told.fill(fact.statement),
        evidence_type=fact.type,
        subject=told.subject,
        initial_task=told.task(fact.initial_task),
        followup_task=told.task(fact.followup_task),
        supporting_seqs=seqs,
    )


def synthesise(options: SyntheticOptions) -> Dataset:
    """Make the dataset: `segments_per_day` consecutive five-minute segments a day, each with exactly
    `observations_per_segment` observations; wearers are independent of how many there are."""
    report = Report()
    lifelogs: dict[str, Lifelog] = {}
    anchors: list[AnchorEvent] = []
    for wearer in range(options.wearers):
        lifelog, told = _lifelog(options, wearer)
        lifelogs[lifelog.stream] = lifelog
        anchors.extend(told)
        report.counts["observations"] += len(lifelog.observations)
        report.counts["segments"] += len(lifelog.segments)
    supporting = sum(len(anchor.supporting_seqs) for anchor in anchors)
    report.counts.update(
        anchors=len(anchors),
        supporting_observations=supporting,
        supporting_matched=supporting,
        anchors_without_match=0,
    )
    stated = ",".join(f"{name}={getattr(options, name)}" for name in options.__struct_fields__)
    digest = hashlib.sha256(f"{_VERSION}/{stated}".encode()).hexdigest()
    return Dataset("synthetic", PREFIX + stated, lifelogs, anchors, report, digest)
