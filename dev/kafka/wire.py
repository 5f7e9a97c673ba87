"""Two requests of Kafka's wire protocol: enough to know that a broker answers, and which brokers it sees.

Layouts are those of https://kafka.apache.org/protocol: ApiVersions 0 and Metadata 1, the oldest that Kafka 4
still answers. An open port is no sign of a ready broker; an answer that names every broker is.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from typing import NamedTuple

METADATA, API_VERSIONS = 3, 18
LARGEST_ANSWER_BYTES = 1_000_000  # far above what a few brokers need: more is not Kafka speaking
_CORRELATION = 7


class WireError(Exception):
    """The other side does not answer, or answers something else than Kafka's protocol."""


class Metadata(NamedTuple):
    """Which brokers take part, by one broker's word."""

    brokers: dict[int, str]  # id → host:port
    controller: int


class _Reader:
    """Reads big-endian fields; a message that ends early is a WireError."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    def take(self, count: int) -> bytes:
        chunk = self._payload[self._at : self._at + count]
        if count < 0 or len(chunk) < count:
            raise WireError("the answer ends early")
        self._at += count
        return chunk

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def string(self) -> str | None:
        length = self.int16()
        return None if length == -1 else self.take(length).decode(errors="replace")


def metadata(port: int, timeout_s: float, tls: ssl.SSLContext | None = None) -> Metadata:
    """Ask the broker on this loopback port who takes part. Raises WireError."""
    no_topics = struct.pack(">i", 0)
    return parse_metadata(_exchange(port, METADATA, 1, no_topics, timeout_s, tls))


def api_versions(
    port: int, timeout_s: float, tls: ssl.SSLContext | None = None
) -> dict[int, tuple[int, int]]:
    """Ask the broker which requests it knows: key → oldest and newest version. It answers before any
    authentication. Raises WireError."""
    return parse_api_versions(_exchange(port, API_VERSIONS, 0, b"", timeout_s, tls))


def request(api_key: int, api_version: int, body: bytes) -> bytes:
    """One framed request, with our correlation number and client id."""
    client = b"egostream-dev"
    header = struct.pack(">hhih", api_key, api_version, _CORRELATION, len(client)) + client
    return struct.pack(">i", len(header) + len(body)) + header + body


def parse_metadata(payload: bytes) -> Metadata:
    """The answer to Metadata 1, without its frame. Raises WireError."""
    reader = _opened(payload)
    brokers = {}
    for _ in range(reader.int32()):
        node, host, port, _rack = reader.int32(), reader.string(), reader.int32(), reader.string()
        brokers[node] = f"{host}:{port}"
    return Metadata(brokers, reader.int32())


def parse_api_versions(payload: bytes) -> dict[int, tuple[int, int]]:
    """The answer to ApiVersions 0, without its frame. Raises WireError."""
    reader = _opened(payload)
    if code := reader.int16():
        raise WireError(f"the broker refuses with error code {code}")
    return {reader.int16(): (reader.int16(), reader.int16()) for _ in range(reader.int32())}


def _opened(payload: bytes) -> _Reader:
    reader = _Reader(payload)
    if reader.int32() != _CORRELATION:
        raise WireError("the answer belongs to another request")
    return reader


def _exchange(
    port: int, key: int, version: int, body: bytes, timeout_s: float, tls: ssl.SSLContext | None
) -> bytes:
    deadline = time.monotonic() + timeout_s
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as plain:
            if tls is None:
                return _ask(plain, request(key, version, body), deadline)
            with tls.wrap_socket(plain, server_hostname="127.0.0.1") as secured:
                return _ask(secured, request(key, version, body), deadline)
    except OSError as error:  # time-outs and TLS errors are OSErrors too
        raise WireError(f"127.0.0.1:{port}: {error}") from error


def _ask(connection: socket.socket, framed: bytes, deadline: float) -> bytes:
    connection.sendall(framed)
    (length,) = struct.unpack(">i", _receive(connection, 4, deadline))
    if not 0 < length <= LARGEST_ANSWER_BYTES:
        raise WireError(f"an answer of {length} bytes: this is no Kafka listener of the expected kind")
    return _receive(connection, length, deadline)


def _receive(connection: socket.socket, count: int, deadline: float) -> bytes:
    received = bytearray()
    while len(received) < count:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = connection.recv(count - len(received))
        if not chunk:
            raise WireError("the broker closed the connection")
        received += chunk
    return bytes(received)
