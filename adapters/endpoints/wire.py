"""What travels to and from an OpenAI-compatible server. No I/O."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from http import HTTPStatus
from typing import Any, Literal, TypeVar

import msgspec

from adapters.endpoints.settings import STRUCTURED, ModelSettings, Structured
from adapters.http_client import shown
from adapters.model import Ask, Message

Failure = Literal["busy", "unavailable", "refused", "nonsense"]

_QUOTA = (b"insufficient_quota", b"billing_hard_limit")
"""What a 429 says that won't pass by waiting."""
SAID_BYTES = 10_000
_MAYBE_A_PARAMETER = (400, 404, 415, 422, 500, 501)
_FORMAT_WORDS = ("response_format", "json_schema", "json_object", "structured output", "guided", "grammar")
_UNKNOWN = r"(?:support|unrecogni|unknown|unexpected|not (?:allowed|permitted|known)|deprecated)"
_NO_TEMPERATURE = re.compile(rf"\btemperature\b[^.]{{0,80}}{_UNKNOWN}|{_UNKNOWN}[^.]{{0,80}}\btemperature\b")
"""A temperature out of its range is no such thing: the setting is wrong then."""


class CallError(Exception):
    """One try failed. `busy`: refused for now, nothing was done. `unavailable`: broken, too slow or out of reach.
    `refused`: it will not take this call, ever. `nonsense`: it answers, but not what was asked for.

    `what`: in our words; `said`: in the server's, out of `content`. `overloaded`: fewer calls at once may help.
    `status`: of the answer, if there was one."""

    def __init__(
        self,
        failure: Failure,
        what: str,
        *,
        content: bytes = b"",
        overloaded: bool = False,
        retry_after_s: float | None = None,
        status: int | None = None,
    ) -> None:
        self.failure = failure
        self.what = what
        self.content = content
        self.said = _said(content)
        self.overloaded = overloaded
        self.retry_after_s = retry_after_s
        self.status = status
        super().__init__(what)  # not what the server says: it may say our key

    @property
    def reason(self) -> str:
        """What happened, on one line."""
        said = shown(self.said.encode(errors="replace"))
        return f"{self.what}: {said}" if said else self.what

    def hide(self, secrets: Iterable[str]) -> None:
        """Take these texts out of the server's words."""
        for secret in secrets:
            self.said = self.said.replace(secret, "[key]")
            self.content = self.content.replace(secret.encode(), b"[key]")


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What came back. `finish`: why it ended, empty where the server doesn't say; tokens are None where it doesn't."""

    text: str
    finish: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()
    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    @property
    def tokens(self) -> int | None:
        """Of prompt and answer; None where the server doesn't say."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return self.prompt_tokens + self.completion_tokens


class Dialect:
    """What one server turned out not to know: it is left away from then on."""

    def __init__(self, structured: Structured) -> None:
        self.structured: Structured = structured
        self.json_object = True  # also where `structured` is another form: some know schemas alone
        self.stream_options = True
        self.temperature = True
        self.max_tokens = "max_tokens"

    def concede(self, error: CallError, body: dict[str, Any]) -> str | None:
        """What to do without after this refusal of this request, in words; empty if that was known by then; None if
        the refusal has another reason."""
        said = error.content.decode(errors="replace").lower()
        if error.status not in _MAYBE_A_PARAMETER:
            return None
        if "max_completion_tokens" in said and "max_tokens" in body:
            known, self.max_tokens = self.max_tokens != "max_tokens", "max_completion_tokens"
            return "" if known else "max_completion_tokens instead of max_tokens"
        if "stream_options" in said and "stream_options" in body:
            known, self.stream_options = not self.stream_options, False
            return "" if known else "streams without a count of their tokens"
        if "temperature" in body and _NO_TEMPERATURE.search(said):
            known, self.temperature = not self.temperature, False
            return "" if known else "the model's own temperature, whatever is asked for"
        wanted = _structured_in(body)
        if wanted == "text" or not any(word in said for word in _FORMAT_WORDS):
            return None
        if wanted == "json_object" and self.structured != "json_object":
            known, self.json_object = not self.json_object, False
            return "" if known else "JSON that is asked for in the prompt alone"
        if wanted != self.structured:
            return ""
        self.structured = STRUCTURED[STRUCTURED.index(wanted) + 1]
        return f"structured = {self.structured!r} instead of {wanted!r}"


def response_format(structured: Structured, schema: dict[str, Any]) -> dict[str, Any] | None:
    """How the form of the answer is asked for; None for text alone."""
    name = "".join(c if c.isalnum() or c in "_-" else "_" for c in schema.get("title", "answer"))[:64]
    match structured:
        case "schema":
            return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}
        case "json_object_schema":
            return {"type": "json_object", "schema": schema}
        case "json_object":
            return {"type": "json_object"}
        case "text":
            return None


