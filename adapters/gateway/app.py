"""The gateway's HTTP: each memory's chat completions, embeddings and models, under an address of its own."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import msgspec
import structlog
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from adapters.embedder import default_embedder
from adapters.gateway import replies
from adapters.gateway.lanes import Gateway, Memory
from adapters.gateway.requests import BadRequestError, Chat, read_chat, read_embed
from adapters.gateway.stages import Stage
from adapters.metering import estimated_tokens, metered
from adapters.model import Model, Said
from simulator.errors import EgostreamError, ModelError

_FAILED_FOR_GOOD: Final = 424
"""Failed Dependency: clients try 408, 409, 429 and 5xx again, which we have done already."""
_NEVER_AGAIN: Final = {"x-should-retry": "false"}
_RETRIED: Final = "x-stainless-retry-count"
"""OpenAI's client counts here how often it sent a request before."""

_log = structlog.get_logger(__name__)

Answer = Callable[[Memory, Stage, Request, bytes], Awaitable[Response]]


def gateway_app(gateway: Gateway, token: str) -> Starlette:
    """The web application. Addresses without the token, and of no memory, are unknown."""

    def under(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            given, name = request.path_params["token"], request.path_params["memory"]
            memory = gateway.find(name) if secrets.compare_digest(given.encode(), token.encode()) else None
            if memory is None:
                return _error(404, "no memory has this address", "not_found")
            return await _counted(gateway, memory, request, answer)

        return endpoint

    memory = "/{token}/m/{memory:path}/v1"
    return Starlette(
        routes=[
            Route(f"{memory}/chat/completions", under(_chat), methods=["POST"]),
            Route(f"{memory}/embeddings", under(_embeddings), methods=["POST"]),
            Route(f"{memory}/models", under(_models), methods=["GET"]),
            Route(f"{memory}/{{rest:path}}", under(_unknown), methods=["POST"]),
        ]
    )


async def _counted(gateway: Gateway, memory: Memory, request: Request, answer: Answer) -> Response:
    """Answer for the stage that is open as the call comes; what fails for good fails the stage."""
    stage = memory.stage
    with stage.call(), gateway.cancelled_at_close():
        try:
            body = await request.body()
        except ClientDisconnect:
            return Response(status_code=400)  # to nobody
        try:
            return await answer(memory, stage, request, body)
        except BadRequestError as error:
            failed, response = (
                ModelError(memory.name, "refused", f"{request.url.path.rpartition('/v1')[2]}: {error}"),
                _error(400, str(error), "not_supported", error.param),
            )
        except ModelError as error:
            status = 400 if error.failure == "refused" else _FAILED_FOR_GOOD
            failed, response = error, _error(status, str(error), error.failure)
        except EgostreamError as error:  # the encoder, or the cache
            failed = ModelError(memory.name, "unavailable", str(error))
            response = _error(_FAILED_FOR_GOOD, str(error), failed.failure)
        except Exception as error:  # a bug of ours, which the system may swallow like anything else
            _log.exception("gateway_failed", memory=memory.name)
            failed = ModelError(memory.name, "unavailable", f"{type(error).__name__}: {error}")
            response = _error(500, failed.reason, failed.failure)
        memory.fail(stage, _digest(request, body), failed)
        return response
    return _error(_FAILED_FOR_GOOD, "the run is over", "closed")


async def _chat(memory: Memory, stage: Stage, request: Request, body: bytes) -> Response:
    lane, digest = memory.lane, _digest(request, body)
    chat = read_chat(body, seed=lane.seed)
    if lane.model is None:
        raise BadRequestError("this system has no model: name one by its option", "model")
    with stage.number(digest, again=request.headers.get(_RETRIED, "0") != "0") as number:
        said = await _choices(lane.model, chat, number * chat.n, stage)
    stage.answered(digest)
    key = hashlib.sha256(digest + number.to_bytes(8)).hexdigest()[:24]
    if chat.stream:
        return Response(b"".join(replies.stream(chat, key, said)), media_type="text/event-stream")
    return _json(replies.completion(chat, key, said))


async def _choices(model: Model, chat: Chat, first: int, stage: Stage) -> list[Said]:
    """As many answers as are wanted. Raises what one of them does once all have come to something: they are paid."""
    found: dict[int, Said] = {}
    failures: dict[int, Exception] = {}

    async def ask(number: int) -> None:
        try:
            found[number] = await model.ask(msgspec.structs.replace(chat.ask, vote=first + number))
        except Exception as error:
            failures[number] = error
        else:
            stage.spent(found[number].usage)

    async with anyio.create_task_group() as asking:
        for number in range(chat.n):
            asking.start_soon(ask, number)
    if failures:
        raise failures[min(failures)]
    return [found[number] for number in range(chat.n)]


async def _embeddings(memory: Memory, stage: Stage, request: Request, body: bytes) -> Response:
    embed = read_embed(body)
    embedder = memory.lane.embedder or default_embedder()
    if embed.dimensions not in (None, embedder.dimensions):
        raise BadRequestError(
            f"dimensions is {embed.dimensions}, and the vectors of {embedder.name} have {embedder.dimensions}: "
            "set that in the system, or leave it away",
            "dimensions",
        )
    with metered() as meter:
        try:
            rows = await embedder.embed(embed.texts)
        finally:
            stage.embedded(len(embed.texts), meter)
    stage.answered(_digest(request, body))
    return _json(replies.vectors(embed, rows, sum(map(estimated_tokens, embed.texts))))


async def _models(memory: Memory, _stage: Stage, _request: Request, _body: bytes) -> Response:
    return _json(replies.models(memory.lane.names))


async def _unknown(_memory: Memory, _stage: Stage, _request: Request, _body: bytes) -> Response:
    raise BadRequestError(
        "this is not known here: there are POST /chat/completions, POST /embeddings, and GET /models"
    )


def _digest(request: Request, body: bytes) -> bytes:
    return hashlib.sha256(request.url.path.encode() + b"\0" + body).digest()


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


def _error(status: int, message: str, code: str, param: str | None = None) -> Response:
    kind = "model_error" if status == _FAILED_FOR_GOOD else "invalid_request_error"
    return Response(
        replies.error(message, kind, code, param),
        status_code=status,
        headers=_NEVER_AGAIN,
        media_type="application/json",
    )
