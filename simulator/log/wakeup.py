"""Wake-up across processes without polling: one Unix datagram socket for each waiting reader.

All readers of one log bind their sockets in one folder under the temporary directory, whose name comes from
the log's real path and inode. A socket's file name ends in the reader's *interest*: a bit set of hashed
topic names. After a commit the writer sends one byte to every socket whose interest meets the topics that it
wrote to. Full buffers are ignored (the reader has a byte to wake up on already) and sockets of dead
processes are removed.

A reader binds before it looks at the log and empties its socket before each look, so a commit after its look
always finds a socket to wake. Processes with different temporary directories do not see each other's
sockets: readers look again after `SAFETY_NET_S` in any case.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import socket
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import anyio

from simulator.errors import LogError

SAFETY_NET_S = 1.0
"""A waiting reader looks at the log this often even if nobody wakes it."""

_INTEREST_BITS = 48
_LONGEST_TEMP_DIR = 45  # a socket's whole path may be 103 bytes on macOS, 107 on Linux
_numbers = itertools.count()


def interest_of(topics: Iterable[str]) -> int:
    """The bit set of hashed topic names. Two sets that share a topic share a bit."""
    interest = 0
    for topic in topics:
        interest |= 1 << (zlib.crc32(topic.encode()) % _INTEREST_BITS)
    return interest


def wakeup_folder(log: Path) -> Path:
    """Where the readers of a log bind their sockets. The log must exist."""
    real = log.resolve()
    stat = real.stat()
    digest = hashlib.sha256(f"{real}\0{stat.st_dev}\0{stat.st_ino}".encode()).hexdigest()[:12]
    temp = tempfile.gettempdir()
    base = temp if len(os.fsencode(temp)) <= _LONGEST_TEMP_DIR else "/tmp"  # too long for a socket's path
    return Path(base) / f"ego-{os.getuid()}-{digest}"


class Listener:
    """A reader's socket. `drain`, then look at the log, then `wait`."""

    def __init__(self, folder: Path, topics: Iterable[str]) -> None:
        name = f"{os.getpid():x}.{next(_numbers):x}.{interest_of(topics):x}"
        self._path = folder / name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            self._bind(folder)
        except OSError as error:
            self._socket.close()
            raise LogError(f"can't make the wake-up socket {self._path}: {error}; set TMPDIR") from error

    def _bind(self, folder: Path) -> None:
        for _ in range(10):  # another process may remove the empty folder between the two calls
            folder.mkdir(mode=0o700, exist_ok=True)
            try:
                self._socket.bind(str(self._path))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:  # left by a dead process that had our id
                    self._path.unlink(missing_ok=True)
                elif error.errno != errno.ENOENT:
                    raise
            else:
                return
        raise OSError(errno.EADDRINUSE, "the socket's path stays in use")

    def drain(self) -> None:
        """Forget the wake-ups so far."""
        with contextlib.suppress(BlockingIOError):  # empty: that is the goal
            while True:
                self._socket.recv(16)

    async def wait(self, timeout_s: float) -> None:
        """Return at the next wake-up, or after `timeout_s`, or after `SAFETY_NET_S`."""
        with anyio.move_on_after(min(timeout_s, SAFETY_NET_S)):
            await anyio.wait_readable(self._socket)

    def close(self) -> None:
        """Stop being woken, and tidy up after oneself."""
        self._socket.close()
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others still listen, or removed it
            self._path.parent.rmdir()


class Notifier:
    """The writer's side. Not for use from two threads at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.fspath(folder)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def wake(self, topics: Iterable[str]) -> None:
        """Wake every reader that may be interested in one of the topics."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return  # nobody has ever waited
        interest = interest_of(topics) if names else 0
        for name in names:
            if int(name.rpartition(".")[2], 16) & interest:
                self._send(f"{self._folder}/{name}")

    def _send(self, path: str) -> None:
        try:
            self._socket.sendto(b"\0", path)
        except ConnectionRefusedError:
            with contextlib.suppress(FileNotFoundError):  # another writer was first to remove it
                os.unlink(path)
        except OSError:
            # full, or just closed; a commit must not look failed, and readers look again by themselves
            pass

    def close(self) -> None:
        """Let go of the socket, and of the folder if killed readers were its last."""
        self._socket.close()
        with contextlib.suppress(OSError):  # others still listen, or nobody ever did
            os.rmdir(self._folder)
