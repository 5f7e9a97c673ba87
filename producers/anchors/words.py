"""Which words of a statement are distinctive in its stream, and which of them a text gives away. Pure.

A *unit* is an English word without its ending, or two neighbouring Chinese characters (there are no spaces to cut
Chinese words at). Function words, and Chinese pairs with a function character, are no units. A unit is *distinctive*
for evidence if at most a tenth of the stream's other segments have it: a more frequent one hardly says where to look,
while a rarer one leaves less than a tenth of the stream, so that a lexical search finds the evidence by it alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

COMMON_SHARE: Final = 0.1
"""A unit in more than this share of the other segments is not distinctive."""

_RUN = re.compile(r"[A-Za-z0-9_]+|[\u4e00-\u9fff]+")

# Articles, pronouns, prepositions, conjunctions, auxiliaries, the pieces of contractions, numbers up to ten, and what
# statements say of how something is known or how often it is so. None of them tells what the evidence is.
_ENGLISH: Final = """
    a an the this that these those such same other another any some every each either neither both all none no not nor
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
    herself it its itself they them their theirs themselves who whom whose which what when where why how one ones
    someone somebody something anyone anybody anything everyone everybody everything nobody nothing
    about above across after against along among around as at before behind below beside besides between beyond by
    despite down during except for from in inside into like near of off on onto out outside over past per since through
    to toward towards under until up upon via with within without
    and but or so yet if because although though while whereas unless whether than then else
    am is are was were be been being do does did done doing have has had having can could may might must shall should
    will would ought cannot let lets go goes going went gone come comes get gets got getting make makes made making
    take takes took keep keeps put puts give gives gave use uses used
    ve ll re don doesn didn isn aren wasn weren hasn haven hadn won wouldn shouldn couldn mustn ain
    zero two three four five six seven eight nine ten first second last next
    very too also just only even still already again ever never always usually often sometimes rather quite really here
    there now more most less least much many few little lot enough own well away back
    say says said saying tell tells told ask asks asked want wants wanted like likes liked prefer prefers preferred need
    needs needed plan plans planned think thinks thought know knows knew known believe believes find finds found feel
    feels felt mention mentions mentioned suggest suggests suggested recommend recommends seem seems
    person people thing things way time times kind
"""
_FUNCTION_WORDS: Final = frozenset(_ENGLISH.split())
_FUNCTION_CHARACTERS: Final = frozenset(
    "的了是在我你他她它们这那有和与也就都不没很会要说去来到把被让给对从向为以及或但而且如果因所之其吗呢吧啊呀哦嗯"
    "个些么什谁哪怎能可想得着过还再又才只每某各该此之于则即便请"
)


@lru_cache(maxsize=65_536)
def _unit(word: str) -> str:
    """An English word without its ending, so that `records`, `recorded` and `recording` are one; empty for one that is
    no unit."""
    word = word.lower()
    if len(word) < 2 or word in _FUNCTION_WORDS:
        return ""
    stem = word
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            stem = word.removesuffix(ending)
            if ending in ("ing", "ed") and len(stem) > 3 and stem[-1] == stem[-2] and stem[-1] not in "lsz":
                stem = stem[:-1]
            break
    if len(stem) > 3 and stem.endswith("e"):
        stem = stem[:-1]
    return f"{stem[:-1]}i" if len(stem) > 2 and stem.endswith("y") else stem


def units(text: str) -> frozenset[str]:
    """The distinct units of a text."""
    return frozenset(spelled(text))


def spelled(text: str) -> dict[str, str]:
    """The units of a text in its order, each with how it is first spelled there."""
    found: dict[str, str] = {}
    for run in dict.fromkeys(_RUN.findall(text)):  # a segment says most of its words many times
        if run.isascii():
            if unit := _unit(run):
                found.setdefault(unit, run)
        else:
            for pair in (run[i : i + 2] for i in range(len(run) - 1)):
                if _FUNCTION_CHARACTERS.isdisjoint(pair):
                    found.setdefault(pair, pair)
    return found


class Frequencies(msgspec.Struct, frozen=True):
    """In how many segments of a stream each unit occurs."""

    segments: int
    counts: Mapping[str, int]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Frequencies:
        """Count over the texts of a stream's segments."""
        counts: Counter[str] = Counter()
        number = 0
        for text in texts:
            counts.update(units(text))
            number += 1
        return cls(number, counts)

    def others(self, unit: str, own: frozenset[str]) -> int:
        """In how many segments it occurs beside the one whose units are `own`."""
        return self.counts.get(unit, 0) - (unit in own)

    def distinctive(self, some: frozenset[str], own: frozenset[str]) -> frozenset[str]:
        """Those units that at most `COMMON_SHARE` of the segments beside the one with the units `own` have."""
        most = COMMON_SHARE * max(self.segments - 1, 0)
        return frozenset(unit for unit in some if self.others(unit, own) <= most)


def similarity(one: str, other: str) -> float:
    """Share of the units of either text that both have, in [0, 1]; 0 where neither has any."""
    a, b = units(one), units(other)
    return len(a & b) / len(a | b) if a | b else 0.0
