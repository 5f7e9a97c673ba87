"""What OpenAI's clients send, as our asks. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec

from adapters.model import Ask, Message

MOST_CHOICES: Final = 16
_ROLES: Final = get_args(get_type_hints(Message)["role"])
_UNANSWERABLE: Final = ("logprobs", "top_logprobs", "audio", "functions", "function_call")
"""Parameters whose answer has parts that we don't carry."""
_NO_TEXT: Final = "only text goes through here"

T = TypeVar("T")


class BadRequestError(Exception):
    """A request that can't be taken; `param` is the field that it fails by."""

    def __init__(self, message: str, param: str | None = None) -> None:
        self.param = param
        super().__init__(message)


class Chat(NamedTuple):
    """A request for chat completions. `model`: as the client calls it; `n`: answers wanted; `include_usage`: whether a
    stream ends with the tokens; `ask.vote` is not set."""

    model: str
    ask: Ask
    n: int
    stream: bool
    include_usage: bool


class Embed(NamedTuple):
    """A request for vectors of texts. `base64`: of little-endian 32-bit floats, instead of numbers; `dimensions`: how
    long they have to be."""

    model: str
    texts: list[str]
    base64: bool
    dimensions: int | None


def read_chat(body: bytes, *, seed: int) -> Chat:
    """A chat request. Fields that are null are as if left away; what is not ours to see to goes to the model's server
    as it is. The temperature is 0 and the seed this one, unless the request has its own. Raises BadRequestError."""
    fields = _fields(body)
    messages = fields.pop("messages", None)
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("messages has to be a list of at least one message", "messages")
    for name in _UNANSWERABLE:
        if fields.get(name):
            raise BadRequestError(
                f"{name} is not supported: answers have text and calls of tools alone", name
            )
        fields.pop(name, None)
    if fields.pop("modalities", ["text"]) != ["text"]:
        raise BadRequestError(f"{_NO_TEXT}: modalities can be ['text'] alone", "modalities")
    n = _take(fields, "n", int, 1)
    if not 1 <= n <= MOST_CHOICES:
        raise BadRequestError(f"n is {n}, and has to be from 1 to {MOST_CHOICES}", "n")
    limit = _limit(fields)
    options = _take(fields, "stream_options", dict[str, Any], {})
    form = fields.get("response_format")
    if form is not None:
        _check_form(form)
    return Chat(
        model=_take(fields, "model", str, ""),
        n=n,
        stream=_take(fields, "stream", bool, False),
        include_usage=bool(options.get("include_usage")),
        ask=Ask(
            messages=tuple(_message(number, message) for number, message in enumerate(messages)),
            max_tokens=limit,
            temperature=_take(fields, "temperature", float, 0.0),
            seed=_take(fields, "seed", int, seed),
            extra=fields,
            whole=True,
        ),
    )


def read_embed(body: bytes) -> Embed:
    """An embeddings request. Raises BadRequestError."""
    fields = _fields(body)
    given = fields.pop("input", None)
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts:
        raise BadRequestError("input has to be a text or a list of texts", "input")
    if not all(isinstance(text, str) for text in texts):
        raise BadRequestError(
            "input has to be texts: tokens can't be read without their tokenizer; turn them off in the client "
            "(LangChain: check_embedding_ctx_length=False)",
            "input",
        )
    form = _take(fields, "encoding_format", str, "float")
    if form not in ("float", "base64"):
        raise BadRequestError(
            f"encoding_format is {form!r}, and can be 'float' or 'base64'", "encoding_format"
        )
    embed = Embed(
        model=_take(fields, "model", str, ""),
        texts=texts,
        base64=form == "base64",
        dimensions=_take(fields, "dimensions", int, None),
    )
    fields.pop("user", None)  # who asks changes no vector
    for name in fields:
        raise BadRequestError(f"{name} is not supported for embeddings", name)
    return embed


def _fields(body: bytes) -> dict[str, Any]:
    """What a request says, without its nulls."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequestError(f"the body has to be a JSON object: {error}") from error
    return {name: value for name, value in fields.items() if value is not None}


def _take(fields: dict[str, Any], name: str, kind: type[T], default: Any) -> Any:
    if name not in fields:
        return default
    try:
        return msgspec.convert(fields.pop(name), kind)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"{name}: {error}", name) from error


def _limit(fields: dict[str, Any]) -> int | None:
    """Tokens of the answer at most, by either of their names; the newer one goes before."""
    limit: int | None = None
    for name in ("max_tokens", "max_completion_tokens"):
        limit = _take(fields, name, int, limit)
        if limit is not None and limit < 1:
            raise BadRequestError(f"{name} is {limit}, and has to be at least 1", name)
    return limit


def _message(number: int, message: Any) -> Message:
    where = f"messages[{number}]"
    if not isinstance(message, dict):
        raise BadRequestError(f"{where} has to be an object", where)
    fields = {name: value for name, value in message.items() if value is not None}
    role = fields.pop("role", None)
    if role not in _ROLES:
        raise BadRequestError(f"{where}.role is {role!r}, and can be {', '.join(_ROLES)}", f"{where}.role")
    content = fields.pop("content", "" if fields.get("tool_calls") else None)
    return Message(role=role, content=_text(f"{where}.content", content), extra=fields)


def _text(where: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise BadRequestError(f"{where} has to be a text, or a list of parts with text", where)
    texts: list[str] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else part
        if kind != "text" or not isinstance(part.get("text"), str):
            raise BadRequestError(f"{where} has a part of type {kind!r}: {_NO_TEXT}", where)
        texts.append(part["text"])
    return "\n".join(texts)


def _check_form(form: Any) -> None:
    kind = form.get("type") if isinstance(form, Mapping) else form
    schema = form.get("json_schema") if isinstance(form, Mapping) else None
    if kind not in ("text", "json_object", "json_schema"):
        raise BadRequestError(
            f"response_format has the type {kind!r}: there are text, json_object and json_schema"
        )
    if kind == "json_schema" and not (
        isinstance(schema, Mapping) and isinstance(schema.get("schema"), Mapping)
    ):
        raise BadRequestError("response_format.json_schema.schema has to be a JSON schema", "response_format")
