"""One EverOS: what the driver `evermemos` runs as a process for each memory, since EverOS takes its root, its models
and its state from the process that it is in.

It reads one request a line of JSON from standard input, `{"do": NAME, "now_us": TIME, ...}`, and writes one answer a
line to standard output, `{"said": ...}` or `{"failed": REASON}`. With its input it shuts EverOS down, and ends.
"""

import asyncio
import datetime
import importlib
import json
import logging
import os
import sys
import types
from collections.abc import Callable, Coroutine
from typing import Any

PAGE = 100
IDLE_S = 600.0


class Clock(datetime.datetime):
    """In place of `datetime`: now is the time of the request."""

    simulated = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "Clock":
        """The simulated time, without a zone unless one is asked for."""
        now = Clock.simulated.astimezone(tz or datetime.UTC)
        zone = None if tz is None else now.tzinfo
        return cls(now.year, now.month, now.day, now.hour, now.minute, now.second, now.microsecond, zone)


class Models:
    """Whether a call of a model failed since the request began."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def watch(self) -> asyncio.Future[None]:
        """A future that raises as soon as a call fails: EverOS tries again for long, and then goes on without."""
        self._failed = asyncio.get_running_loop().create_future()
        return self._failed

    def patch(self) -> None:
        """Each call is made once, at temperature 0 and the memory's seed."""
        resources = importlib.import_module("openai.resources")
        self._patch(resources.chat.completions.AsyncCompletions, {"temperature": 0.0, "seed": self._seed})
        self._patch(resources.AsyncEmbeddings, {})

    def _patch(self, resource: Any, fixed: dict[str, Any]) -> None:
        create = resource.create

        async def creating(own: Any, **arguments: Any) -> Any:
            own._client.max_retries = 0
            try:
                said = await create(own, **{**arguments, **fixed})
            except Exception as error:
                self._fail(str(error))
                raise
            if fixed and not _has_text(said):
                self._fail("its answer has no text")
            return said

        resource.create = creating

    def _fail(self, reason: str) -> None:
        if not self._failed.done():
            self._failed.set_exception(RuntimeError(f"a model failed: {reason}"))


def _has_text(completion: Any) -> bool:
    choices = getattr(completion, "choices", None) or [None]
    return isinstance(getattr(getattr(choices[0], "message", None), "content", None), str)


class Memory:
    """EverOS on one root, called inside the process. Its index follows its files when it is told to, and not by itself:
    the environment turns that off."""

    def __init__(self) -> None:
        self._engine = importlib.import_module("everos.service.memorize")._get_engine()
        self._lost: list[Any] = []
        self._engine.on_dead_letter(self._lost.append)
        self._app = importlib.import_module("everos.entrypoints.api.app").create_app()
        self._running = self._app.router.lifespan_context(self._app)

    async def open(self) -> None:
        """Begin, once the time is known."""
        await self._running.__aenter__()
        httpx = importlib.import_module("httpx")
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self._app), base_url="http://everos/api/v2/memory", timeout=None
        )
        self._cascade = importlib.import_module("everos.memory.cascade").CascadeOrchestrator(
            memory_root=importlib.import_module("everos.core.persistence").MemoryRoot.resolve(),
            tokenizer=importlib.import_module("everos.component.tokenizer").build_tokenizer(),
        )
        self._cascade._worker._optimize_min_interval = 0.0  # or each call would wait for a minute to pass

    async def close(self) -> None:
        """Write all that is held, and end."""
        await self._running.__aexit__(None, None, None)

    async def ingest(self, session: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Take in a session, wait for all that follows from it, and say what is held."""
        scope = {"session_id": session}
        await self._post("/add", **scope, messages=messages, defer_extraction=True)
        await self._post("/flush", **scope)
        # facts and the profile are extracted after the answer
        if not await self._engine.wait_idle(timeout=IDLE_S):
            raise TimeoutError(f"its strategies went on for more than {IDLE_S:g} s")
        while await self._cascade.sync_once():
            pass
        await self._check()
        return await self.records()

    async def records(self) -> list[dict[str, Any]]:
        """Episodes and the profile."""
        found: list[dict[str, Any]] = []
        for kind, name in (("episode", "episodes"), ("profile", "profiles")):
            for page in range(1, sys.maxsize):
                said = await self._post("/get", user_id="user", memory_type=kind, page=page, page_size=PAGE)
                found += said[name]
                if len(said[name]) < PAGE:
                    break
        return found

    async def search(self, text: str, top_k: int, method: str) -> list[list[Any]]:
        """Ids of episodes and their scores, best first."""
        said = await self._post("/search", user_id="user", query=text, method=method, top_k=top_k)
        return [[episode["id"], episode["score"]] for episode in said["episodes"]]

    async def _check(self) -> None:
        if self._lost:
            raise RuntimeError(f"{self._lost[0].strategy_name} failed: {self._lost[0].error}")
        left = await self._cascade.queue_summary()
        if left.pending or left.failed_permanent:
            raise RuntimeError(f"it could not index all that it wrote: {left}")

    async def _post(self, path: str, **body: Any) -> dict[str, Any]:
        said = await self._client.post(path, json=body)
        if said.status_code != 200:
            raise RuntimeError(f"{path}: {said.status_code} {said.text[:500]}")
        data: dict[str, Any] = said.json()["data"]
        return data


async def serve(lines: asyncio.StreamReader, say: Callable[[Any], None]) -> None:
    """Answer until there are no more requests."""
    models = Models(int(os.environ["EGOSTREAM_SEED"]))
    models.patch()
    times = importlib.import_module("everos.component.utils.datetime")
    vars(times)["_dt"] = types.SimpleNamespace(**{**vars(datetime), "datetime": Clock})
    vars(times)["_MS_THRESHOLD"] = 1e10  # it takes milliseconds before September 2001 for seconds
    memory = Memory()
    logging.disable()  # it logs what it is told
    opened = False
    while line := await lines.readline():
        request = json.loads(line)
        Clock.simulated = datetime.datetime.fromtimestamp(request.pop("now_us") / 1_000_000, datetime.UTC)
        if not opened:
            await memory.open()
            opened = True
        do: Callable[..., Coroutine[Any, Any, Any]] = getattr(memory, request.pop("do"))
        failed = models.watch()
        task = asyncio.ensure_future(do(**request))
        await asyncio.wait([task, failed], return_when=asyncio.FIRST_COMPLETED)
        try:
            if failed.done():
                failed.result()
            say({"said": await task})
        except Exception as error:
            say({"failed": f"{type(error).__name__}: {error}"})
    if opened:
        await memory.close()


async def main() -> None:
    """Serve on standard input and output. What EverOS prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    lines = asyncio.StreamReader(limit=2**30)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)

    def say(answer: Any) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    await serve(lines, say)
    os._exit(0)  # its threads would go on


if __name__ == "__main__":
    asyncio.run(main())
