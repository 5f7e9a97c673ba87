"""An OpenAI-compatible server that does what its script says: real HTTP, in a process of its own.

    async with scripted_server(Script(rule="tests.models.rules:verdict", delay_s=0.1, most_at_once=20)) as server:
        ...  # server.url is a base URL, http://127.0.0.1:PORT/v1
        asked = await server.asked()
        await server.play(Script(...))  # another one, from its beginning

Tests that need a server each take the fixture `server`, one process for all of them.

What a call gets is drawn up from the script and the call's number alone, so that equal runs meet equal faults. By hand:

    python -m tests.models.server '{"delay_s": 0.2}'
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any, Literal

import anyio.to_thread
import msgspec

from tests.conftest import ROOT

Does = Literal["answer", "refuse", "hang", "cut", "not_json", "wrong_shape", "empty", "cut_off", "filtered"]
CHAT, EMBEDDINGS, MODELS = "/v1/chat/completions", "/v1/embeddings", "/v1/models"


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happens to one call. `say`: this text instead of the rule's; `tool_calls`: with these beside it, where it is
    no stream. `refuse` answers with `status`, `message` and `retry_after`; `cut` closes the connection in mid-body;
    `wrong_shape` is JSON that is no completion; `cut_off` and `filtered` are the finish reasons `length` and
    `content_filter`. `held`: nothing is answered before `Server.release`."""

    does: Does = "answer"
    say: str | None = None
    tool_calls: tuple[dict[str, Any], ...] = ()
    status: int = 503
    message: str = "try later"
    retry_after: str | None = None
    delay_s: float = 0.0
    held: bool = False


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the server does. `rule`: `echo` (the last message), or `module:function`, which gets the request's body and
    gives the text. `steps` befall the first calls, in order; of the others, a `fault_share` gets the `faults` in turn.

    `most_at_once`: a call above so many gets 429, with `retry_after`. `key`: other keys get 401. `formats`: the
    types of `response_format` that don't get 400. `delay_s`: before the answer; `token_s`: between a stream's tokens.
    `vectors`: `drawn` from the text, or `module:function` of a text and the dimensions. `keep`: what was asked is kept
    for `asked`; long runs ask gigabytes.
    """

    rule: str = "echo"
    vectors: str = "drawn"
    delay_s: float = 0.0
    token_s: float = 0.0
    steps: tuple[Step, ...] = ()
    faults: tuple[Step, ...] = ()
    fault_share: float = 0.0
    seed: int = 0
    most_at_once: int | None = None
    retry_after: str | None = None
    key: str | None = None
    formats: tuple[str, ...] = ("json_schema", "json_object")
    stream_options: bool = True
    usage: bool = True
    dimensions: int = 8
    keep: bool = True


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One call as it came, and what became of it. `at_once`: calls under way, itself included."""

    path: str
    headers: dict[str, str]
    body: Any
    at_once: int
    did: str


class Server:
    """The running server as tests see it."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url = url
        self.process = process

    async def play(self, script: Script) -> None:
        """Follow another script from its beginning, and forget what was asked."""
        assert await self._call("POST", "/script", msgspec.json.encode(script)) == b"{}"

    async def release(self) -> None:
        """Let the calls go on that are held, and those that would be."""
        assert await self._call("POST", "/release", b"") == b"{}"

    async def asked(self) -> list[Asked]:
        """The calls so far, in order of arrival."""
        return msgspec.json.decode(await self._call("GET", "/asked", b""), type=list[Asked])

    async def _call(self, method: str, path: str, body: bytes) -> bytes:
        import httpx  # not in the server's own process, which starts sooner without

        url = self.url.removesuffix("/v1") + path
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=60) as client:
            return (await client.request(method, url, content=body)).content


@contextmanager
def running_server(script: Script | None = None, port: int = 0) -> Iterator[Server]:
    """A server that runs meanwhile. Blocks while it starts: for fixtures, which tests share and play scripts on.
    `port`: that of one that was killed, to come back in its place."""
    told = msgspec.json.encode(script or Script()).decode()
    command = [sys.executable, "-m", "tests.models.server", told, str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said.startswith("listening on "), said
            yield Server(said.removeprefix("listening on ").strip(), process)
        finally:
            process.kill()


@asynccontextmanager
async def scripted_server(script: Script | None = None, port: int = 0) -> AsyncIterator[Server]:
    """The same, off the event loop."""
    running = running_server(script, port)
    server = await anyio.to_thread.run_sync(running.__enter__)
    try:
        yield server
    finally:
        running.__exit__(None, None, None)


# --- in the server's process ----------------------------------------------------------------------------------------


class _Serves:
    """Serves connections, by the newest script."""

    def __init__(self, script: Script) -> None:
        self._play = _Play(script)

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the caller hung up, as callers with a deadline do
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection stays open."""
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        path = lines[0].split(" ")[1]
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:] if line)
        }
        content = await reader.readexactly(int(headers.get("content-length", 0)))
        if path == "/script":
            self._play = _Play(msgspec.json.decode(content, type=Script))
            return await _answer(writer, 200, {})
        if path == "/release":
            self._play.released.set()
            return await _answer(writer, 200, {})
        if path == "/asked":
            return await _answer(writer, 200, self._play.asked)
        return await self._play.request(path, headers, content, reader, writer)


