"""One try of a call over HTTP: bytes out, a reply in, or a CallError that says what went wrong."""

from __future__ import annotations

import email.utils
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import anyio
import httpx
import msgspec

from adapters.endpoints.settings import ModelSettings
from adapters.endpoints.wire import (
    CallError,
    Reply,
    StreamReader,
    read_completion,
    status_error,
    stream_events,
)
from adapters.http_client import CONNECT_TIMEOUT_S, MAX_ANSWER_BYTES, is_loopback

R = TypeVar("R")

CHAT = "/chat/completions"
EMBEDDINGS = "/embeddings"
MODELS = "/models"


class Timing(NamedTuple):
    """Seconds from sending to the last byte, and to the first token of a stream."""

    seconds: float
    first_token_s: float | None = None


class Connections:
    """Connections to one server, for all models there. Each call has a client of one connection to itself: httpcore
    looks at every connection of a pool for each call, which at 20 was two thirds of the processor time that a call
    takes. Time-outs are the callers'."""

    def __init__(self, base_url: str) -> None:
        url = httpx.URL(base_url)
        # nothing to verify without TLS; with it, certificates are loaded once, since that is slow
        self._verify = httpx.create_ssl_context() if url.scheme == "https" else False
        self._trust_env = not is_loopback(url.host)  # a proxy can't reach this machine's own addresses
        self._idle: list[httpx.AsyncClient] = []
        self._clients: list[httpx.AsyncClient] = []

    @asynccontextmanager
    async def open(
        self, method: str, url: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx.Response]:
        """Send, and read the answer's body inside."""
        client = self._idle.pop() if self._idle else self._new()
        try:
            async with client.stream(method, url, content=body or None, headers=headers) as response:
                yield response
        finally:
            self._idle.append(client)

    async def aclose(self) -> None:
        """Close them all."""
        for client in self._clients:
            await client.aclose()

    def _new(self) -> httpx.AsyncClient:
        client = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
            trust_env=self._trust_env,
            verify=self._verify,
        )
        self._clients.append(client)
        return client


class Wire:
    """Sends to one server with one key, which it keeps out of all that it says."""

    def __init__(self, connections: Connections, settings: ModelSettings, key: str | None) -> None:
        self._connections = connections
        self._base_url = settings.base_url
        self._headers = {**settings.headers, **({"Authorization": f"Bearer {key}"} if key else {})}
        # as it is, and as addresses and JSON write it
        self._secrets = (key, quote(key, safe=""), key.replace("/", "\\/")) if key else ()

    async def chat(self, body: bytes, timeout_s: float) -> tuple[Reply, Timing]:
        """One try of a chat completion whose answer comes whole. Raises CallError."""
        reply, timing = await self.post(CHAT, body, timeout_s, read_completion)
        return self._hidden(reply), timing

    async def stream_chat(self, body: bytes, timeout_s: float) -> tuple[Reply, Timing]:
        """The same, whose answer comes as server-sent events. Raises CallError."""
        reply, timing = await self._within(timeout_s, lambda: self._streamed(CHAT, body))
        return self._hidden(reply), timing

    async def post(
        self, path: str, body: bytes, timeout_s: float, read: Callable[[bytes], R]
    ) -> tuple[R, Timing]:
        """One try whose answer comes whole. Raises CallError."""
        began_s = time.perf_counter()
        content = await self._within(timeout_s, lambda: self._content("POST", path, body))
        timing = Timing(time.perf_counter() - began_s)
        with self._redacted():
            return read(content), timing

    async def get(self, path: str, timeout_s: float) -> bytes:
        """What is there. Raises CallError."""
        return await self._within(timeout_s, lambda: self._content("GET", path, b""))

    def _hidden(self, reply: Reply) -> Reply:
        """Some say it as if the model did, and what a model says is kept."""
        text = reply.text
        for secret in self._secrets:
            text = text.replace(secret, "[key]")
        return msgspec.structs.replace(reply, text=text)

    @contextmanager
    def _redacted(self) -> Iterator[None]:
        """Servers repeat keys in what they say about them."""
        try:
            yield
        except CallError as error:
            error.hide(self._secrets)
            raise

    async def _within(self, timeout_s: float, work: Callable[[], Awaitable[R]]) -> R:
        try:
            with self._redacted(), anyio.fail_after(timeout_s):
                return await work()
        except TimeoutError as error:
            raise CallError("unavailable", f"no answer within {timeout_s:.3g} s", overloaded=True) from error
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise CallError("unavailable", f"can't connect: {str(error) or type(error).__name__}") from error
        except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
            raise CallError(
                "unavailable", f"the connection broke: {str(error) or type(error).__name__}"
            ) from error
        except httpx.HTTPError as error:
            raise CallError("unavailable", f"{type(error).__name__}: {error}") from error

    async def _content(self, method: str, path: str, body: bytes) -> bytes:
        async with self._open(method, path, body) as response:
            content = await _whole(response.aiter_bytes())
            if response.status_code != 200:
                raise status_error(response.status_code, content, retry_after_s(response.headers))
            return content

    async def _streamed(self, path: str, body: bytes) -> tuple[Reply, Timing]:
        began_s = time.perf_counter()
        first_token_s = None
        async with self._open("POST", path, body) as response:
            if response.status_code != 200:
                content = await _whole(response.aiter_bytes())
                raise status_error(response.status_code, content, retry_after_s(response.headers))
            if "text/event-stream" not in response.headers.get("Content-Type", "text/event-stream"):
                reply = read_completion(await _whole(response.aiter_bytes()))  # it doesn't stream
                return reply, Timing(time.perf_counter() - began_s)
            reader = StreamReader()
            async for data in stream_events(response.aiter_bytes()):
                if reader.feed(data) and first_token_s is None:
                    first_token_s = time.perf_counter() - began_s
        return reader.reply(), Timing(time.perf_counter() - began_s, first_token_s)

    def _open(self, method: str, path: str, body: bytes) -> AbstractAsyncContextManager[httpx.Response]:
        headers = {"Content-Type": "application/json"} | self._headers if body else self._headers
        return self._connections.open(method, self._base_url + path, body, headers)


async def _whole(chunks: AsyncIterator[bytes]) -> bytes:
    content = bytearray()
    async for chunk in chunks:
        content += chunk
        if len(content) > MAX_ANSWER_BYTES:
            raise CallError("unavailable", f"an answer of more than {MAX_ANSWER_BYTES:,} bytes")
    return bytes(content)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long the server asks to be left alone: seconds, or until a date by its own clock, where it tells that."""
    asked = headers.get("retry-after", "").strip()
    try:
        seconds = float(asked)
    except ValueError:
        pass
    else:
        return max(0.0, seconds) if math.isfinite(seconds) else None
    until_s = _unix_s(asked)
    if until_s is None:
        return None
    now_s = _unix_s(headers.get("date", ""))
    return max(0.0, until_s - (time.time() if now_s is None else now_s))


def _unix_s(date: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None
