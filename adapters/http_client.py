"""Calls to somebody else's HTTP server: JSON in, bytes out, with a deadline, few retries, and a reason that
people can read for whatever goes wrong.

Retried, with growing pauses, are connections that fail or break, and the answers 429 and 503, since those say
that nothing was done. A call may have been done when its connection broke: every call carries an
`Idempotency-Key`, the same in each try, by which the server knows a call that it has done. Nothing else is
retried.
"""

from __future__ import annotations

import ipaddress
import random
from http import HTTPStatus

import anyio
import httpx

from simulator.errors import ConfigError

CONNECT_TIMEOUT_S = 10.0
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 30.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024
_SHOWN_CHARACTERS = 200
_BROKEN = (httpx.NetworkError, httpx.ConnectTimeout, httpx.RemoteProtocolError)
_RETRIED_STATUS = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}


class HttpError(Exception):
    """A call failed; the message says how. `reached`: a server answered, though not as it should have, or it
    took too long. `status`: of that answer, if there was one."""

    def __init__(self, reason: str, *, reached: bool = True, status: int | None = None) -> None:
        self.reached = reached
        self.status = status
        super().__init__(reason)


class HttpClient:
    """One server. `timeout_s`: how long one try may take; `attempts`: tries for a call, the first included.

    A server that could not be reached in all its tries gets a single one for each further call, until it
    answers again: a run whose server died ends in seconds, not in hours of waiting."""

    def __init__(self, url: str, *, timeout_s: float, attempts: int, token: str | None = None) -> None:
        self.url = checked_url(url)
        parsed = httpx.URL(self.url)
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._unreachable = False
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(None, connect=min(CONNECT_TIMEOUT_S, timeout_s)),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            trust_env=not is_loopback(parsed.host),  # a proxy can't reach this machine's own addresses
            verify=parsed.scheme == "https",  # nothing to verify otherwise, and loading certificates is slow
        )

    async def post(self, path: str, body: bytes, key: str, *, attempts: int | None = None) -> bytes:
        """The body of the 2xx answer to one call. Raises HttpError."""
        tries = 1 if self._unreachable else attempts or self._attempts
        number = 0
        while True:
            number += 1
            status, pause_s = None, None
            try:
                status, pause_s, content = await self._try(path, body, key)
            except _BROKEN as broken:
                what = _connection(broken)
            else:
                self._unreachable = False
                if 200 <= status < 300:
                    return content
                what = _answer(status, content)
            retried = status is None or status in _RETRIED_STATUS
            if not retried or number >= tries:
                self._unreachable |= status is None and attempts is None
                counted = f" ({number} tries)" if number > 1 else ""
                raise HttpError(self._says(path, what + counted), reached=status is not None, status=status)
            await anyio.sleep(min(_backoff_s(number) if pause_s is None else pause_s, LONGEST_PAUSE_S))

    async def _try(self, path: str, body: bytes, key: str) -> tuple[int, float | None, bytes]:
        """Status, the pause that the server asks for, and the whole body."""
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Idempotency-Key": key}
        content = bytearray()
        with anyio.move_on_after(self._timeout_s) as scope:
            try:
                async with self._client.stream(
                    "POST", f"{self.url}{path}", content=body, headers=headers
                ) as response:
                    async for chunk in response.aiter_bytes():
                        content += chunk
                        if len(content) > MAX_ANSWER_BYTES:
                            raise HttpError(
                                self._says(path, f"an answer of more than {MAX_ANSWER_BYTES:,} bytes")
                            )
            except _BROKEN:
                raise
            except httpx.HTTPError as error:
                raise HttpError(self._says(path, f"{type(error).__name__}: {error}")) from error
        if scope.cancelled_caught:
            raise HttpError(self._says(path, f"no answer within {self._timeout_s:g} s"))
        asked = response.headers.get("Retry-After", "")
        return response.status_code, float(asked) if asked.isdecimal() else None, bytes(content)

    def _says(self, path: str, what: str) -> str:
        return f"{self.url}{path}: {what}"

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def checked_url(url: str) -> str:
    """The address without a slash at its end. Raises ConfigError for what is no http or https address."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise ConfigError(f"{url!r} is no address: {error}") from error
    if parsed.userinfo:  # not shown: it may hold a password
        raise ConfigError(
            "an address with a user name or password in it would be kept with the run: leave it out"
        )
    if parsed.scheme not in ("http", "https") or not parsed.host or (parsed.port or 1) > 65535:
        raise ConfigError(f"{url!r} is no address: write it as http://HOST:PORT")
    if parsed.query or parsed.fragment:
        raise ConfigError(f"{url!r}: an address ends before any '?' or '#'")
    return url.rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _backoff_s(number: int) -> float:
    # uneven, so that many calls that failed together don't all come again together
    return FIRST_PAUSE_S * 2.0 ** (number - 1) * random.uniform(0.75, 1.25)


def _connection(broken: Exception) -> str:
    if isinstance(broken, httpx.ConnectError | httpx.ConnectTimeout):
        return f"can't connect: {_one_line(str(broken)) or type(broken).__name__}"
    return f"the connection broke: {_one_line(str(broken)) or type(broken).__name__}"


def _answer(status: int, content: bytes) -> str:
    name = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "unknown status"
    said = shown(content)
    return f"{status} {name}" + (f": {said}" if said else "")


def shown(content: bytes) -> str:
    """The beginning of somebody's answer, on one line."""
    text = _one_line(content[: 4 * _SHOWN_CHARACTERS].decode(errors="replace"))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
