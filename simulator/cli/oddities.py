"""What each oddity of a dataset is, and what was done about it, in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_WORDS: Final[Mapping[str, str]] = {
    # text and speakers
    "untranslated": "Chinese where English is expected; kept as it is",
    "chinese_within_english": "English with Chinese in it; kept as it is",
    "chinese_speaker_label": "speaker named in Chinese; kept as it is",
    "no_speaker": "speech without a speaker; kept as it is",
    "full_width_colon": "full-width colon after the speaker; read as a colon",
    "semicolon_after_speaker": "semicolon after the speaker; read as a colon",
    "no_space_after_speaker": "no space after the speaker's colon; read all the same",
    "no_text_left_out": "nothing but white space; left out",
    # SRT
    "empty_cue": "cue without a text; counted as a cue, no observation",
    "cue_of_one_line": "cue in one language only; that line is used",
    "cue_of_many_lines": "cue of three lines or more; the lines of the language asked for are used",
    "overlapping_cue": "cue begins before the one before it ends; both kept",
    "out_of_order": "cue begins before the one before it; sorted by time",
    "end_before_start": "ends before it begins; the end is ignored",
    "cue_over_a_minute": "cue of over a minute; kept as it is",
    "cue_at_an_hour_or_more": "cue an hour or more after the file's beginning; placed there",
    "blank_line_in_cue": "blank line inside a cue; the text after it belongs to the cue",
    "missing_number": "cue without its number; read all the same",
    "missing_separator": "no blank line before the next cue; cut where that begins",
    "unreadable_times": "line with --> that is no cue's times; kept as text",
    "text_after_times": "text on the line of the times; read as text of the cue",
    "text_before_first_cue": "text before the first cue has no time; left out",
    "past_midnight": "cue after midnight; placed on the next day",
    # files
    "byte_order_mark": "file begins with a byte order mark; dropped",
    "empty_file": "file without a cue; read as empty",
    "file_name": "file name in another form than the documented one; read all the same",
    "file_without_clock_left_out": "file name says no day and time, so its cues have none; left out",
    "participant_differs_from_folder": "file name and folder name different people; the file name decides",
    "day_differs_from_folder": "file name and folder name different days; the file name decides",
    "other_file_left_out": "file that is none of the layout's; left out",
    "second_version_left_out": "second version of a day's tasks; the clean one is used",
    "sorted_by_time": "entry earlier than the one before it; sorted by time",
    "clock_as_text": "clock time written as text; read as a number",
    "unreadable_end": "end that is no clock time; ignored",
    "malformed_entry_left_out": "entry that lacks its time, type or text; left out",
    "malformed_video_left_out": "video without a list of entries; left out",
    "stream_without_observations": "wearer without a single observation; left out",
    # the StreamMemBench release
    "segments_out_of_order": "segments not in time order; sorted",
    "overlapping_segments": "segments that overlap in time; kept, observations in order",
    "segment_without_observations_left_out": "segment without observations; left out",
    "repeated_segment_id": "segment number given twice in a day; the first one has the anchors",
    "missing_stream_index": "observation without its index; counted on",
    "repeated_stream_index": "index given twice in a day; kept, anchors find the first",
    "stream_index_jumps": "index that does not follow the one before; kept as it is",
    "supporting_observation_not_in_stream": "evidence that is not in the stream at its index; anchor kept",
    "anchor_without_segment_left_out": "anchor of a segment that is not there; left out",
    "repeated_evidence_id": "evidence id given twice to a wearer; kept: anchors go by their place",
    "evidence_without_stream_left_out": "anchors of a wearer whose stream is not there; left out",
    "item_day_disagrees": "item says another day than its file; the file decides",
    "item_participant_disagrees": "item says another wearer than its file; the file decides",
    "item_time_range_disagrees": "item says another time than its segment; the segment decides",
}


def in_words(oddity: str) -> str:
    """The words for an oddity; those for `missing_<field>` and `<field>_disagrees` are made."""
    if oddity in _WORDS:
        return _WORDS[oddity]
    if oddity.startswith("missing_"):
        return f"no {oddity.removeprefix('missing_')} given; a stand-in is used"
    if oddity.endswith("_disagrees"):
        return f"stated {oddity.removesuffix('_disagrees')} is not what is there; what is there counts"
    return oddity.replace("_", " ")
