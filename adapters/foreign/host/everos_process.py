"""One EverOS: what the driver `evermemos` runs as a process for each memory, since EverOS takes its root, its models
and its state from the process that it is in.

`everos_process.py serve FD` serves on that socket: it reads a line of JSON, which is added to its environment, and then
a request a line, `{"do": NAME, "now_us": TIME, ...}`, each of which it answers with a line, `{"said": ...}` or
`{"failed": REASON}`. It ends when who asks hangs up. `everos_process.py fork FD` imports EverOS, and for each socket
that it is sent forks a process that serves on it.
"""

import asyncio
import contextlib
import datetime
import gc
import importlib
import json
import logging
import os
import platform
import signal
import socket
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

MODULES = (
    "anyio._backends._asyncio",
    "everalgo.parser",
    "everos.entrypoints.api.app",
    "everos.memory.cascade",
    "openai.resources",
)
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
        """Each call is made once, at temperature 0 and the memory's seed, and may take as long as it does: EverOS gives
        the one that it opens with some seconds, which a busy machine needs for itself."""
        provenance = importlib.import_module("everos.infra.persistence.index._provenance")
        vars(provenance)["_PROBE_TIMEOUT_SECONDS"] = float(os.environ["EVEROS_EMBEDDING__TIMEOUT_SECONDS"])
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
        self._opened = False
        self._engine.on_dead_letter(self._lost.append)
        self._app = importlib.import_module("everos.entrypoints.api.app").create_app()
        self._running = self._app.router.lifespan_context(self._app)

    async def do(self, name: str, **arguments: Any) -> Any:
        """What one request asks for. The first one opens EverOS: only then is the time known."""
        if not self._opened:
            await self._open()
            self._opened = True
        method: Callable[..., Coroutine[Any, Any, Any]] = getattr(self, name)
        return await method(**arguments)

    async def _open(self) -> None:
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
        """Write all that is held."""
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
            states = importlib.import_module("everos.infra.persistence.sqlite").md_change_state_repo
            reasons = dict.fromkeys(row.error for row in await states.list_failed())
            raise RuntimeError(
                f"it could not index all that it wrote: {'; '.join(map(str, reasons)) or left}"
            )

    async def _post(self, path: str, **body: Any) -> dict[str, Any]:
        said = await self._client.post(path, json=body)
        if said.status_code != 200:
            raise RuntimeError(f"{path}: {said.status_code} {said.text[:500]}")
        data: dict[str, Any] = said.json()["data"]
        return data


async def serve(lines: asyncio.StreamReader, say: Callable[[Any], None]) -> None:
    """Answer until nobody asks any more."""
    models = Models(int(os.environ["EGOSTREAM_SEED"]))
    models.patch()
    times = importlib.import_module("everos.component.utils.datetime")
    vars(times)["_dt"] = types.SimpleNamespace(**{**vars(datetime), "datetime": Clock})
    vars(times)["_MS_THRESHOLD"] = 1e10  # it takes milliseconds before September 2001 for seconds
    memory = Memory()
    logging.disable()  # it logs what it is told, and of what fails all that was known
    structlog = importlib.import_module("structlog")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    while line := await lines.readline():
        request = json.loads(line)
        if "now_us" in request:
            Clock.simulated = datetime.datetime.fromtimestamp(request.pop("now_us") / 1_000_000, datetime.UTC)
        failed = models.watch()
        task = asyncio.ensure_future(memory.do(request.pop("do"), **request))
        await asyncio.wait([task, failed], return_when=asyncio.FIRST_COMPLETED)
        try:
            if failed.done():
                failed.result()
            say({"said": await task})
        except Exception as error:
            say({"failed": f"{type(error).__name__}: {error}"})


def load() -> None:
    """What takes long, and what each process does in the same way."""
    for name in MODULES:
        importlib.import_module(name)
    importlib.import_module("jieba").initialize()
    with contextlib.suppress(Exception):  # where it can't be had, each memory says so by itself
        importlib.import_module("everalgo._tokenize").count_tokens("its vocabulary")
    platform.processor()  # a client of models asks for it, and it starts a process


async def main(connection: socket.socket) -> None:
    """Serve on a connection, and end the process. What EverOS prints goes to standard error, as the host's own."""
    lines, answers = await asyncio.open_connection(sock=connection, limit=2**30)

    def say(answer: Any) -> None:
        answers.write(json.dumps(answer).encode() + b"\n")

    try:
        os.environ.update(json.loads(await lines.readline()))
        await serve(lines, say)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)  # its threads would go on, and what has failed as well


def fork(control: socket.socket) -> None:
    """Fork a process for each socket that comes, until whoever sends them hangs up."""
    load()
    gc.freeze()  # or each child would look through all that was imported, and so copy it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    while True:
        said, sent, _, _ = socket.recv_fds(control, 1, 1)
        if not said:
            return
        # it warns of threads: there are some, and none has begun anything
        with warnings.catch_warnings(action="ignore"):
            child = os.fork() == 0
        if child:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asyncio.run(main(socket.socket(fileno=sent[0])))
        os.close(sent[0])


if __name__ == "__main__":
    given = socket.socket(fileno=int(sys.argv[2]))
    if sys.argv[1] == "fork":
        fork(given)
    else:
        asyncio.run(main(given))
