"""What a configured model can do: each thing is asked for once, past the cache and without another try."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal

import msgspec
import numpy as np

from adapters.endpoints.http import EMBEDDINGS, MODELS, Connections, Timing, Wire
from adapters.endpoints.parsing import UnfitError, parse, schema_of
from adapters.endpoints.settings import STRUCTURED, ModelSettings, Structured, key_of
from adapters.endpoints.wire import (
    CallError,
    Dialect,
    Reply,
    Vectors,
    chat_body,
    embeddings_body,
    read_embeddings,
)
from adapters.http_client import shown
from adapters.model import Ask, Message

ANSWER_TOKENS = 1024
"""Some models think before they answer."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing asked for. `detail`: what came, or why nothing did; `seconds`: how long that took."""

    what: str
    works: bool
    detail: str
    seconds: float


class Checks(msgspec.Struct, frozen=True, kw_only=True):
    """What came of all. `works`: the model can be used as it is configured; `advice`: what to set, in TOML or words."""

    model: str
    works: bool
    checks: list[Check]
    advice: list[str]


class Colour(msgspec.Struct, frozen=True, kw_only=True):
    """What the model is asked for. Where nothing in the question says so, only a server that keeps to schemas makes
    it fit."""

    colour: str
    brightness: Literal["dark", "light"]


_QUESTION = Ask(
    messages=(Message(role="user", content="What colour is the sky at noon? Answer in a few words."),),
    max_tokens=ANSWER_TOKENS,
)


async def check_model(name: str, settings: ModelSettings) -> Checks:
    """Ask a model for all that it may be used for. Raises ConfigError where its key is missing."""
    key = key_of(settings, name)
    connections = Connections(settings.base_url)
    try:
        wire = Wire(connections, settings, key)
        check = _check_chat if settings.kind == "chat" else _check_embeddings
        return await check(name, settings, wire)
    finally:
        await connections.aclose()


async def _check_chat(name: str, settings: ModelSettings, wire: Wire) -> Checks:
    chat = await _checked("chat", partial(_plain, settings, wire, stream=False))
    checks, advice = [await _checked("models", partial(_listed, settings, wire)), chat], []
    works = chat.works
    if chat.works:
        stream = await _checked("stream", partial(_plain, settings, wire, stream=True))
        forms = {form: await _checked(form, partial(_formed, settings, wire, form)) for form in STRUCTURED}
        checks += [stream, *forms.values()]
        best = next((form for form, check in forms.items() if check.works), None)
        if best is None:
            advice.append("it gives no JSON that fits: it can answer, but not judge or extract")
        elif best != settings.structured:
            advice.append(f'structured = "{best}"')
        if settings.stream and not stream.works:
            works = False
            advice.append("stream = false")
    return Checks(model=name, works=works, checks=checks, advice=advice)


async def _check_embeddings(name: str, settings: ModelSettings, wire: Wire) -> Checks:
    embeddings = await _checked("embeddings", partial(_embedded, settings, wire))
    listed = await _checked("models", partial(_listed, settings, wire))
    return Checks(model=name, works=embeddings.works, checks=[listed, embeddings], advice=[])


async def _checked(what: str, ask: Callable[[], Awaitable[str]]) -> Check:
    began_s = time.perf_counter()
    try:
        works, detail = True, await ask()
    except (CallError, UnfitError) as error:
        works, detail = False, error.reason if isinstance(error, CallError) else str(error)
    return Check(what=what, works=works, detail=detail, seconds=time.perf_counter() - began_s)


class _Listed(msgspec.Struct):
    id: str


class _List(msgspec.Struct):
    data: list[_Listed]


async def _listed(settings: ModelSettings, wire: Wire) -> str:
    content = await wire.get(MODELS, settings.timeout_s)
    try:
        names = [model.id for model in msgspec.json.decode(content, type=_List).data]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnfitError(f"no list of models: {error}") from error
    if settings.model not in names:
        raise UnfitError(f"{settings.model} is not in its list: {', '.join(names[:8]) or 'none'}")
    return f"{settings.model} is in its list"


async def _plain(settings: ModelSettings, wire: Wire, *, stream: bool) -> str:
    streaming = msgspec.structs.replace(settings, stream=stream)
    reply, timing = await _tried(streaming, wire, _QUESTION, Dialect(settings.structured))
    if not reply.text.strip():
        raise UnfitError(f"an empty answer (it ended by {reply.finish or 'itself'})")
    counted = "no count of tokens" if reply.tokens is None else f"{reply.tokens} tokens"
    first = "" if timing.first_token_s is None else f", the first after {timing.first_token_s:.2f} s"
    if stream and timing.first_token_s is None:
        raise UnfitError("it does not stream")
    return f"{shown(reply.text.encode())} ({counted}{first})"


async def _formed(settings: ModelSettings, wire: Wire, form: Structured) -> str:
    ask = msgspec.structs.replace(_QUESTION, schema=schema_of(Colour))
    whole = msgspec.structs.replace(settings, stream=False)
    reply, _ = await _tried(whole, wire, ask, Dialect(form))
    try:
        return str(parse(reply.text, Colour))
    except UnfitError as error:
        raise UnfitError(f"{error}; it says: {shown(reply.text.encode())}") from error


async def _tried(settings: ModelSettings, wire: Wire, ask: Ask, dialect: Dialect) -> tuple[Reply, Timing]:
    """One answer; asked again only without what the server doesn't know."""
    send = wire.stream_chat if settings.stream else wire.chat
    while True:
        body: dict[str, Any] = chat_body(settings, ask, dialect)
        form = dialect.structured
        try:
            return await send(msgspec.json.encode(body), settings.timeout_s)
        except CallError as error:
            if dialect.concede(error, body) is None or dialect.structured != form:
                raise


async def _embedded(settings: ModelSettings, wire: Wire) -> str:
    texts = ["What colour is the sky?", "天空是什么颜色？"]

    def read(content: bytes) -> Vectors:
        return read_embeddings(content, len(texts), settings.dimensions)

    body = msgspec.json.encode(embeddings_body(settings, texts))
    vectors, _ = await wire.post(EMBEDDINGS, body, settings.timeout_s, read)
    first, second = np.asarray(vectors.vectors)
    cosine = first @ second / (np.linalg.norm(first) * np.linalg.norm(second))
    counted = "no count of tokens" if vectors.tokens is None else f"{vectors.tokens} tokens"
    return f"{len(first)} dimensions; one sentence in two languages has cosine {cosine:.2f} ({counted})"
