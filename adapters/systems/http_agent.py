"""A memory system behind HTTP: docs/http-agent.md has what travels, for whoever writes the other side."""

from __future__ import annotations

import copy
import itertools
import os
import uuid
from http import HTTPStatus
from typing import Literal, Self, TypeVar

import anyio
import msgspec
import structlog

from adapters.http_client import HttpClient, HttpError, shown
from adapters.memory import Answer, Capabilities, Delta, Interaction, LaneContext, Request, Segment
from simulator.errors import ConfigError, MemorySystemError
from simulator.events import MemoryRecord, Usage

T = TypeVar("T")
HttpFork = Literal["cheap", "replay", "none"]
Operation = Literal["ingest", "answer", "commit", "fork", "close"]

_NO_SUCH_CALL = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)

_log = structlog.get_logger(__name__)


class AgentContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane's memory is made with: a `LaneContext` without what only privileged systems see."""

    lane: str
    stream: str
    seed: int
    top_k: int
    word_budget: int


class ForkCall(msgspec.Struct, frozen=True, kw_only=True):
    """`/fork`: from now on there is a memory `fork`, a copy of `memory` as it is now; empty for null."""

    memory: str | None
    fork: str
    context: AgentContext


class IngestCall(msgspec.Struct, frozen=True, kw_only=True):
    """`/ingest`: take in one closed segment."""

    memory: str
    segment: Segment


class AnswerCall(msgspec.Struct, frozen=True, kw_only=True):
    """`/answer`: answer from what is stored, and change nothing."""

    memory: str
    request: Request


class CommitCall(msgspec.Struct, frozen=True, kw_only=True):
    """`/commit`: take a finished conversation into this memory."""

    memory: str
    interaction: Interaction


class CloseCall(msgspec.Struct, frozen=True, kw_only=True):
    """`/close`: this memory is not needed any more."""

    memory: str


class DeltaReply(msgspec.Struct, frozen=True, kw_only=True):
    """A `Delta` whose `records` must be there: an answer of another shape is no memory that wrote nothing."""

    records: tuple[MemoryRecord, ...]
    stored_bytes: int = 0
    usage: Usage = Usage()


