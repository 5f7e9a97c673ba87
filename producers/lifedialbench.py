"""Made-up LifeDialBench data: `synthetic:seed=1,histories=2,days=6` gives the content of a file of that form.

Wearers talk through their days in chunks of ten minutes. Among the small talk, facts come up (where something is kept,
when somebody comes by ...). Some are told once; some are told again on a later day, unchanged, so that whoever looks
into the future finds them twice; some change later, so that a memory which keeps the newest value alone answers a
question right on the day after and wrong at the end. Each question is due on the day after its evidence.

The same options give the same content on every Python version (see `producers.synthetic`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple, TypeVar

import msgspec

from producers.seeded import seeded
from simulator.errors import ConfigError

_VERSION = 1  # part of the digest: raise it when the same options give other content
_DAY1 = date(2025, 8, 16)
_MORNING = 9 * 60
_CHUNK_MINUTES = 10
_OPTIONS = 4
T = TypeVar("T")

_PEOPLE = ("Ada", "Boris", "Chloe", "Dmitri", "Esra", "Femi", "Greta", "Hugo")


class _Fact(NamedTuple):
    """How it is told, how it is asked about, and what it may be."""

    told: str
    asked: str
    values: tuple[str, ...]


_FACTS = (
    _Fact(
        "I put the spare key {value}.",
        "Where did {who} put the spare key?",
        (
            "under the blue pot",
            "in the sugar tin",
            "behind the clock",
            "inside the piano",
            "on the top shelf",
        ),
    ),
    _Fact(
        "{value} is the one coming for dinner on Sunday.",
        "Who did {who} say is coming for dinner on Sunday?",
        ("Aunt Marta", "the new neighbour", "my old teacher", "Cousin Pavel", "Doctor Lindqvist"),
    ),
    _Fact(
        "For the party I will cook {value}.",
        "What did {who} want to cook for the party?",
        ("lentil soup", "mushroom risotto", "fish stew", "stuffed peppers", "onion tart"),
    ),
    _Fact(
        "My train leaves at {value}.",
        "When does {who}'s train leave?",
        ("seven fifteen", "half past eight", "ten to nine", "noon", "a quarter past four"),
    ),
    _Fact(
        "We are painting the hall {value}.",
        "In which colour does {who} paint the hall?",
        ("pale green", "brick red", "sea blue", "lemon yellow", "plain grey"),
    ),
    _Fact(
        "The birthday present is {value}.",
        "What is the birthday present that {who} talked about?",
        ("a wooden kite", "a brass telescope", "a chess set", "a wool scarf", "an old atlas"),
    ),
    _Fact(
        "I signed up for {value}.",
        "What did {who} sign up for?",
        ("a pottery class", "a swimming course", "the choir", "a carpentry workshop", "an archery club"),
    ),
    _Fact(
        "The plant that needs water is {value}.",
        "Which plant did {who} say needs water?",
        ("the fern", "the lemon tree", "the big cactus", "the orchid", "the basil"),
    ),
)
_SMALL_TALK = (
    "Did you sleep well?",
    "The kettle is on.",
    "It looks like rain again.",
    "I can hear the tram from here.",
    "Pass me that cloth, please.",
    "We should tidy up a bit.",
    "That song is stuck in my head.",
    "Careful, it is hot.",
    "I will be right back.",
    "The light in here is lovely.",
    "Somebody left the door open.",
    "Let us sit down for a while.",
    "My feet hurt from walking.",
    "That smells good.",
    "No hurry, take your time.",
    "I have to charge my phone.",
)


class LifeDialOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much to make. `facts_per_day` are told on each day of a history, each with a question; `repeated` and
    `changed` are the percentages of facts that are told again unchanged, or with another value, on a later day. Raises
    ConfigError for numbers that don't fit together."""

    seed: int = 0
    histories: int = 2
    days: int = 6
    chunks_per_day: int = 8
    lines_per_chunk: int = 12
    facts_per_day: int = 4
    repeated: int = 40
    changed: int = 30

    def __post_init__(self) -> None:
        limits = {
            "histories": (1, 1_000),
            "days": (1, 365),
            "chunks_per_day": (1, 80),
            "lines_per_chunk": (2, 1_000),
            "facts_per_day": (1, min(self.chunks_per_day, len(_FACTS))),
            "repeated": (0, 100),
            "changed": (0, 100 - self.repeated),
        }
        for name, (least, most) in limits.items():
            if not least <= getattr(self, name) <= most:
                raise ConfigError(f"synthetic LifeDialBench: {name} must be between {least} and {most}")


def digest(options: LifeDialOptions) -> str:
    """SHA-256 over what the content follows from."""
    return hashlib.sha256(msgspec.json.encode(["lifedialbench", _VERSION, options])).hexdigest()


class _Telling(NamedTuple):
    """A fact told on a day in a chunk. `first`: it is what a question is asked about."""

    fact: int
    value: str
    day: int
    chunk: int
    first: bool


def synthesise(options: LifeDialOptions) -> list[dict[str, Any]]:
    """The content of a file: a list of histories."""
    return [_history(options, number) for number in range(options.histories)]


def _history(options: LifeDialOptions, number: int) -> dict[str, Any]:
    random = seeded(f"lifedialbench/{_VERSION}/{options.seed}/{number}").random
    wearer = _PEOPLE[number % len(_PEOPLE)]
    tellings = _tellings(options, random)
    times, chunks = [], []
    for day in range(options.days):
        for chunk in range(options.chunks_per_day):
            told = [t for t in tellings if (t.day, t.chunk) == (day, chunk)]
            times.append(_interval(day, chunk))
            chunks.append(_chunk(options, wearer, told, random))
    questions = [_question(wearer, telling, tellings, random) for telling in tellings if telling.first]
    for day in range(options.days):
        firsts = [telling for telling in tellings if telling.first and telling.day == day]
        if len(firsts) > 1:
            questions.append(_both(wearer, firsts[:2], tellings, random))
    name = f"W{number + 1:02d}_{wearer}"
    return {"history_name": name, "chat_time": times, "chat_history": chunks, "qa": questions}


