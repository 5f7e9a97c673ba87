"""What drivers put in place of a system's own clients, clocks, ids and threads, so that each finds the memory that is
being called: for systems that are taken from a checkout as they are.

Needs numpy and openai, which the systems bring, so only drivers import it.
"""

from __future__ import annotations

import contextvars
import importlib
import importlib.util
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, tzinfo
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from .driver import Message, Settings, moment

Vectors = NDArray[np.float32]

openai: Any = importlib.import_module("openai")
_inside: contextvars.ContextVar[Inside] = contextvars.ContextVar("inside")
# One pool of connections for all memories, since a client of its own for each fork would load certificates each time.
# The gateway keeps the deadlines and tries again.
_http = openai.DefaultHttpxClient(timeout=None)


class ModelFailed(BaseException):
    """A call of a model failed for good. No Exception: systems catch those, go on trying for half a minute, and keep
    their excuses as memories."""


class Inside:
    """One memory as the code of its system finds it while a call of it is under way."""

    def __init__(self, settings: Settings, made: int = 0) -> None:
        self.client = _client(settings)
        self.now = moment(0)
        self.made = made
        self._embedder = settings.embedder
        self._vectors: dict[str, Vectors] = {}
        self._embedding = threading.Lock()

    def fork(self, settings: Settings) -> Inside:
        """The same for a copy of the memory."""
        return Inside(settings, self.made)

    @contextmanager
    def called(self, now_us: int) -> Iterator[None]:
        """The system's code may run, at that time. Raises RuntimeError where a model failed."""
        self.now = moment(now_us)
        self._vectors = {}
        before = _inside.set(self)
        try:
            yield
        except ModelFailed as failed:
            raise RuntimeError(f"a model failed: {failed}") from failed
        finally:
            _inside.reset(before)

    def named(self, prefix: str) -> str:
        """An id that the memory has not given yet: the same ones in each run, unlike a system's random ones."""
        self.made += 1
        return f"{prefix}_{self.made:08x}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Their vectors, each of length 1. Equal texts are embedded once a call."""
        with self._embedding:
            new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
            if new:
                said = self.client.embeddings.create(model=self._embedder, input=new, encoding_format="float")
                if len(said.data) != len(new):
                    raise ModelFailed(f"it made {len(said.data)} vectors of {len(new)} texts")
                for item in said.data:
                    vector = np.asarray(item.embedding, dtype=np.float32)
                    self._vectors[new[item.index]] = vector / max(float(np.linalg.norm(vector)), 1e-12)
            return np.stack([self._vectors[text] for text in texts])


def inside() -> Inside:
    """The memory that is being called. Raises LookupError elsewhere, as in threads that a system leaves behind."""
    return _inside.get()


def _client(settings: Settings) -> Any:
    """An OpenAI client that asks once, at temperature 0 and the memory's seed, and raises ModelFailed."""
    client = openai.OpenAI(base_url=settings.base_url, api_key="unused", max_retries=0, http_client=_http)
    post = client.post

    def asking(path: str, *, body: Mapping[str, Any], **rest: Any) -> Any:
        if path == "/chat/completions":
            body = {**body, "temperature": 0.0, "seed": settings.seed}
        try:
            said = post(path, body=body, **rest)
        except (openai.OpenAIError, ValueError) as error:
            raise ModelFailed(str(error)) from error
        if path == "/chat/completions" and not _has_text(said):
            raise ModelFailed("its answer has no text")
        return said

    client.post = asking
    return client


def _has_text(completion: Any) -> bool:
    choices = getattr(completion, "choices", None) or [None]
    message = getattr(choices[0], "message", None)
    return isinstance(getattr(message, "content", None), str)


class CurrentClient:
    """In place of an OpenAI client that lives as long as the process: the one of the memory that is being called."""

    def __init__(self, *_: object, **__: object) -> None: ...

    @property
    def chat(self) -> Any:
        """Chat completions."""
        return inside().client.chat


class SentenceTransformer:
    """In place of the one of sentence-transformers, which brings torch: the embedder that the memory was given,
    whatever name the system asks for."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def encode(self, sentences: Sequence[str], **_: object) -> Vectors:
        """One vector a sentence."""
        return inside().embed(sentences)


class SimulatedDatetime(datetime):
    """In place of `datetime`: now is the time of the call."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        """The simulated time, without a zone unless one is asked for."""
        now = inside().now
        zone = None if tz is None else now.tzinfo
        return cls(now.year, now.month, now.day, now.hour, now.minute, now.second, now.microsecond, zone)


class Threads(ThreadPoolExecutor):
    """In place of `ThreadPoolExecutor`: what is submitted runs for the memory that submits it."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As that of its base."""
        return super().submit(contextvars.copy_context().run, fn, *args, **kwargs)


def silent(*_: object, **__: object) -> None:
    """In place of a module's `print`: systems print whole prompts."""


def stand_in(name: str, **members: object) -> ModuleType:
    """A module of that name, for imports that the system makes and hardly uses."""
    module = ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module
    return module


def from_checkout(name: str, file: Path) -> ModuleType:
    """Import one file of a checkout, or with an `__init__.py` the package in its folder, under that name. Raises
    FileNotFoundError."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no {file}: source must be a checkout of the system")
    folder = [str(file.parent)] if file.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=folder)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


SPEAKERS: Final = ("user", "assistant")


def unit_of(settings: Settings) -> str:
    """The option `unit`: what a system takes in as one piece, a `segment` (and a whole conversation) or each
    `observation` (and each turn)."""
    return str(settings.options.get("unit", "segment"))


def line(message: Message) -> str:
    """A message as text: turns with who speaks, observations as they are, since their texts say it."""
    return f"{message.speaker}: {message.text}" if message.speaker in SPEAKERS else message.text


def pieces(messages: Sequence[Message], unit: str) -> list[Sequence[Message]]:
    """What is taken in as one, in order."""
    if unit == "observation":
        return [[message] for message in messages]
    return [messages] if messages else []
