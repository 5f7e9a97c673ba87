"""What the suite lets memories see: a made-up stream in which each segment holds one fact that can be asked for by a
word that stands nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from adapters.memory import Interaction, Segment
from simulator.events import AnchorEvent, AnchorTask, ObservationEvent, Turn

STREAM: Final = "CONFORMANCE"
BEGIN_US: Final = 1_362_387_600_000_000
"""2013-03-04 09:00 UTC: no clock of today shows this year."""
SEGMENT_US: Final = 300_000_000
LARGE: Final = 200
"""Observations of a large segment, more than five minutes of a lifelog hold."""


class Fact(NamedTuple):
    """`word` stands in `text`, and in no other text of the suite; not in `question` either."""

    word: str
    text: str
    question: str


FACTS: Final = (
    Fact(
        "brannock",
        "I put the spare house key into the old Brannock tin on the top shelf of the larder.",
        "Where did I put the spare house key?",
    ),
    Fact(
        "veltheim",
        "My sister Anna takes the night train to Veltheim on Friday and stays there for a week.",
        "Which town does my sister Anna take the night train to?",
    ),
    Fact(
        "okonjo",
        "The doctor who looks after my left knee is called Okonjo and works beside the market.",
        "What is the doctor called who looks after my left knee?",
    ),
    Fact(
        "tamarind",
        "For the birthday cake of my neighbour Paul I need two spoons of tamarind and no sugar at all.",
        "What do I need for the birthday cake of my neighbour Paul?",
    ),
    Fact(
        "quillory",
        "The wooden boat by the lake will be painted in the colour Quillory before the summer begins.",
        "Which colour will the wooden boat by the lake be painted in?",
    ),
    Fact(
        "hasselt",
        "I lent my green bicycle to Hasselt from the second floor, who brings it back on Sunday.",
        "Who did I lend my green bicycle to?",
    ),
    Fact(
        "ferrante",
        "The novel that our reading circle discusses in the library next month is one by Ferrante.",
        "Who wrote the novel that our reading circle discusses next month?",
    ),
    Fact(
        "zirconia",
        "My grandmother hid her ring with the zirconia behind the clock in the dining room.",
        "Which ring did my grandmother hide behind the clock in the dining room?",
    ),
)
"""What the segments hold, one each: segment n of a stream holds fact n, and after the last the first comes again."""

CHINESE: Final = Fact(
    "桂花茶", "我把奶奶送的桂花茶放在书房柜子的最上面一层了", "奶奶送的东西我放在书房柜子的哪里？"
)
TALK: Final = Fact("marrakesh", "", "Where shall we buy the carpet for the guest room?")
"""What stands in a conversation, and in no observation."""
UNKNOWN: Final = "xqvzt wrrgh plomf"
"""A question about nothing that was ever seen."""

_SMALL_TALK: Final = ("The kettle hums.", "Somebody laughs outside.", "Rain again.", "The door creaks.")


def segment(number: int, fact: Fact, *, stream: str = STREAM, observations: int = 4) -> Segment:
    """A closed segment of so many observations; its fact is the last but one, or the only one."""
    start_us = BEGIN_US + number * SEGMENT_US
    texts = [_SMALL_TALK[i % len(_SMALL_TALK)] for i in range(observations)]
    texts[max(0, observations - 2)] = fact.text
    step_us = SEGMENT_US // (observations + 1)
    return Segment(
        stream=stream,
        segment=number,
        day="DAY1",
        segment_id=number + 1,
        start_time_us=start_us,
        end_time_us=start_us + SEGMENT_US,
        observations=tuple(
            _observation(stream, number * LARGE + i, start_us + (i + 1) * step_us, text)
            for i, text in enumerate(texts)
        ),
    )


def segments(count: int, stream: str = STREAM, facts: Sequence[Fact] = FACTS) -> list[Segment]:
    """The first segments of a stream."""
    return [segment(number, facts[number % len(facts)], stream=stream) for number in range(count)]


def talk(name: str, event_time_us: int) -> Interaction:
    """A finished conversation in which `TALK.word` is said."""
    turns = (
        Turn(role="user", text=TALK.question),
        Turn(
            role="assistant", text="We shall buy the carpet for the guest room in Marrakesh, as you decided."
        ),
    )
    return Interaction(id=name, turns=turns, event_time_us=event_time_us)


def anchors(stream: str, seen: Sequence[Segment]) -> tuple[AnchorEvent, ...]:
    """What a privileged system is handed: the facts of these segments, each asked for by its question."""
    return tuple(
        AnchorEvent(
            id=f"anchor/{s.segment}",
            run="conformance",
            stream=stream,
            event_time_us=s.end_time_us,
            anchor=f"{stream}/s{s.segment}/e0",
            segment=s.segment,
            evidence_id="e0",
            evidence_statement=fact.text,
            evidence_type="stated",
            subject="the wearer",
            initial_task=AnchorTask(user_request=fact.question, expected_behavior=fact.text),
            followup_task=AnchorTask(user_request=fact.question, expected_behavior=fact.text),
        )
        for s in seen
        for fact in (*FACTS, CHINESE)
        if any(o.text == fact.text for o in s.observations)
    )


def _observation(stream: str, seq: int, event_time_us: int, text: str) -> ObservationEvent:
    return ObservationEvent(
        id=f"{stream}/{seq}",
        run="conformance",
        stream=stream,
        event_time_us=event_time_us,
        seq=seq,
        source="dialog",
        text=text,
        day="DAY1",
    )