def _tellings(options: LifeDialOptions, random: Callable[[], float]) -> list[_Telling]:
    """Each fact of each day, once as new, and again later as the options say. A fact comes up as new only where it has
    its day for itself: what was told that day about it is what the question is about."""
    tellings: list[_Telling] = []
    taken: set[tuple[int, int]] = set()
    for day in range(options.days):
        free = [fact for fact in range(len(_FACTS)) if (fact, day) not in taken]
        for fact in _shuffled(free, random)[: options.facts_per_day]:
            value = _pick(_FACTS[fact].values, random)
            taken.add((fact, day))
            tellings.append(_Telling(fact, value, day, int(random() * options.chunks_per_day), True))
            kind, later = random() * 100, day + 1 + int(random() * max(options.days - day - 1, 1))
            if later >= options.days or (fact, later) in taken or kind >= options.repeated + options.changed:
                continue
            if kind >= options.repeated:
                value = _pick([other for other in _FACTS[fact].values if other != value], random)
            taken.add((fact, later))
            tellings.append(_Telling(fact, value, later, int(random() * options.chunks_per_day), False))
    return tellings


def _chunk(
    options: LifeDialOptions, wearer: str, told: Sequence[_Telling], random: Callable[[], float]
) -> list[dict[str, str]]:
    company = _pick([person for person in _PEOPLE if person != wearer], random)
    lines = [
        {"speaker": wearer if random() < 0.5 else company, "content": _pick(_SMALL_TALK, random)}
        for _ in range(options.lines_per_chunk)
    ]
    for telling in told:
        text = _FACTS[telling.fact].told.format(value=telling.value)
        line = {"speaker": wearer, "content": text[:1].upper() + text[1:]}
        lines.insert(int(random() * (len(lines) + 1)), line)
    return lines


def _question(
    wearer: str, telling: _Telling, tellings: Sequence[_Telling], random: Callable[[], float]
) -> dict[str, Any]:
    _, ask, values = _FACTS[telling.fact]
    kind = random()
    if kind < 0.25:  # when it was said
        choices = [_interval(telling.day, chunk) for chunk in (0, 1, 2, 3) if chunk != telling.chunk]
        choices = [_interval(telling.day, telling.chunk), *choices[: _OPTIONS - 1]]
        text = f"When on {_date(telling.day)} did {wearer} talk about this: {ask.format(who=wearer)}"
        return _asked("time_query", text, choices, telling, random)
    later = [t.value for t in tellings if t.fact == telling.fact and t.value != telling.value]
    others = _shuffled([value for value in values if value != telling.value and value not in later], random)
    choices = [telling.value, *dict.fromkeys(later), *others][:_OPTIONS]
    said = "single_event" if kind < 0.7 else "event_detail"
    text = ask.format(who=wearer)
    if said == "event_detail":
        text = f"On {_date(telling.day)}, between {_interval(telling.day, telling.chunk)[12:]}: {text}"
    return _asked(said, text, choices, telling, random)


def _both(
    wearer: str, pair: Sequence[_Telling], tellings: Sequence[_Telling], random: Callable[[], float]
) -> dict[str, Any]:
    """A question about two events of one day, which needs both."""
    first, second = pair
    right = f"{first.value}; {second.value}"
    wrong = [
        f"{a}; {b}"
        for a in _FACTS[first.fact].values
        for b in _FACTS[second.fact].values
        if (a, b) != (first.value, second.value)
    ]
    asks = " ".join(_FACTS[t.fact].asked.format(who=wearer) for t in pair)
    question = _asked("multi_event", asks, [right, *_shuffled(wrong, random)[: _OPTIONS - 1]], first, random)
    question["evidence_date"] = [_interval(t.day, t.chunk) for t in pair]
    question["timescale"] = "day"
    return question


def _asked(
    kind: str, text: str, choices: Sequence[str], telling: _Telling, random: Callable[[], float]
) -> dict[str, Any]:
    """`choices`: the right one first."""
    shuffled = _shuffled(choices, random)
    letter = "ABCDEFGH"[shuffled.index(choices[0])]
    return {
        "question": text,
        "options": [f"{mark}. {option}" for mark, option in zip("ABCDEFGH", shuffled, strict=False)],
        "golden_option": letter,
        "answer": choices[0],
        "question_time": _date(telling.day + 1),
        "question_type": kind,
        "evidence_date": _interval(telling.day, telling.chunk),
        "timescale": "10min",
    }


def _date(day: int) -> str:
    return (_DAY1 + timedelta(days=day)).isoformat()


def _interval(day: int, chunk: int) -> str:
    start = _MORNING + chunk * _CHUNK_MINUTES
    ends = (f"{minute // 60:02d}:{minute % 60:02d}" for minute in (start, start + _CHUNK_MINUTES))
    return f"{_date(day)}, {'-'.join(ends)}"


def _pick(items: Sequence[T], random: Callable[[], float]) -> T:
    return items[int(random() * len(items))]


def _shuffled(items: Sequence[T], random: Callable[[], float]) -> list[T]:
    keyed = [(random(), place, item) for place, item in enumerate(items)]
    return [item for _, _, item in sorted(keyed, key=lambda key: key[:2])]
