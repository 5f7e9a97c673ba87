"""What travels: requests, streams in any pieces, refusals, and how long a server asks to be left alone."""

from __future__ import annotations

import email.utils
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.endpoints import ModelSettings
from adapters.endpoints.http import retry_after_s
from adapters.endpoints.parsing import schema_of
from adapters.endpoints.wire import (
    CallError,
    Dialect,
    Reply,
    StreamReader,
    chat_body,
    read_completion,
    read_embeddings,
    status_error,
    stream_events,
)
from tests.models.helpers import Verdict, asking

SETTINGS = ModelSettings(base_url="http://h/v1", model="m")


@given(
    texts=st.lists(st.text(), min_size=1), sizes=st.lists(st.integers(1, 30), min_size=1), crlf=st.booleans()
)
def test_a_stream_is_read_whole_in_whatever_pieces_it_comes(
    texts: list[str], sizes: list[int], crlf: bool
) -> None:
    """A text may have U+2028 and the like, which end a line elsewhere."""
    pieces: list[Any] = [{"choices": [{"delta": {"content": text}, "finish_reason": None}]} for text in texts]
    pieces += [{"choices": [{"delta": {}, "finish_reason": "stop"}]}]
    pieces += [{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}]
    end = b"\r\n" if crlf else b"\n"
    lines = [b": comment", b"event: message", *(b"data: " + msgspec.json.encode(p) + end for p in pieces)]
    content = end.join([*lines, b"data: [DONE]" + end, b""])

    async def chunks() -> AsyncIterator[bytes]:
        at, number = 0, 0
        while at < len(content):
            size = sizes[number % len(sizes)]
            yield content[at : at + size]
            at, number = at + size, number + 1

    async def read() -> Reply:
        reader = StreamReader()
        async for data in stream_events(chunks()):
            reader.feed(data)
        return reader.reply()

    expected = Reply(text="".join(texts), finish="stop", prompt_tokens=3, completion_tokens=4)
    assert anyio.run(read) == expected


def test_a_stream_that_just_stops_is_no_answer() -> None:
    reader = StreamReader()
    reader.feed(b'{"choices": [{"delta": {"content": "the ans"}}]}')
    with pytest.raises(CallError, match="the stream ended before the answer did"):
        reader.reply()


def test_calls_of_tools_are_put_together_from_their_pieces() -> None:
    """Pieces of several calls may come in turn; each says to which it belongs."""

    def piece(index: int, function: dict[str, Any], **fields: Any) -> bytes:
        call = {"index": index, "function": function, **fields}
        return msgspec.json.encode({"choices": [{"delta": {"tool_calls": [call]}}]})

    reader = StreamReader()
    reader.feed(piece(0, {"name": "add", "arguments": ""}, id="c1", type="function"))
    reader.feed(piece(1, {"name": "drop", "arguments": '{"id"'}, id="c2", type="function"))
    reader.feed(piece(0, {"arguments": '{"fact": '}))
    reader.feed(piece(1, {"name": None, "arguments": ": 3}"}, id=None))
    reader.feed(piece(0, {"arguments": '"x"}'}))
    reader.feed(b'{"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}')
    whole = [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"fact": "x"}'}},
        {"id": "c2", "type": "function", "function": {"name": "drop", "arguments": '{"id": 3}'}},
    ]
    assert reader.reply() == Reply(text="", finish="tool_calls", tool_calls=tuple(whole))
    answer = {"choices": [{"message": {"content": None, "tool_calls": whole}, "finish_reason": "tool_calls"}]}
    assert read_completion(msgspec.json.encode(answer)) == reader.reply()