class HttpMemory:
    """Your own memory behind an HTTP server, in any language (docs/http-agent.md).

    `url`: the server's address. `fork`: `cheap`, or for a server that can't `replay` (each branch is a new memory
    that ingests the stream's prefix again) or `none` (the run needs `--isolation shared`). `timeout_s`: how long
    one try of a call may take. `attempts`: tries of a call whose connection fails, or that is answered with 429 or
    503. `token_env`: name of an environment variable with a bearer token.

    `fork` is told to the server later, but before anything that its moment depends on: before the next call
    of the fork itself, and before the next change of the memory that it was made from.
    """

    __slots__ = ("_closed", "_forks", "_id", "_lost", "_origin", "_shared", "_telling", "_told")

    def __init__(
        self,
        context: LaneContext,
        *,
        url: str = "",
        fork: HttpFork = "cheap",
        timeout_s: float = 120.0,
        attempts: int = 6,
        token_env: str = "",
    ) -> None:
        if not url:
            raise ConfigError("http needs the server's address: --system http:url=http://127.0.0.1:8000")
        if timeout_s <= 0 or attempts < 1:
            raise ConfigError("http: timeout_s must be above 0, and attempts at least 1")
        token = os.environ.get(token_env, "") if token_env else None
        if token == "":
            raise ConfigError(f"http: there is no {token_env} in the environment")
        client = HttpClient(url, timeout_s=timeout_s, attempts=attempts, token=token)
        self._shared = _Shared(client, context, can_fork=fork == "cheap")
        self._begin(None)

    @staticmethod
    def capabilities(*, fork: HttpFork = "cheap", **_: object) -> Capabilities:
        """What the options declare."""
        return Capabilities(fork=fork)

    @property
    def name(self) -> str:
        """What the server calls this memory."""
        return self._id

    def _begin(self, origin: HttpMemory | None) -> None:
        self._id = self._shared.open_memory()
        self._origin = origin
        self._told = False
        self._lost: str | None = None
        """Why the server has no such memory, and never will: its moment is over."""
        self._forks: dict[str, HttpMemory] = {}
        """Forks of this memory that the server was not told of yet, in order."""
        self._telling = anyio.Lock()
        self._closed = False

    async def ingest(self, segment: Segment) -> Delta:
        """Send one closed segment."""
        return await self._change("ingest", IngestCall(memory=self._id, segment=segment))

    async def answer(self, request: Request) -> Answer:
        """Ask."""
        call = AnswerCall(memory=self._id, request=request)
        try:
            await self._tell()
            return await self._shared.ask("answer", call, Answer)
        except HttpError as error:
            raise MemorySystemError(self._shared.context.lane, "answer", str(error)) from error

    async def commit(self, interaction: Interaction) -> Delta:
        """Send a finished conversation."""
        return await self._change("commit", CommitCall(memory=self._id, interaction=interaction))

    def fork(self) -> Self:
        """A name for a copy of this memory as it is now. Not while a change is under way."""
        if not self._shared.can_fork:
            raise MemorySystemError(self._shared.context.lane, "fork", "declared as a server that can't fork")
        fork = copy.copy(self)
        fork._begin(self)
        self._forks[fork._id] = fork
        return fork

    async def aclose(self) -> None:
        """Tell the server that this memory is needed no more; the last one closes the connections. A server
        that can't be told is logged once a lane."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._lost is None and (self._told or self._forks):
                await self._tell_forks()
                await self._shared.send("close", CloseCall(memory=self._id), attempts=1)
            elif self._origin is not None:
                self._origin._forks.pop(self._id, None)  # it was never used: nobody needs to know
        except HttpError as error:
            self._shared.close_failed(error)
        finally:
            await self._shared.release()

    async def announce(self) -> None:
        """Make this memory known to the server now, and not with its first call. Raises MemorySystemError."""
        try:
            await self._tell()
        except HttpError as error:
            raise MemorySystemError(self._shared.context.lane, "fork", str(error)) from error

    async def forget(self) -> None:
        """Close it without a word: its server is gone."""
        self._lost = "its server is gone"
        await self.aclose()

    async def _change(self, operation: Literal["ingest", "commit"], call: IngestCall | CommitCall) -> Delta:
        try:
            await self._tell_forks()
            reply = await self._shared.ask(operation, call, DeltaReply)
        except HttpError as error:
            raise MemorySystemError(self._shared.context.lane, operation, str(error)) from error
        return Delta(records=reply.records, stored_bytes=reply.stored_bytes, usage=reply.usage)

    async def _tell(self) -> None:
        """Make this memory known to the server, and before it those that it comes from."""
        async with self._telling:
            if self._lost is not None:
                raise HttpError(self._lost)
            if self._told:
                return
            origin = self._origin
            if origin is not None:
                await origin._tell()
            call = ForkCall(
                memory=None if origin is None else origin._id, fork=self._id, context=self._shared.context
            )
            await self._shared.send("fork", call, key=self._id)
            self._told, self._origin = True, None
            if origin is not None:
                origin._forks.pop(self._id, None)

    async def _tell_forks(self) -> None:
        """Make this memory known, and all its forks as it is now: it is about to change or to go. A fork that
        the server refuses is lost, and that alone; where nobody answers at all, the change can't happen
        either."""
        await self._tell()
        while self._forks:
            fork = next(iter(self._forks.values()))
            try:
                await fork._tell()
            except HttpError as error:
                if not error.reached:
                    raise
                fork._lost = str(error)
                self._forks.pop(fork._id, None)


class _Shared:
    """What the memories of one lane have in common: the connections, and names that no other run uses."""

    def __init__(self, client: HttpClient, context: LaneContext, *, can_fork: bool) -> None:
        self.can_fork = can_fork
        self.context = AgentContext(
            lane=context.lane,
            stream=context.stream,
            seed=context.seed,
            top_k=context.top_k,
            word_budget=context.word_budget,
        )
        self._client = client
        self._prefix = f"{context.lane}/{uuid.uuid4().hex[:12]}"
        self._numbers = itertools.count()
        self._open = 0
        self._close_failed = False

    def open_memory(self) -> str:
        """A new memory's name."""
        self._open += 1
        return f"{self._prefix}/{next(self._numbers)}"

    async def send(
        self,
        operation: Operation,
        body: msgspec.Struct,
        *,
        key: str | None = None,
        attempts: int | None = None,
    ) -> bytes:
        """One call, and what came back. Raises HttpError."""
        return await self._client.post(
            f"/{operation}", msgspec.json.encode(body), key or uuid.uuid4().hex, attempts=attempts
        )

    async def ask(self, operation: Operation, body: msgspec.Struct, gives: type[T]) -> T:
        """One call, and its answer. Raises HttpError, also for an answer that is no `gives`."""
        content = await self.send(operation, body)
        try:
            return msgspec.json.decode(content, type=gives)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            said = shown(content) or "an empty answer"
            raise HttpError(f"{self._client.url}/{operation}: {error}; it said: {said}") from error

    def close_failed(self, error: HttpError) -> None:
        """Log the first one: there may be thousands, and they say the same. A server without `/close` keeps
        what it has, and that is its own affair."""
        if not self._close_failed and error.status not in _NO_SUCH_CALL:
            self._close_failed = True
            _log.warning("close_failed", lane=self.context.lane, error=str(error))

    async def release(self) -> None:
        """A memory was closed."""
        self._open -= 1
        if not self._open:
            await self._client.aclose()
