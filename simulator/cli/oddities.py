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
    # RealMem
    "missing_is_query": "turn that doesn't say whether it is a query; one if it has a query's number",
    "weekday_disagrees": "weekday that is not the date's; the date counts",
    "session_dated_before_the_one_before": "session dated before the one before it; taken to be of that one's day",
    "session_without_text_left_out": "session without a turn that says anything; left out",
    "repeated_session_identifier": "session name given twice; both kept, sessions go by their place",
    "repeated_session_uuid": "session uuid given twice; gold finds the first",
    "other_speaker": "speaker who is neither User nor Assistant; kept as it is",
    "same_speaker_twice": "two turns of one speaker after another; kept as they are",
    "query_not_by_user_left_out": "query that the user doesn't ask; an ordinary turn",
    "query_without_text_left_out": "query without a text; not asked",
    "query_without_answer": "query that no turn of the assistant answers; without gold",
    "query_in_first_session": "query with no session before its own, so no memory to ask; not asked",
    "query_without_gold": "query for which no session is named; not counted in retrieval",
    "repeated_query_id": "query number given twice; both asked, queries go by their place",
    "unknown_gold_uuid": "gold session that is not there; left out of the gold",
    "repeated_gold_uuid": "gold session named twice; counted once",
    "gold_from_memory_used": "no known session among the gold ones; taken from the memory items used",
    "gold_in_own_session": "gold session is the query's own, which no memory can have; kept, as published",
    "gold_in_later_session": "gold session is a later one, which no memory can have; kept, as published",
    "memory_without_query": "memory named at a turn that answers no query; ignored",
    # LifeDialBench
    "chunks_out_of_order": "chunk begins before the one before it; sorted by time",
    "chunk_without_text_left_out": "chunk without a line that says anything; left out",
    "overlapping_chunks": "chunk begins before the one before it ends; kept, observations in order",
    "history_in_several_parts": "history given in several parts; one stream",
    "due_before_the_first_chunk": "question due before anything was said; not asked online",
    "evidence_after_question": "evidence is not over when the question is due; kept as it is",
    "evidence_not_in_stream": "no chunk at the time of the evidence; asked all the same",
    "no_evidence_date": "no time of the evidence given; asked all the same",
    "unreadable_evidence_date": "time of the evidence that can't be read; ignored",
    "golden_option_is_none": "golden option that is none of the options; not asked",
    "option_without_letter": "option without its letter; the letter of its place is used",
    "option_letters_out_of_order": "options not lettered A, B ... in order; letters go by place",
    "answer_is_not_the_golden_option": "answer differs from the golden option; the golden option counts",
    "unknown_question_type": "question of a type that is not documented; kept as it is",
    "question_without_gold": "question with neither options nor answer; not asked",
    "question_without_text_left_out": "question without a text; not asked",
    # APM task files
    "session_without_observations": "session in whose time the stream has nothing; no segments",
    "probe_before_any_observation": "probe before anything was seen; not asked",
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