def _structured_in(body: dict[str, Any]) -> Structured:
    wanted = body.get("response_format", {})
    if wanted.get("type") == "text":
        return "text"
    if wanted.get("type") == "json_schema":
        return "schema"
    return "text" if not wanted else "json_object_schema" if "schema" in wanted else "json_object"


def chat_body(
    settings: ModelSettings, ask: Ask, dialect: Dialect, further: Sequence[Message] = ()
) -> dict[str, Any]:
    """The request for one chat completion. `further`: messages after the ask's own, about an answer that didn't fit."""
    messages = [{"role": m.role, "content": m.content, **m.extra} for m in ask.messages]
    body: dict[str, Any] = {
        "model": settings.model,
        "messages": messages,
        **settings.body,
        **sampling(settings, ask),
        **ask.extra,
    }
    if "max_tokens" in body:
        body[dialect.max_tokens] = body.pop("max_tokens")
    if not dialect.temperature:
        body.pop("temperature", None)
    schema = wanted_schema(ask)
    if schema is not None:
        form, told = _form(ask, schema, dialect)
        body.pop("response_format", None)
        if form is not None:
            body["response_format"] = form
        if not told:  # nothing else tells the model what is wanted
            messages[-1]["content"] += (
                f"\n\nReply with one JSON value that fits this schema, and nothing else:\n{schema_text(schema)}"
            )
    messages.extend({"role": m.role, "content": m.content} for m in further)
    if settings.stream:
        body["stream"] = True
        if dialect.stream_options:
            body["stream_options"] = {"include_usage": True}
    return body


def wanted_schema(ask: Ask) -> dict[str, Any] | None:
    """The JSON schema that the answer has to fit, whoever says so; None where it is a text."""
    form = ask.extra.get("response_format", {})
    match form.get("type"):
        case "json_schema":
            schema: dict[str, Any] = form["json_schema"]["schema"]
            return schema
        case "json_object":
            return {"type": "object"}
        case _:
            return ask.schema


def _form(ask: Ask, schema: dict[str, Any], dialect: Dialect) -> tuple[dict[str, Any] | None, bool]:
    """How the form is asked for, and whether that says all of it. An asker's own words are kept where the server knows
    them."""
    own = ask.extra.get("response_format")
    if own is not None and own["type"] == "json_object":
        known = dialect.json_object and dialect.structured != "text"
        return (own if known else None), known
    strict = dialect.structured == "schema"
    return (own if own is not None and strict else response_format(dialect.structured, schema)), strict


def embeddings_body(settings: ModelSettings, texts: Sequence[str]) -> dict[str, Any]:
    """The request for one batch of vectors. Many servers refuse a text without any character: it is a space there."""
    return {**settings.body, "model": settings.model, "input": [text or " " for text in texts]}


def sampling(settings: ModelSettings, ask: Ask) -> dict[str, Any]:
    """How the answer is drawn: the ask's own words before the endpoint's. The seed moves with the vote: several votes
    with one seed would be one vote."""
    seed = settings.seed if ask.seed is None else ask.seed
    temperature = settings.temperature if ask.temperature is None else ask.temperature
    drawn = {
        "temperature": None if temperature is None else float(temperature),
        "seed": None if seed is None else seed + ask.vote,
        "max_tokens": settings.max_tokens if ask.max_tokens is None else ask.max_tokens,
    }
    return {name: value for name, value in drawn.items() if value is not None}


def schema_text(schema: dict[str, Any]) -> str:
    """A schema as it stands in a prompt: equal schemas, equal texts."""
    return msgspec.json.encode(schema, order="sorted").decode()


# --- what comes back ------------------------------------------------------------------------------------------------


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Said(msgspec.Struct, frozen=True):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class _Choice(msgspec.Struct):
    message: _Said = _Said()
    delta: _Said = _Said()
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    """A completion, or one piece of a stream."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


class _Vector(msgspec.Struct):
    embedding: list[float]
    index: int


class _Embeddings(msgspec.Struct):
    data: list[_Vector] | None = None
    usage: _Usage | None = None
    error: Any = None


class Vectors(msgspec.Struct, frozen=True, kw_only=True):
    """One vector for each text, in order, and the tokens that they had, None where the server doesn't say."""

    vectors: list[list[float]]
    prompt_tokens: int | None

    @property
    def tokens(self) -> int | None:
        """Of the texts; None where the server doesn't say."""
        return self.prompt_tokens


def read_completion(content: bytes) -> Reply:
    """The body of a 200. Raises CallError."""
    completion = _decode(content, _Completion)
    if not completion.choices:
        raise CallError("unavailable", "an answer that is no completion", content=content)
    choice = completion.choices[0]
    return _reply([choice.message], choice.finish_reason, completion.usage)


