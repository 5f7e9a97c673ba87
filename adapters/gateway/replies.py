"""Our answers as OpenAI's clients read them. No I/O.

Nothing here hangs on the clock or on chance: an equal request has an equal reply, byte for byte."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from adapters.gateway.requests import Chat, Embed
from adapters.model import Said


def completion(chat: Chat, key: str, answers: Sequence[Said]) -> bytes:
    """The answers, whole. `key` is the reply's id."""
    choices = [
        {"index": index, "message": _message(said), "finish_reason": said.finish, "logprobs": None}
        for index, said in enumerate(answers)
    ]
    return _encode({**_head(chat, key, "chat.completion"), "choices": choices, "usage": _usage(answers)})


def stream(chat: Chat, key: str, answers: Sequence[Said]) -> Iterator[bytes]:
    """The answers as server-sent events. They are there before the first goes out: a failure has its status, and what
    is tried again or comes from the cache comes as anything else."""
    head = _head(chat, key, "chat.completion.chunk")
    more: dict[str, Any] = {"usage": None} if chat.include_usage else {}

    def event(index: int, delta: dict[str, Any], finish: str | None) -> bytes:
        choice = {"index": index, "delta": delta, "finish_reason": finish, "logprobs": None}
        return _event({**head, "choices": [choice], **more})

    for index, said in enumerate(answers):
        delta = _message(said)
        if "tool_calls" in delta:
            delta["tool_calls"] = [
                {"index": number, **call} for number, call in enumerate(delta["tool_calls"])
            ]
        yield event(index, delta, None)
        yield event(index, {}, said.finish)
    if chat.include_usage:
        yield _event({**head, "choices": [], "usage": _usage(answers)})
    yield b"data: [DONE]\n\n"


def vectors(embed: Embed, rows: NDArray[np.float32], tokens: int) -> bytes:
    """One vector for each text, in order."""
    encoded: list[Any] = (
        [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in rows]
        if embed.base64
        else rows.astype(float).tolist()
    )
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(encoded)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return _encode({"object": "list", "model": embed.model, "data": data, "usage": usage})


def models(names: Sequence[str]) -> bytes:
    """The models that a memory may ask."""
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "egostream"} for name in names]
    return _encode({"object": "list", "data": data})


def error(message: str, kind: str, code: str, param: str | None) -> bytes:
    """Why there is no answer."""
    return _encode({"error": {"message": message, "type": kind, "code": code, "param": param}})


def _head(chat: Chat, key: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{key}", "object": kind, "created": 0, "model": chat.model}


def _message(said: Said) -> dict[str, Any]:
    if said.tool_calls:
        return {"role": "assistant", "content": said.text or None, "tool_calls": list(said.tool_calls)}
    return {"role": "assistant", "content": said.text}


def _usage(answers: Sequence[Said]) -> dict[str, int]:
    prompt = sum(said.usage.prompt_tokens for said in answers)
    said = sum(said.usage.completion_tokens for said in answers)
    return {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value)


def _event(value: object) -> bytes:
    return b"data: " + _encode(value) + b"\n\n"
