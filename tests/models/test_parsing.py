"""Values out of what models say."""

from __future__ import annotations

import contextlib
import json
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.endpoints.parsing import UnfitError, json_text, parse, regions, schema_of
from tests.models.helpers import Verdict

FITS = Verdict(outcome="pass", reason='it\'s {there}: "yes"\n[1]')
TEXT = msgspec.json.encode(FITS).decode()


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"  \n{TEXT}\n",
        f"```json\n{TEXT}\n```",
        f"Sure! Here is the verdict:\n\n```\n{TEXT}\n```\nI hope that [this] helps.",
        f'<think>Perhaps {{"outcome": "fail", "reason": "x"}}?</think>\n{TEXT}',
        f'By criterion [2] and {{this}} I say {TEXT} and not {{"other": 1}}.',
        f"{TEXT}\n\n{TEXT}",
        TEXT.replace("\\n", "\n"),  # a real line break in a string
        json.dumps({"reason": FITS.reason, "outcome": "pass", "confidence": 0.3}, indent=4),
    ],
)
def test_the_value_is_found_wherever_it_stands(text: str) -> None:
    assert parse(text, Verdict) == FITS


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no whole JSON"),
        ("pass", "no whole JSON"),
        ('{"outcome": "perhaps", "reason": "x"}', "Invalid enum value 'perhaps'"),
        ('{"outcome": "pass"}', "missing required field `reason`"),
        ('{"outcome": "pass", "reason": 3}', "Expected `str`, got `int`"),
        ('{"outcome": "pass", "reason": "\\ud800"}', "surrogate"),
        ('{"outcome": "pass", "reason": NaN}', "NaN is no JSON"),
        ("{'outcome': 'pass', 'reason': 'x'}", "Expecting property name"),
        ('{"outcome": "pass", "reason": "cut', "no whole JSON"),
        ('["pass", "x"]', "Expected `object`, got `array`"),
        (f'{TEXT} or rather {{"outcome": "fail", "reason": "x"}}', "2 different values"),
        ("[" * 100_000, "no whole JSON"),
        ("[" * 100_000 + "]" * 100_000, "recursion"),
        # what stands inside a broken or another answer is no answer
        ('{"drafts": [{"outcome": "pass", "reason": "x"}, {"outcome": "fail"', "no whole JSON"),
        ('{"drafts": [{"outcome": "pass", "reason": "x"},]}', "Illegal trailing comma|Expecting value"),
        ('{"final": {"outcome": "pass", "reason": "x"}}', "missing required field"),
    ],
)
def test_what_is_no_answer_is_refused_with_a_reason(text: str, says: str) -> None:
    with pytest.raises(UnfitError, match=says):
        parse(text, Verdict)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
prose = st.text(st.characters(blacklist_characters="{}[]", blacklist_categories=["Cs"]))


@given(before=prose, value=st.dictionaries(st.text(), json_values) | st.lists(json_values), after=prose)
def test_any_value_is_found_between_any_words(before: str, value: Any, after: str) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert [json.loads(found) for found in regions(f"{before}{text}{after}")] == [value]


@given(reason=st.text(), before=prose, after=prose, cut=st.integers(1, 200))
def test_a_value_is_read_back_whole_or_not_at_all(reason: str, before: str, after: str, cut: int) -> None:
    verdict = Verdict(outcome="fail", reason=reason)
    text = msgspec.json.encode(verdict).decode()
    assert parse(before + text + after, Verdict) == verdict
    with pytest.raises(UnfitError):
        parse(before + text[: -min(cut, len(text))], Verdict)


@given(st.text())
def test_no_text_makes_it_fail_otherwise(text: str) -> None:
    with contextlib.suppress(UnfitError):
        assert isinstance(parse(text, Verdict), Verdict)


class Part(msgspec.Struct):
    """For readers, and not for models."""

    text: str
    title: str = "none"


class Whole(msgspec.Struct):
    parts: list[Part]
    score: Annotated[int, msgspec.Meta(ge=0, le=3)] = 0
    note: str | None = None


def test_schemas_have_the_form_that_strict_servers_take() -> None:
    schema = schema_of(Whole)
    assert schema == {
        "title": "Whole",
        "type": "object",
        "properties": {
            "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}},
            "score": {"type": "integer", "minimum": 0, "maximum": 3},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["parts", "score", "note"],
        "additionalProperties": False,
        "$defs": {
            "Part": {
                "type": "object",
                "properties": {"text": {"type": "string"}, "title": {"type": "string"}},
                "required": ["text", "title"],
                "additionalProperties": False,
            }
        },
    }
    assert "$defs" not in schema_of(Verdict)


class Tree(msgspec.Struct):
    branches: list[Tree]


def test_a_struct_may_have_itself_in_it() -> None:
    schema = schema_of(Tree)
    assert schema["properties"] == {"branches": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}
    assert schema["$defs"]["Tree"]["properties"] == schema["properties"]


@pytest.mark.parametrize("kind", [int, list[int], dict[str, int], str])
def test_a_model_is_asked_for_structs_alone(kind: type) -> None:
    with pytest.raises(TypeError, match="a model is asked for a struct"):
        schema_of(kind)


FACTS = {"type": "object", "properties": {"facts": {}}, "required": ["facts"]}


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        (' {"facts": [1.0,  "é"]}\n', ' {"facts": [1.0,  "é"]}\n'),  # as it is, to the last blank
        ('```json\n{"facts": ["é"]}\n```', '{"facts": ["é"]}'),
        ('<think>{"facts": [1]}?</think> {"facts": [2]}', '{"facts": [2]}'),
        ('By {"a": 1} I mean {"facts": []} and [3].', '{"facts": []}'),
        (
            '{"facts": ["a\nb"]}',
            '{"facts": ["a\\nb"]}',
        ),  # a line break in a string, which strict readers refuse
    ],
)
def test_json_for_an_asker_s_own_schema_comes_bare(text: str, bare: str) -> None:
    assert json_text(text, FACTS) == bare
    json.loads(json_text(text, FACTS))


@pytest.mark.parametrize(
    ("text", "schema", "says"),
    [
        ("no", FACTS, "no whole JSON"),
        ('"no"', FACTS, "it should be one JSON object"),
        ("[1]", FACTS, "it should be one JSON object"),
        ('{"facts": 1}', {"type": "array"}, "it should be one JSON array"),
        ('{"fact": 1}', FACTS, "it lacks facts"),
        ('{"facts": [1', FACTS, "no whole JSON"),
        ('{"facts": NaN}', FACTS, "NaN is no JSON"),
        ('{"facts": 1} or {"facts": 2}', FACTS, "2 different values"),
        ("[" * 100_000, FACTS, "no whole JSON"),
        ("[" * 100_000 + "]" * 100_000, FACTS, "recursion"),
    ],
)
def test_what_is_no_json_for_an_asker_s_own_schema_is_refused(
    text: str, schema: dict[str, Any], says: str
) -> None:
    with pytest.raises(UnfitError, match=says):
        json_text(text, schema)


@settings(max_examples=40, deadline=None)
@given(value=st.dictionaries(st.text(max_size=9), json_values, max_size=4), before=prose, after=prose)
def test_any_object_is_found_between_any_words_and_alone_it_stays_as_it_is(
    value: dict[str, Any], before: str, after: str
) -> None:
    text = json.dumps(value)
    assert json_text(text, {"type": "object"}) == text
    assert json.loads(json_text(f"{before}{text}{after}", {"type": "object"})) == value
