"""What clients may ask: nothing is dropped on its way, and what can't be taken is refused with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.endpoints import ModelSettings
from adapters.endpoints.caller import Caller
from adapters.endpoints.chat import Endpoint
from adapters.endpoints.flights import Flights
from adapters.endpoints.http import Connections, Wire
from adapters.endpoints.tally import Tally
from adapters.endpoints.wire import Dialect, chat_body
from adapters.gateway.requests import BadRequestError, read_chat, read_embed
from adapters.model import Ask, Message

SETTINGS = ModelSettings(base_url="http://h/v1", model="m", temperature=1.0, seed=99)
ENDPOINT = Endpoint(
    Caller("m", SETTINGS),
    Wire(Connections("http://h/v1"), SETTINGS, None),
    Tally(model="m", role="test"),
    cache=None,
    flights=Flights(),
    offline=False,
)
HELLO = [{"role": "user", "content": "hello"}]
OURS = {
    *("messages", "model", "n", "stream", "stream_options", "temperature", "seed", "response_format"),
    *("max_tokens", "max_completion_tokens", "modalities"),
    *("logprobs", "top_logprobs", "audio", "functions", "function_call"),
}
values = st.recursive(
    st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
names = st.text(min_size=1).filter(lambda name: name not in OURS)


def encoded(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def key_of(ask: Ask) -> bytes:
    return ENDPOINT.key(ask)


@settings(deadline=None)
@given(extra=st.dictionaries(names, st.none() | values, max_size=4))
def test_any_parameter_reaches_the_server_and_the_key_and_nulls_are_as_if_left_away(
    extra: dict[str, Any],
) -> None:
    chat = read_chat(json.dumps({**extra, "messages": HELLO, "model": "x"}).encode(), seed=3)
    given = {name: value for name, value in extra.items() if value is not None}
    assert chat_body(SETTINGS, chat.ask, Dialect("schema")) == {
        "model": "m",
        "messages": HELLO,
        "temperature": 0.0,
        "seed": 3,
        **given,
    }
    bare = read_chat(encoded(messages=HELLO), seed=3)
    assert (key_of(chat.ask) == key_of(bare.ask)) == (not given)
    for name in given:
        less = {other: value for other, value in given.items() if other != name}
        assert key_of(read_chat(encoded(messages=HELLO, **less), seed=3).ask) != key_of(chat.ask)


def test_a_request_s_own_temperature_seed_and_limit_are_kept() -> None:
    chat = read_chat(encoded(messages=HELLO, temperature=0.7, seed=11, max_completion_tokens=50), seed=3)
    assert (chat.ask.temperature, chat.ask.seed, chat.ask.max_tokens, chat.ask.extra) == (0.7, 11, 50, {})
    chat = read_chat(encoded(messages=HELLO, temperature=0, max_tokens=20, provider=None), seed=3)
    assert (chat.ask.temperature, chat.ask.seed, chat.ask.max_tokens, chat.ask.extra) == (0.0, 3, 20, {})


def test_what_clients_add_to_messages_stays_and_parts_become_one_text() -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "q", "name": "alice", "audio": None},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    ]
    ask = read_chat(encoded(messages=messages), seed=0).ask
    assert ask.messages == (
        Message(role="developer", content="a\nb"),
        Message(role="user", content="q", extra={"name": "alice"}),
        Message(role="assistant", content="", extra={"tool_calls": calls}),
        Message(role="tool", content="42", extra={"tool_call_id": "c1"}),
    )
    assert chat_body(SETTINGS, ask, Dialect("schema"))["messages"][3] == messages[3]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "messages has to be a list of at least one message"),
        ({"messages": []}, "messages has to be a list of at least one message"),
        ({"messages": ["hello"]}, r"messages\[0\] has to be an object"),
        (
            {"messages": [{"role": "function", "content": "x"}]},
            r"messages\[0\].role is 'function', and can be system",
        ),
        ({"messages": [{"content": "x"}]}, r"messages\[0\].role is None"),
        ({"messages": [{"role": "user"}]}, r"messages\[0\].content has to be a text"),
        (
            {
                "messages": [
                    *HELLO,
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]},
                ]
            },
            r"messages\[1\].content has a part of type 'image_url': only text goes through here",
        ),
        ({"messages": HELLO, "n": 0}, "n is 0, and has to be from 1 to 16"),
        ({"messages": HELLO, "n": "two"}, "n: Expected `int`, got `str`"),
        ({"messages": HELLO, "max_tokens": 0}, "max_tokens is 0, and has to be at least 1"),
        ({"messages": HELLO, "logprobs": True}, "logprobs is not supported"),
        ({"messages": HELLO, "functions": [{}]}, "functions is not supported"),
        ({"messages": HELLO, "modalities": ["text", "audio"]}, "only text goes through here"),
        ({"messages": HELLO, "response_format": "json"}, "response_format has the type 'json'"),
        ({"messages": HELLO, "response_format": {"type": "json_schema"}}, "json_schema.schema has to be"),
    ],
)
def test_what_can_t_be_taken_is_refused_with_a_reason(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRequestError, match=says):
        read_chat(encoded(**fields), seed=0)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"messages": "\\ud800"}', b"[" * 100_000])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    for read in (lambda: read_chat(body, seed=0), lambda: read_embed(body)):
        with pytest.raises(BadRequestError, match="the body has to be a JSON object"):
            read()


def test_parameters_that_ask_for_nothing_are_no_reason_to_refuse() -> None:
    chat = read_chat(
        encoded(messages=HELLO, logprobs=False, functions=[], modalities=["text"], audio=None), seed=0
    )
    assert chat.ask.extra == {}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "input has to be a text or a list of texts"),
        ({"input": []}, "input has to be a text or a list of texts"),
        ({"input": [1, 2, 3]}, "tokens can't be read without their tokenizer"),
        ({"input": [[1, 2], [3]]}, "tokens can't be read without their tokenizer"),
        ({"input": "a", "encoding_format": "int8"}, "can be 'float' or 'base64'"),
        ({"input": "a", "dimensions": "few"}, "dimensions: Expected `int`"),
        ({"input": "a", "truncate": "END"}, "truncate is not supported for embeddings"),
    ],
)
def test_embeddings_that_can_t_be_made_are_refused_with_a_reason(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRequestError, match=says):
        read_embed(encoded(**fields))