def test_a_stream_may_say_that_it_failed() -> None:
    with pytest.raises(CallError) as raised:
        StreamReader().feed(b'{"error": {"message": "out of memory", "code": 503}}')
    assert raised.value.failure == "unavailable"
    assert raised.value.reason == "503 Service Unavailable: out of memory"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "12"}, 12),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        # by the server's own clock, where it tells it
        ({"retry-after": "Wed, 21 Oct 2015 07:28:30 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 30),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT", "date": "Wed, 21 Oct 2015 07:28:30 GMT"}, 0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
    ],
)
def test_how_long_a_server_asks_to_be_left_alone(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


def test_a_date_without_the_server_s_clock_is_taken_by_ours() -> None:
    asked = retry_after_s({"retry-after": email.utils.formatdate(time.time() + 100, usegmt=True)})
    assert asked is not None
    assert 90 < asked <= 100


@pytest.mark.parametrize(
    ("status", "said", "failure", "overloaded"),
    [
        (429, "slow down", "busy", True),
        (429, "insufficient_quota", "refused", False),
        (500, "oops", "unavailable", False),
        (503, "loading", "unavailable", True),
        (504, "", "unavailable", True),
        (529, "overloaded", "unavailable", True),
        (408, "", "unavailable", True),
        (400, "bad", "refused", False),
        (401, "bad key", "refused", False),
        (403, "no", "refused", False),
        (404, "no such model", "refused", False),
        (302, "", "refused", False),
    ],
)
def test_what_a_status_means(status: int, said: str, failure: str, overloaded: bool) -> None:
    error = status_error(status, said.encode(), None)
    assert (error.failure, error.overloaded) == (failure, overloaded)
    assert error.reason.startswith(str(status))
    assert error.reason.endswith(said)


@pytest.mark.parametrize(
    ("content", "failure", "says"),
    [
        (b"<html>", "unavailable", "can't be read"),
        (b'{"status": "ok"}', "unavailable", "no completion"),
        (b'{"choices": []}', "unavailable", "no completion"),
        (
            b'{"choices": [{"message": {"refusal": "I must not"}}]}',
            "refused",
            "the model declines: I must not",
        ),
        (b'{"choices": [{"message": {}, "finish_reason": "content_filter"}]}', "refused", "content filter"),
        (b'{"error": {"message": "no", "code": 429}}', "busy", "429 Too Many Requests: no"),
        (b'{"error": "broken"}', "unavailable", "500 Internal Server Error: broken"),
    ],
)
def test_a_200_may_be_no_answer(content: bytes, failure: str, says: str) -> None:
    with pytest.raises(CallError) as raised:
        read_completion(content)
    assert raised.value.failure == failure
    assert says in raised.value.reason


def test_an_answer_that_says_little_is_an_answer() -> None:
    assert read_completion(b'{"choices": [{"message": {"content": "yes"}}]}') == Reply(text="yes")
    assert read_completion(b'{"choices": [{"message": {"content": null}}]}') == Reply(text="")


@pytest.mark.parametrize(
    ("rows", "failure", "says"),
    [
        ([[1.0, 2.0]], "nonsense", "1 vectors for 2 texts"),
        ([[1.0, 2.0]] * 3, "nonsense", "3 vectors for 2 texts"),
        ([[1.0, 2.0], [1.0]], "refused", "set dimensions = 1"),
    ],
)
def test_vectors_that_are_not_those_asked_for(rows: list[list[float]], failure: str, says: str) -> None:
    content = msgspec.json.encode({"data": [{"index": i, "embedding": row} for i, row in enumerate(rows)]})
    with pytest.raises(CallError) as raised:
        read_embeddings(content, 2, 2)
    assert raised.value.failure == failure
    assert says in raised.value.reason


def refusal(says: str, status: int = 400) -> CallError:
    return status_error(status, says.encode(), None)


def test_what_a_server_does_not_know_is_left_away_step_by_step() -> None:
    settings = msgspec.structs.replace(SETTINGS, stream=True, max_tokens=9)
    ask = msgspec.structs.replace(asking("q"), schema=schema_of(Verdict))
    dialect = Dialect("schema")

    def body() -> dict[str, Any]:
        return chat_body(settings, ask, dialect)

    first = body()
    assert first["response_format"]["json_schema"]["schema"] == schema_of(Verdict)
    assert first["messages"] == [{"role": "user", "content": "q"}]
    assert "max_completion_tokens instead" in str(
        dialect.concede(refusal("Use 'max_completion_tokens' instead"), body())
    )
    assert (body()["max_completion_tokens"], body().get("max_tokens")) == (9, None)
    assert "without a count" in str(dialect.concede(refusal("unknown: stream_options"), body()))
    assert "stream_options" not in body()
    formats = []
    for _ in range(3):
        assert dialect.concede(refusal("'response_format' is not supported", 422), body())
        formats.append(body().get("response_format"))
    assert formats == [{"type": "json_object", "schema": schema_of(Verdict)}, {"type": "json_object"}, None]
    assert "fits this schema" in body()["messages"][0]["content"]
    assert dialect.concede(refusal("'response_format' is not supported"), body()) is None
    assert dialect.concede(refusal("unknown: stream_options"), first) == ""  # known by then: only ask again
    assert dialect.concede(refusal("'response_format' is not supported"), first) == ""


@pytest.mark.parametrize(
    "says",
    [
        "Unsupported parameter: 'temperature' is not supported with this model.",
        "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) is supported.",
        "`temperature` is deprecated for this model",
    ],
)
def test_a_model_without_a_temperature_is_asked_without(says: str) -> None:
    ask = msgspec.structs.replace(asking("q"), temperature=0.5, seed=1)
    dialect = Dialect("schema")
    before = chat_body(SETTINGS, ask, dialect)
    assert dialect.concede(refusal("temperature must be between 0 and 1"), before) is None
    assert "own temperature" in str(dialect.concede(refusal(says), before))
    after = chat_body(SETTINGS, ask, dialect)
    assert before == {**after, "temperature": 0.5}
    assert dialect.concede(refusal(says), before) == ""  # under way when the first was refused
    assert dialect.concede(refusal(says), after) is None


def test_other_refusals_are_no_reason_to_ask_for_less() -> None:
    ask = msgspec.structs.replace(asking("q"), schema=schema_of(Verdict))
    dialect = Dialect("schema")
    body = chat_body(SETTINGS, ask, dialect)
    for error in (
        refusal("the prompt is too long"),
        refusal("response_format", 401),
        refusal("response_format", 429),
    ):
        assert dialect.concede(error, body) is None
    assert dialect.structured == "schema"


def test_the_ask_s_own_sampling_goes_before_the_endpoint_s_and_votes_have_seeds_of_their_own() -> None:
    settings = msgspec.structs.replace(SETTINGS, temperature=0.2, seed=10, max_tokens=5, body={"top_p": 0.5})
    body = chat_body(settings, asking("q", vote=2), Dialect("schema"))
    assert (body["temperature"], body["seed"], body["max_tokens"], body["top_p"]) == (0.2, 12, 5, 0.5)
    body = chat_body(settings, asking("q", temperature=0.0, seed=1, max_tokens=7), Dialect("schema"))
    assert (body["temperature"], body["seed"], body["max_tokens"]) == (0.0, 1, 7)
    assert chat_body(SETTINGS, asking("q"), Dialect("schema")).keys() == {"model", "messages"}
