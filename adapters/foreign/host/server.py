"""The HTTP side of a host: docs/http-agent.md has what travels."""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .memories import Memories, UnknownMemoryError

KEPT_ANSWERS = 1000
"""Of so many calls the answers are kept, for those that come again."""

Reply = tuple[HTTPStatus, bytes]


class Server(ThreadingHTTPServer):
    """Serves the calls of one process's memories on a free port of this machine."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, memories: Memories) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        calls = (memories.fork, memories.ingest, memories.answer, memories.commit, memories.close)
        self._calls: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            f"/{call.__name__}": call for call in calls
        }
        self._answers: OrderedDict[str, Future[Reply]] = OrderedDict()
        self._lock = threading.Lock()

    def reply(self, path: str, key: str, body: bytes) -> Reply:
        """The answer to one call. One that comes again under its key is not done again: it waits for the first."""
        with self._lock:
            known = self._answers.get(key)
            if known is None:
                answer = self._answers[key] = Future()
                while len(self._answers) > KEPT_ANSWERS:
                    self._answers.popitem(last=False)
        if known is not None:
            return known.result()
        answer.set_result(self._do(path, body))
        return answer.result()

    def _do(self, path: str, body: bytes) -> Reply:
        call = self._calls.get(path)
        if call is None:
            return HTTPStatus.NOT_FOUND, f"there is no {path} here".encode()
        try:
            return HTTPStatus.OK, json.dumps(call(json.loads(body))).encode()
        except UnknownMemoryError as unknown:
            return HTTPStatus.NOT_FOUND, str(unknown).encode()
        except BaseException as failure:  # whatever the system raises, exit() included
            traceback.print_exc()
            said = " ".join(f"{type(failure).__name__}: {failure}".split())
            return HTTPStatus.INTERNAL_SERVER_ERROR, said.encode(errors="replace")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each long answer waits for the receipt of its headers
    server: Server

    def do_POST(self) -> None:  # the name is http.server's
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, content = self.server.reply(self.path, self.headers["Idempotency-Key"], body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Calls are no news; what fails is on standard error."""

    def handle(self) -> None:
        """Whoever called may hang up."""
        try:
            super().handle()
        except ConnectionError:
            print("a caller hung up", file=sys.stderr)
