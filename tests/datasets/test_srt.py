"""SubRip text: no line is lost, every oddity is counted, and the languages are told apart."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import srt as srt_library
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.datasets.srt import Cue, Parsed, choose_text, parse, speaker

NEWLINE = re.compile(r"\r\n|\n|\r")


def read(text: str) -> tuple[Parsed, Counter[str]]:
    oddities: Counter[str] = Counter()
    parsed = parse(text, lambda name, line, content: oddities.update([name]))
    return parsed, oddities


def out_again(text: str, parsed: Parsed) -> list[str]:
    """The non-blank lines of a file, put together from what came out of it."""
    lines = NEWLINE.split(text)
    again = [content for _, content in parsed.stray]
    for cue in parsed.cues:
        if cue.number is not None:
            again.append(cue.number)
        times = lines[cue.line - 1]
        again.append(times)
        after = re.split(r"-->\s*\d+:\d+:\d+(?:[,.:]\d+)?", times, maxsplit=1)[1].strip()
        again.extend(cue.lines[1:] if after else cue.lines)
    return [line.strip() for line in again]


def assert_nothing_lost(text: str, parsed: Parsed) -> None:
    assert out_again(text, parsed) == [line.strip() for line in NEWLINE.split(text) if line.strip()]


def clock(us: int) -> str:
    ms = us // 1000
    return f"{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d},{ms % 1000:03d}"


text_lines = st.one_of(
    st.sampled_from(
        ["Jake: hello", "Jake:好", "其他人： 嗯", "Alice；OK", "42", "(Lyrics) la la", "Alice:", "a --> b"]
    ),
    st.text(st.characters(exclude_characters="\r\n"), min_size=1, max_size=12).filter(str.strip),
)
times_us = st.integers(0, 4 * 3_600_000).map(lambda ms: ms * 1000)
cues = st.tuples(
    times_us,
    times_us,
    st.lists(text_lines, max_size=20),
    st.integers(0, 2),  # blank lines after the cue
)


@given(st.lists(cues, max_size=8), st.sampled_from(["\n", "\r\n", "\r"]), st.lists(text_lines, max_size=2))
@settings(deadline=None)
def test_generated_cues_come_back_whole_whatever_separates_them(
    written: list[tuple[int, int, list[str], int]], newline: str, before: list[str]
) -> None:
    lines = [*before, ""]
    for number, (start, end, content, blanks) in enumerate(written, 1):
        lines += [str(number), f"{clock(start)} --> {clock(end)}", *content, *[""] * blanks]
    text = newline.join(lines)
    parsed, oddities = read(text)
    assert [(cue.start_us, cue.end_us, list(cue.lines)) for cue in parsed.cues] == [w[:3] for w in written]
    assert [content for _, content in parsed.stray] == before
    assert_nothing_lost(text, parsed)
    assert oddities["missing_separator"] == sum(not blanks for *_, blanks in written[:-1])
    assert oddities["empty_cue"] == sum(not content for _, _, content, _ in written)
    assert oddities["cue_of_one_line"] == sum(len(content) == 1 for _, _, content, _ in written)
    assert oddities["cue_of_many_lines"] == sum(len(content) > 2 for _, _, content, _ in written)
    assert oddities["text_before_first_cue"] == len(before)


fragments = st.sampled_from(
    [
        "1\n",
        "2",
        "\n",
        "\n\n",
        "00:00:01,000 --> 00:00:02,500",
        " ",
        "-->",
        "00:00:0",
        "Jake: 好",
        "\r\n",
        " X1:5",
        "\x0b",
    ]
)


@given(st.lists(fragments, max_size=40).map("".join))
@settings(deadline=None, max_examples=300)
def test_any_text_comes_out_line_by_line_in_order(text: str) -> None:
    parsed, _ = read(text)
    assert_nothing_lost(text, parsed)


def test_a_missing_separator_ends_the_cue() -> None:
    parsed, oddities = read(
        "1\n00:00:01,000 --> 00:00:02,000\nA: x\n2\n01:00:13,200 --> 01:00:14,000\nB: y\n"
    )
    assert parsed.cues == [
        Cue(2, "1", 1_000_000, 2_000_000, ("A: x",)),
        Cue(5, "2", 3_613_200_000, 3_614_000_000, ("B: y",)),
    ]
    assert oddities == {"missing_separator": 1, "cue_of_one_line": 2, "cue_at_an_hour_or_more": 1}


@pytest.mark.parametrize(
    ("text", "oddity"),
    [
        ("1\n00:00:01,000 --> 00:01:01,001\nA\nB\n", "cue_over_a_minute"),
        ("1\n00:00:02,000 --> 00:00:01,000\nA\nB\n", "end_before_start"),
        ("00:00:02,000 --> 00:00:03,000\nA\nB\n", "missing_number"),
        ("1\n00:00:02,000 --> 00:00:03,000\nA\n\nB\n", "blank_line_in_cue"),
        ("1\n00:00:02,000 --> 00:00:03,000 A\nB\n", "text_after_times"),
        ("1\n00:00:02,000 --> 00:00:03,000\nA\nB\n\n2\n00:00:0x,000 --> 00:00:03,000\n", "unreadable_times"),
        (
            "1\n00:00:01,000 --> 00:00:03,000\nA\nB\n\n2\n00:00:02,000 --> 00:00:04,000\nA\nB\n",
            "overlapping_cue",
        ),
        (
            "1\n00:00:05,000 --> 00:00:06,000\nA\nB\n\n2\n00:00:02,000 --> 00:00:04,000\nA\nB\n",
            "out_of_order",
        ),
    ],
)
def test_an_oddity_is_counted_once(text: str, oddity: str) -> None:
    parsed, oddities = read(text)
    assert oddities[oddity] == 1
    assert_nothing_lost(text, parsed)


@pytest.mark.parametrize(
    ("lines", "en", "zh"),
    [
        (("Jake: 对", "Jake: Yes."), "Jake: Yes.", "Jake: 对"),
        (("Jake:OK", "Jake: OK."), "Jake: OK.", "Jake:OK"),
        (("Jake:恩，不对",), "Jake:恩，不对", "Jake:恩，不对"),
        (("Jake: Yes.", "Jake: 对的"), "Jake: Yes.", "Jake: 对的"),
        (("Alice:", "我靠"), "Alice:\n我靠", "我靠"),
        (("Jake: 告5人的", 'Jake: It\'s by "告五人".'), 'Jake: It\'s by "告五人".', "Jake: 告5人的"),
        (("A: 看一看", "B: 吃的点什么", "B: What to eat."), "B: What to eat.", "A: 看一看\nB: 吃的点什么"),
        ((" ", "  Jake:  two spaces  "), "Jake:  two spaces", ""),
        ((), "", ""),
    ],
)
def test_choose_text(lines: tuple[str, ...], en: str, zh: str) -> None:
    assert choose_text(lines, "en") == en
    assert choose_text(lines, "zh") == zh
    assert choose_text(lines, "both") == "\n".join(line.strip() for line in lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Jake: hi", ("Jake", ":", " hi")),
        ("其他人：嗯", ("其他人", "：", "嗯")),
        ("Female Guest ;x", ("Female Guest", ";", "x")),
        ("(Lyrics) la", ("", "", "(Lyrics) la")),
        (": x", ("", "", ": x")),
    ],
)
def test_speaker(text: str, expected: tuple[str, str, str]) -> None:
    assert speaker(text) == expected


@pytest.mark.data
def test_every_line_of_the_real_files_is_in_one_place_and_the_srt_library_agrees(data_dir: Path) -> None:
    files = sorted((data_dir / "egolife" / "EgoLifeCap" / "Transcript").rglob("*.srt"))
    assert files
    for path in files:
        text = path.read_text(encoding="utf-8")
        parsed, _ = read(text)
        assert_nothing_lost(text, parsed)
        assert not parsed.stray
        if path.parent.name == "DAY1":  # the library is slow; a day of each wearer is enough to compare
            ours = [(cue.start_us, [line.strip() for line in cue.lines]) for cue in parsed.cues]
            theirs = [
                (
                    round(s.start.total_seconds() * 1e6),
                    [x.strip() for x in s.content.split("\n") if x.strip()],
                )
                for s in srt_library.parse(text)
            ]
            assert ours == theirs
