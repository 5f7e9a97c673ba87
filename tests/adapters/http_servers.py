"""HTTP servers for the tests, as real processes: the example, one that misbehaves, and one that serves any
memory system of ours.

    python -m tests.adapters.http_servers example
    python -m tests.adapters.http_servers MODE [AFTER]      good for AFTER calls, then as MODE says
    python -m tests.adapters.http_servers serve SPEC        a memory system as `--system` names it
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
import msgspec

from adapters.memory import LaneContext, MemorySystem
from adapters.registry import open_system
from adapters.systems.http_agent import AnswerCall, CloseCall, CommitCall, ForkCall, IngestCall
from examples.http_agent.server import Handler
from tests.conftest import ROOT


@contextmanager
def server(*arguments: str) -> Iterator[str]:
    """The address of a server that runs meanwhile in a process of its own."""
    command = [sys.executable, "-m", "tests.adapters.http_servers", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said.startswith("listening on "), said
            yield said.removeprefix("listening on ").strip()
        finally:
            process.kill()


class _Misbehaves(Handler):
    mode: str
    after: int
    numbers = itertools.count()
    seen: set[str] = set()  # noqa: RUF012  # shared on purpose: a handler lives as long as its connection

    def do_POST(self) -> None:  # noqa: N802  # the name is http.server's
        key = self.headers["Idempotency-Key"]
        if next(self.numbers) < self.after or (self.mode in ("busy", "breaks") and key in self.seen):
            super().do_POST()  # type: ignore[no-untyped-call]  # the example is short instead
            return
        self.seen.add(key)
        match self.mode:
            case "dies":
                os._exit(1)
            case "breaks":  # once for each call, after doing it: no word of it comes back
                real, self.wfile = self.wfile, open(os.devnull, "wb")  # noqa: SIM115
                super().do_POST()  # type: ignore[no-untyped-call]  # the example is short instead
                self.wfile.close()
                self.wfile = real
                self.close_connection = True
            case "busy":
                self._say(503, b"one moment", **{"Retry-After": "0"})
            case "rubbish":
                self._say(200, b"<html>\xff</html>")
            case "shapeless":
                self._say(200, b'{"error": "out of memory"}')
            case "fails":
                self._say(500, b"Traceback: ZeroDivisionError")
            case "moved":
                self._say(302, b"", Location="http://127.0.0.1:1/")
            case "hangs":
                time.sleep(60)

    def _say(self, status: int, content: bytes, **headers: str) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class _Serves(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    spec: str
    memories: dict[str, MemorySystem] = {}  # noqa: RUF012  # shared on purpose, as above
    lock = threading.Lock()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        content = msgspec.json.encode(getattr(self, f"_{self.path[1:]}")(body))
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _fork(self, body: bytes) -> object:
        call = msgspec.json.decode(body, type=ForkCall)
        with self.lock:
            if call.memory is None:
                context = LaneContext(**msgspec.structs.asdict(call.context))
                self.memories[call.fork] = open_system(self.spec, context)
            else:
                self.memories[call.fork] = self.memories[call.memory].fork()
        return {}

    def _ingest(self, body: bytes) -> object:
        call = msgspec.json.decode(body, type=IngestCall)
        return anyio.run(self.memories[call.memory].ingest, call.segment)

    def _answer(self, body: bytes) -> object:
        call = msgspec.json.decode(body, type=AnswerCall)
        return anyio.run(self.memories[call.memory].answer, call.request)

    def _commit(self, body: bytes) -> object:
        call = msgspec.json.decode(body, type=CommitCall)
        return anyio.run(self.memories[call.memory].commit, call.interaction)

    def _close(self, body: bytes) -> object:
        call = msgspec.json.decode(body, type=CloseCall)
        anyio.run(self.memories.pop(call.memory).aclose)
        return {}

    def log_message(self, format: str, *args: object) -> None:
        pass


def _main(mode: str, argument: str = "0") -> None:
    handler: type[BaseHTTPRequestHandler] = Handler
    if mode == "serve":
        handler = type("Serves", (_Serves,), {"spec": argument})
    elif mode != "example":
        handler = type("Misbehaves", (_Misbehaves,), {"mode": mode, "after": int(argument)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=partial(_end_with, os.getppid()), daemon=True).start()
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


def _end_with(parent: int) -> None:
    """End when the test session does, also when it is killed."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)


if __name__ == "__main__":
    _main(*sys.argv[1:])