class _Play:
    """One script, and what was asked since it began."""

    def __init__(self, script: Script) -> None:
        self.asked: list[Asked] = []
        self.released = asyncio.Event()
        self._script = script
        self._rule: Callable[[dict[str, Any]], str] = _echo if script.rule == "echo" else _named(script.rule)
        self._vector: Callable[[str, int], list[float]] = (
            vector_of if script.vectors == "drawn" else _named(script.vectors)
        )
        self._random = random.Random(script.seed)
        self._calls = self._faults = self._at_once = 0

    async def request(
        self,
        path: str,
        headers: dict[str, str],
        content: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Whether the connection stays open."""
        script = self._script
        if script.key is not None and headers.get("authorization") != f"Bearer {script.key}":
            said = f"Incorrect API key provided: {headers.get('authorization')}"
            return await _answer(writer, 401, {"error": {"message": said, "code": "invalid_api_key"}})
        kind = path[path.rfind("/v1/") :]  # what stands before it tells callers apart
        if kind == MODELS:
            return await _answer(
                writer, 200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]}
            )
        if kind not in (CHAT, EMBEDDINGS):
            return await _answer(writer, 404, {"error": {"message": f"no such path {path}"}})
        body = msgspec.json.decode(content)
        self._at_once += 1
        try:
            step = self._step(body)
            if script.keep:
                self.asked.append(
                    Asked(path=path, headers=headers, body=body, at_once=self._at_once, did=_did(step))
                )
            if step.does == "hang":
                await reader.read()  # until the caller hangs up
                return False
            return await self._do(step, kind, body, writer)
        finally:
            self._at_once -= 1

    def _step(self, body: dict[str, Any]) -> Step:
        script, number = self._script, self._calls
        wanted = body.get("response_format", {}).get("type", "text")
        if wanted not in ("text", *script.formats):
            said = f"'response_format' of type '{wanted}' is not supported with this model"
            return Step(does="refuse", status=400, message=said)
        if "stream_options" in body and not script.stream_options:
            return Step(does="refuse", status=400, message="Unrecognized request argument: stream_options")
        if script.most_at_once is not None and self._at_once > script.most_at_once:
            return Step(does="refuse", status=429, message="slow down", retry_after=script.retry_after)
        self._calls += 1
        if number < len(script.steps):
            return script.steps[number]
        if script.faults and self._random.random() < script.fault_share:
            self._faults += 1
            return script.faults[(self._faults - 1) % len(script.faults)]
        return Step()

    async def _do(self, step: Step, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        if step.held:
            await self.released.wait()
        if step.does == "refuse":
            await asyncio.sleep(step.delay_s)
            headers = {} if step.retry_after is None else {"Retry-After": step.retry_after}
            return await _answer(writer, step.status, {"error": {"message": step.message}}, **headers)
        await asyncio.sleep(step.delay_s + self._script.delay_s)
        match step.does:
            case "not_json":
                return await _answer(writer, 200, b"<html>\xff</html>")
            case "wrong_shape":
                return await _answer(writer, 200, {"status": "ok"})
            case _ if path == EMBEDDINGS:
                return await self._embed(step, body, writer)
            case _ if body.get("stream"):
                return await self._stream(step, body, writer)
        content = _encode(self._completion(step, body))
        if step.does == "cut":
            writer.write(_head(200, len(content)) + content[: len(content) // 2])
            await writer.drain()
            return False
        return await _answer(writer, 200, content)

    def _text(self, step: Step, body: dict[str, Any]) -> str:
        if step.does == "empty" or step.does == "filtered":
            return ""
        text = self._rule(body) if step.say is None else step.say
        return text[: len(text) // 2] if step.does == "cut_off" else text

    def _usage(self, body: dict[str, Any], text: str) -> dict[str, int]:
        prompt = sum(len(str(message["content"]).split()) for message in body["messages"])
        said = len(text.split())
        return {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}

    def _completion(self, step: Step, body: dict[str, Any]) -> dict[str, Any]:
        text = self._text(step, body)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if step.tool_calls:
            message["tool_calls"] = step.tool_calls
        completion = {
            "object": "chat.completion",
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": _finish(step)}],
        }
        return completion | ({"usage": self._usage(body, text)} if self._script.usage else {})

    async def _stream(self, step: Step, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        """Server-sent events until the connection closes. A cut stream ends in the middle of a word."""
        writer.write(_head(200, None, **{"Content-Type": "text/event-stream"}))
        text = self._text(step, body)
        words = [word + " " for word in text.split(" ")]
        words[-1] = words[-1][:-1]
        for number, word in enumerate(words):
            await asyncio.sleep(self._script.token_s)
            if step.does == "cut" and number >= len(words) // 2:
                return False
            delta = {"role": "assistant", "content": word} if number == 0 else {"content": word}
            writer.write(_event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}))
            await writer.drain()
        writer.write(_event({"choices": [{"index": 0, "delta": {}, "finish_reason": _finish(step)}]}))
        if self._script.usage and body.get("stream_options", {}).get("include_usage"):
            writer.write(_event({"choices": [], "usage": self._usage(body, text)}))
        writer.write(b"data: [DONE]\n\n")
        await writer.drain()
        return False

    async def _embed(self, step: Step, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        texts = (
            []
            if step.does == "empty"
            else [body["input"]]
            if isinstance(body["input"], str)
            else body["input"]
        )
        data = [
            {"object": "embedding", "index": number, "embedding": self._vector(text, self._script.dimensions)}
            for number, text in enumerate(texts)
        ]
        used = sum(len(text.split()) for text in texts)
        usage = {"usage": {"prompt_tokens": used, "total_tokens": used}} if self._script.usage else {}
        return await _answer(
            writer, 200, {"object": "list", "model": body["model"], "data": data[::-1]} | usage
        )


def vector_of(text: str, dimensions: int) -> list[float]:
    """What the server gives for a text: not normalised, as some servers' vectors aren't."""
    drawn = random.Random(hashlib.sha256(text.encode()).digest())
    return [drawn.gauss(0, 3) for _ in range(dimensions)]


def _named(function: str) -> Any:
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)


def _echo(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def _did(step: Step) -> str:
    return str(step.status) if step.does == "refuse" else step.does


def _finish(step: Step) -> str:
    return {"cut_off": "length", "filtered": "content_filter"}.get(step.does, "stop")


def _encode(value: object) -> bytes:
    return value if isinstance(value, bytes) else msgspec.json.encode(value)


def _event(value: object) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def _head(status: int, length: int | None, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    fields = {"Content-Type": "application/json"} | headers
    fields |= {"Connection": "close"} if length is None else {"Content-Length": str(length)}
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in fields.items()), "", ""]).encode()


async def _answer(writer: asyncio.StreamWriter, status: int, value: object, **headers: str) -> bool:
    content = _encode(value)
    writer.write(_head(status, len(content), **headers) + content)
    await writer.drain()
    return True


async def _serve(script: Script, port: int) -> None:
    server = await asyncio.start_server(_Serves(script).connection, "127.0.0.1", port, backlog=1024)
    print(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


def _end_with(parent: int) -> None:
    """End when the test session does, also when it is killed."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    told, port = (*sys.argv[1:], *("{}", "0")[len(sys.argv) - 1 :])
    asyncio.run(_serve(msgspec.json.decode(told, type=Script), int(port)))
