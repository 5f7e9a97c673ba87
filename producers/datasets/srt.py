"""SubRip text → cues, losing no line: pure, no files.

Every non-blank line of the text comes out in exactly one place: the number of a cue, its time line, its text,
or what stood before the first cue. Our own parser and not the `srt` library: that one gives no line numbers,
leaves a following cue inside the text of a cue whose blank separator is missing, and keeps no place for stray
text. Where the files are clean, both read the same (a test compares them over the real files).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

Language = Literal["en", "zh", "both"]
Odd = Callable[[str, int, str], None]
"""Takes the name of an oddity, the 1-based line and the text there."""

_TIME = r"(\d{1,3}):(\d{1,2}):(\d{1,2})(?:[,.:](\d{1,6}))?"
_TIME_LINE = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}(?![,.:]?\d)(.*)", re.ASCII)
_NUMBER = re.compile(r"\s*\d+\s*", re.ASCII)
_NEWLINE = re.compile(r"\r\n|\n|\r")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_LATIN_WORD = re.compile("[A-Za-z]+")
_SPEAKER = re.compile(r"\s*([^:：;；\s][^:：;；]{0,29}?)\s*([:：;；])(.*)", re.DOTALL)

LONG_CUE_US = 60_000_000
HOUR_US = 3_600_000_000


class Cue(NamedTuple):
    """One cue. `line` is the 1-based line of its times; times are microseconds from the start of the file;
    `lines` are its non-blank lines, unchanged; `number` is None where it has none."""

    line: int
    number: str | None
    start_us: int
    end_us: int
    lines: tuple[str, ...]


class Parsed(NamedTuple):
    """All of a file: its cues in file order, and the (line, text) of what stood before the first of them."""

    cues: list[Cue]
    stray: list[tuple[int, str]]


def _microseconds(hours: str, minutes: str, seconds: str, fraction: str | None) -> int:
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1_000_000 + int((fraction or "").ljust(6, "0"))


def parse(text: str, odd: Odd) -> Parsed:
    """Read SubRip text. What is not as the format says is reported to `odd` and kept:
    `missing_separator`, `missing_number`, `unreadable_times` (the line stays as text), `text_after_times`,
    `blank_line_in_cue`, `text_before_first_cue`, `empty_cue`, `end_before_start`, `overlapping_cue`,
    `cue_over_a_minute`, `cue_at_an_hour_or_more`, `cue_of_one_line`, `cue_of_many_lines`, `out_of_order`."""
    cues: list[Cue] = []
    stray: list[tuple[int, str]] = []
    body: list[tuple[int, str]] = stray  # where text goes now; each entry is (line, text)
    open_cue: tuple[int, str | None, int, int] | None = None
    latest_start = latest_end = -1

    def close() -> None:
        nonlocal latest_start, latest_end
        if open_cue is None:
            return
        line, number, start, end = open_cue
        above = line
        for below, content in body:
            if below - above > 1:
                odd("blank_line_in_cue", below, content)
            above = below
        cue = Cue(line, number, start, end, tuple(content for _, content in body))
        first = cue.lines[0] if cue.lines else ""
        count = len(cue.lines)
        if count != 2:
            name = "empty_cue" if count == 0 else "cue_of_one_line" if count == 1 else "cue_of_many_lines"
            odd(name, line, first)
        if end < start:
            odd("end_before_start", line, first)
        if start < latest_start:
            odd("out_of_order", line, first)
        elif start < latest_end:
            odd("overlapping_cue", line, first)
        if end - start > LONG_CUE_US:
            odd("cue_over_a_minute", line, first)
        if start >= HOUR_US or end >= 2 * HOUR_US:
            odd("cue_at_an_hour_or_more", line, first)
        latest_start, latest_end = max(start, latest_start), max(end, latest_end)
        cues.append(cue)

    for line, content in enumerate(_NEWLINE.split(text), 1):
        if not content.strip():
            continue
        times = _TIME_LINE.fullmatch(content) if "-->" in content else None
        if times is None:
            if "-->" in content:
                odd("unreadable_times", line, content)
            body.append((line, content))
            continue
        number = None
        last = body[-1] if body else (0, "")
        is_line = open_cue is None or last[0] != open_cue[0]  # and not what followed the times on theirs
        if last[0] == line - 1 and is_line and _NUMBER.fullmatch(last[1]):
            number = body.pop()[1].strip()
        else:
            odd("missing_number", line, content)
        above = body[-1][0] if body else open_cue[0] if open_cue else 0
        if above and above == line - (2 if number is not None else 1):
            odd("missing_separator", line, content)
        close()
        parts = times.groups()
        open_cue = (line, number, _microseconds(*parts[:4]), _microseconds(*parts[4:8]))
        body = []
        if parts[8].strip():
            odd("text_after_times", line, parts[8].strip())
            body.append((line, parts[8].strip()))
    close()
    for line, content in stray:
        odd("text_before_first_cue", line, content)
    return Parsed(cues, stray)


def speaker(text: str) -> tuple[str, str, str]:
    """A line of dialog as (speaker, mark, what is said). Without a speaker, the first two are empty."""
    match = _SPEAKER.match(text)
    return (match[1], match[2], match[3]) if match else ("", "", text)


def has_han(text: str) -> bool:
    """Whether there is any Chinese character in it."""
    return _HAN.search(text) is not None


def _is_chinese(line: str) -> bool:
    """Whether what is said (the speaker left aside) is Chinese rather than English with a Chinese name in
    it."""
    said = speaker(line)[2]
    return len(_HAN.findall(said)) > len(_LATIN_WORD.findall(said))


def choose_text(lines: tuple[str, ...], language: Language) -> str:
    """The text of a cue in one language, lines joined by a newline, ends stripped and nothing else changed.

    A cue of two lines is Chinese, then English, by position, unless its first line alone is English. In a
    longer cue each line counts by its own characters. Where the language asked for isn't there, all lines are
    kept.
    """
    stripped = [line.strip() for line in lines]
    if language == "both" or len(stripped) < 2:
        chosen = stripped
    elif len(stripped) == 2 and (_is_chinese(stripped[0]) or not _is_chinese(stripped[1])):
        chosen = stripped[1:] if language == "en" else stripped[:1]
    else:
        wanted = [line for line in stripped if _is_chinese(line) == (language == "zh")]
        chosen = wanted if any(speaker(line)[2].strip() for line in wanted) else stripped
    return "\n".join(chosen)
