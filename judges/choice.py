"""Multiple choice: which option a reply names. An exact letter, read tolerantly; a reply that names none, or
several, is invalid and counted apart from a wrong one."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

LETTERS: Final = string.ascii_uppercase

_ALONE = re.compile(r"[\s*_`\"'(\[]*([A-Za-z])[\s*_`\"')\].:!,;]*")
_LEADING = re.compile(r"[\s*_`\"'(\[]*([A-Za-z])[*_`\"']*\s*(?:[.):\],;]|\s[-\u2013\u2014]\s|\n)")
_STATED = re.compile(
    r"\b(?:answer|option|choice|choose|pick|select)(?:\s+(?:is|would\s+be|must\s+be|option|choice|answer))*"
    r"\s*[:=]?\s*[*_`\"'(\[]*([A-Za-z])\b(?!['\u2019]\w)",
    re.IGNORECASE,
)
_STATED_CHINESE = re.compile(r"(?:答案|选项|选择|选)(?:是|为)?\s*[:(]?\s*([A-Za-z])(?![A-Za-z])")
_ALSO = re.compile(r"[)\].*]*\s*(?:and(?:\s+also)?|or|&|/|,|\+|和|或|、)\s*[(\[]?([A-Za-z])(?![\w'\u2019])")
_WORD_AFTER = re.compile(r"\s+(?!(?:because|since|as|and|or|is|was|for)\b)\w", re.IGNORECASE)
_CAPITAL = re.compile(r"(?<![\w'\u2019])([A-Z])(?![\w'\u2019])")
_MARKED = re.compile(r"\(([A-Za-z])\)|\*\*([A-Z])\*\*")


class Reading(msgspec.Struct, frozen=True):
    """What a reply says. `letter` is None where it is invalid, and `reason` says why."""

    letter: str | None
    reason: str = ""


Answered = Literal["right", "wrong", "invalid"]


def read_letter(reply: str, options: Sequence[str]) -> Reading:
    """The one option that a reply names. `options` are their texts without letters, A first.

    In this order: a letter alone (`B`, `(b)`, `**B**`); one stated as the answer (`Answer: B. because ...`); one in
    front (`B. in the drawer`); one in brackets; the whole text of one option; a capital that stands alone (`I think
    B`). Wherever several options are named in the same way, the reply is invalid: it is not for us to choose.
    """
    text = unicodedata.normalize("NFKC", reply).strip()
    allowed = LETTERS[: len(options)]
    if not text:
        return Reading(None, "empty reply")
    if match := _ALONE.fullmatch(text):
        return _one({match[1].upper()}, allowed)
    if stated := _stated(text, allowed):
        return _one(stated, allowed)
    if (match := _LEADING.match(text)) and (match[1].upper() in allowed or match[1] not in "Ii"):
        return _one({match[1].upper(), *_following(text, match.end(1), allowed)}, allowed)
    if several := _following(text, 1, allowed) if text[0].upper() in allowed else set():
        return _one({text[0].upper(), *several}, allowed)
    if marked := {(a or b).upper() for a, b in _MARKED.findall(text)} & set(allowed):
        return _one(marked, allowed)
    plain = _plain(text)
    if same := [letter for letter, option in zip(allowed, options, strict=True) if _plain(option) == plain]:
        return _one(set(same), allowed)
    texts = dict(zip(allowed, map(_plain, options), strict=True))
    held = {letter: option for letter, option in texts.items() if _holds(plain, option)}
    # "on the top shelf" also holds the option "the shelf": what is within another that was named is not meant.
    named = {a for a, one in held.items() if not any(_holds(b, one) and b != one for b in held.values())}
    return _one(named or _capitals(text) & set(allowed), allowed)


def answered(reading: Reading, golden: str) -> Answered:
    """Right, wrong or invalid."""
    if reading.letter is None:
        return "invalid"
    return "right" if reading.letter == golden.upper() else "wrong"


def _stated(text: str, allowed: str) -> set[str]:
    found = set()
    for pattern in (_STATED, _STATED_CHINESE):
        for match in pattern.finditer(text):
            letter = match[1].upper()
            if _is_word(match[1], text[match.end(1) :]):
                continue
            found |= {letter, *_following(text, match.end(1), allowed)}
    return found


def _following(text: str, end: int, allowed: str) -> set[str]:
    """Further letters in an enumeration: `B and C`, `B, C`."""
    found: set[str] = set()
    while (match := _ALSO.match(text, end)) and match[1].upper() in allowed:
        if _is_word(match[1], text[match.end(1) :]):
            break
        found.add(match[1].upper())
        end = match.end(1)
    return found


def _is_word(letter: str, rest: str) -> bool:
    """Whether an A or I is the word, by what follows it: "Answer: A wooden kite" names no option by its letter."""
    return letter in "AaIi" and _WORD_AFTER.match(rest) is not None


def _capitals(text: str) -> set[str]:
    """Capitals that stand alone, but for the words A and I: an A counts only at the end of something."""
    return {m[1] for m in _CAPITAL.finditer(text) if m[1] != "I" and not _is_word(m[1], text[m.end(1) :])}


def _one(letters: set[str], allowed: str) -> Reading:
    if not letters:
        return Reading(None, "names no option")
    if len(letters) > 1:
        return Reading(None, f"names several options: {', '.join(sorted(letters))}")
    letter = next(iter(letters))
    return Reading(letter) if letter in allowed else Reading(None, f"names {letter}, which is no option")


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()))


def _holds(text: str, option: str) -> bool:
    return bool(option) and f" {option} " in f" {text} "