class StreamReader:
    """Puts a stream's pieces together."""

    def __init__(self) -> None:
        self._said: list[_Said] = []
        self._finish: str | None = None
        self._usage: _Usage | None = None
        self._done = False

    def feed(self, data: bytes) -> bool:
        """Take in one event's data; True if it has text. Raises CallError."""
        if data.strip() == b"[DONE]":
            self._done = True
            return False
        piece = _decode(data, _Completion)
        self._usage = piece.usage or self._usage  # the last counts, where each piece has one
        if not piece.choices:
            return False
        choice = piece.choices[0]
        self._said.append(choice.delta)
        self._finish = choice.finish_reason or self._finish
        return bool(choice.delta.content)

    def reply(self) -> Reply:
        """What was said, at the end. Raises CallError for a stream that ended before it did."""
        if not (self._done or self._finish):
            raise CallError("unavailable", "the stream ended before the answer did")
        return _reply(self._said, self._finish, self._usage)


async def stream_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of each server-sent event. Lines end with LF or CRLF and nothing else: a text may have U+2028."""
    rest = b""
    data: list[bytes] = []
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data = []
    if rest.startswith(b"data:"):
        data.append(rest[5:].strip())
    if data:
        yield b"\n".join(data)


def read_embeddings(content: bytes, count: int, dimensions: int | None) -> Vectors:
    """The body of a 200 for `count` texts. Raises CallError."""
    embeddings = _decode(content, _Embeddings)
    if embeddings.data is None:
        raise CallError("unavailable", "an answer without embeddings", content=content)
    rows = {row.index: row.embedding for row in embeddings.data}
    if rows.keys() != set(range(count)) or len(embeddings.data) != count:
        raise CallError("nonsense", f"{len(embeddings.data)} vectors for {count} texts")
    for row in rows.values():
        if len(row) != dimensions:
            raise CallError(
                "refused",
                f"vectors of {len(row)} dimensions, and not {dimensions}: set dimensions = {len(row)}",
            )
    return Vectors(
        vectors=[rows[i] for i in range(count)],
        prompt_tokens=embeddings.usage.prompt_tokens if embeddings.usage else None,
    )


def status_error(status: int, content: bytes, retry_after_s: float | None) -> CallError:
    """What an answer other than 200 means."""
    name = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "unknown status"
    what = f"{status} {name}"
    if status == 429 and not any(word in content for word in _QUOTA):
        return CallError(
            "busy", what, content=content, overloaded=True, retry_after_s=retry_after_s, status=status
        )
    if status >= 500 or status in (408, 409, 425):
        overloaded = status in (408, 503, 504, 529)
        return CallError(
            "unavailable",
            what,
            content=content,
            overloaded=overloaded,
            retry_after_s=retry_after_s,
            status=status,
        )
    return CallError("refused", what, content=content, status=status)


def _reply(said: Sequence[_Said], finish: str | None, usage: _Usage | None) -> Reply:
    refusal = "".join(piece.refusal or "" for piece in said)
    if refusal:
        raise CallError("refused", "the model declines", content=refusal.encode())
    if finish == "content_filter":
        raise CallError("refused", "the server's content filter stopped the answer")
    return Reply(
        text="".join(piece.content or "" for piece in said),
        finish=finish or "",
        tool_calls=_tool_calls(said),
        prompt_tokens=usage.prompt_tokens if usage else None,
        completion_tokens=usage.completion_tokens if usage else None,
    )


def _tool_calls(said: Sequence[_Said]) -> tuple[dict[str, Any], ...]:
    """A stream brings each call in pieces, which say to which they belong; a whole answer has no such numbers."""
    calls: dict[int, dict[str, Any]] = {}
    for piece in said:
        for number, part in enumerate(piece.tool_calls or ()):
            fields = {name: value for name, value in part.items() if name != "index" and value is not None}
            call = calls.setdefault(part.get("index", number), {})
            function = {**call.get("function", {})}
            for name, value in (fields.pop("function", None) or {}).items():
                function[name] = function.get(name, "") + (value or "")
            call.update(fields, function=function)
    return tuple(calls[number] for number in sorted(calls))


C = TypeVar("C", _Completion, _Embeddings)


def _decode(content: bytes, kind: type[C]) -> C:
    try:
        value = msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CallError("unavailable", f"an answer that can't be read: {error}", content=content) from error
    if value.error:  # some gateways say 200 and then this
        code = value.error.get("code") if isinstance(value.error, dict) else None
        raise status_error(code if isinstance(code, int) and code >= 400 else 500, content, None)
    return value


def _said(content: bytes) -> str:
    """The error's text where it has the usual form, else the body."""
    try:
        error = msgspec.json.decode(content)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return content[:SAID_BYTES].decode(errors="replace")
