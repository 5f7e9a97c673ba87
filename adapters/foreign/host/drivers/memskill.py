"""MemSkill (ViktorAxelsen/MemSkill): a model applies skills of memory keeping, which were evolved beforehand and lie in
the repository, to each chunk of text, and inserts, updates and deletes items of a bank.

The controller that picks skills for a chunk was trained; it needs torch and weights that are not in the repository, so
the executor is given all skills.
"""

from __future__ import annotations

import argparse
import copy
import functools
import importlib
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from ..driver import Held, Message, Settings
from ..patching import SPEAKERS, CurrentClient, Inside, Vectors, inside, pieces, silent, stand_in, unit_of

for _slow in ("json_repair", "tqdm"):
    importlib.import_module(_slow)

_LOADING: Final = threading.Lock()
_DESCRIPTION: Final = re.compile(r"## Description\n+(.*?)\n+(## .*)\Z", re.DOTALL)
_ACTION: Final = re.compile(r"Action type:\s*(\w+)")


class _Modules(NamedTuple):
    executor: Any
    memory_bank: Any
    skills: list[Any]


@functools.cache
def _modules(source: Path) -> _Modules:
    if not (source / "src" / "executor.py").is_file():
        raise FileNotFoundError(
            f"there is no src/executor.py in {source}: source must be a checkout of MemSkill"
        )
    stand_in("transformers", AutoTokenizer=None)
    stand_in("tiktoken")
    stand_in("rag_utils", get_embeddings=_get_embeddings)
    stand_in("src", __path__=[str(source / "src")])  # its own __init__ imports torch
    sys.path.append(str(source))
    executor = importlib.import_module("src.executor")
    calls: Any = importlib.import_module("llm_utils")
    # Clients are kept by their key alone, and asked ten times with three seconds between
    calls._get_client_round_robin = CurrentClient
    vars(executor)["print"] = vars(calls)["print"] = silent
    operation = importlib.import_module("src.operation_bank").Operation
    files = sorted((source / "skills" / "conversational_skills").glob("*.md"))
    skills = [_skill(file, operation) for file in files]
    return _Modules(
        executor,
        importlib.import_module("src.memory_bank"),
        [skill for skill in skills if skill.update_type != "noop"],  # so does their evaluation
    )


def _get_embeddings(retriever: str, texts: Sequence[str], mode: str = "context", **_: object) -> Vectors:
    return inside().embed(texts)


def _skill(file: Path, operation: Any) -> Any:
    text = file.read_text(encoding="utf-8")
    description, action = _DESCRIPTION.search(text), _ACTION.search(text)
    if description is None or action is None:
        raise ValueError(f"{file} is no skill of MemSkill's: it has no description or no type of action")
    return operation(file.stem, description[1].strip(), description[2].strip(), action[1].lower())


class MemSkill:
    """One memory. Options: `unit`; `memories`, how many a chunk is compared with (5); `max_new_tokens` (2048)."""

    searching_changes: ClassVar[bool] = True  # it counts how often an item was found

    def __init__(self, settings: Settings) -> None:
        assert settings.source is not None
        self._inside = Inside(settings)
        self._unit = unit_of(settings)
        with _LOADING:
            modules = _modules(settings.source)
        self._skills = modules.skills
        self._executor = modules.executor.Executor(
            argparse.Namespace(
                retriever="contriever",
                model=settings.model,
                api_base=settings.base_url,
                api_key="unused",
                max_new_tokens=int(settings.options.get("max_new_tokens", 2048)),
                temperature=0.0,
            )
        )
        self._bank = modules.memory_bank.MemoryBank(top_k=int(settings.options.get("memories", 5)))

    def ingest(self, messages: Sequence[Message], event_time_us: int) -> None:
        """One chunk for a segment or a conversation; with `unit=observation` one for each observation or turn."""
        for piece in pieces(messages, self._unit):
            at_us = event_time_us if self._unit == "segment" else piece[0].event_time_us
            with self._inside.called(at_us):
                self._take(f"DATE: {self._inside.now:%Y-%m-%d %H:%M:%S}\nCONVERSATION:\n{_said(piece)}")

    def _take(self, chunk: str) -> None:
        texts, places = self._bank.retrieve(self._inside.embed([chunk])[0])
        actions = self._executor.execute_operation(self._skills, chunk, texts)
        names = [skill.name for skill in self._skills]
        self._executor.apply_to_memory_bank(actions, self._bank, places, operation_name=names)
        self._bank.step()
        for item in self._bank.memories:
            if "id" not in item.metadata:
                item.metadata["id"] = self._inside.named("item")

    def records(self) -> Mapping[str, Held]:
        """The items. They have no times but those that their texts name."""
        return {item.metadata["id"]: Held(item.content) for item in self._bank.memories}

    def search(self, text: str, top_k: int, now_us: int) -> Sequence[tuple[str, float]]:
        """By vector. MemSkill gives an order and no scores: the score is 1 / rank."""
        with self._inside.called(now_us):
            _, places = self._bank.retrieve(self._inside.embed([text])[0], top_k=top_k)
        found = (self._bank.memories[place] for place in places)
        return [(item.metadata["id"], 1 / rank) for rank, item in enumerate(found, 1)]

    def stored_bytes(self) -> int:
        """Texts, those from before an update among them, and vectors."""
        return sum(
            sum(len(text.encode()) for text in (item.content, *item.content_history)) + item.embedding.nbytes
            for item in self._bank.memories
        )

    def fork(self, settings: Settings) -> MemSkill:
        """Copies what later changes alter in place: a vector never is."""
        child = copy.copy(self)
        child._inside = self._inside.fork(settings)
        child._bank = copy.copy(self._bank)
        child._bank.memories = [_copied(item) for item in self._bank.memories]
        return child

    def close(self) -> None:
        """There is nothing to let go of."""


def _copied(item: Any) -> Any:
    """A copy, with what is altered in place. Sooner than copy.copy: a bank holds thousands."""
    twin = object.__new__(type(item))
    vars(twin).update(
        vars(item),
        metadata=dict(item.metadata),
        content_history=list(item.content_history),
        operation_history=list(item.operation_history),
    )
    return twin


def _said(messages: Sequence[Message]) -> str:
    """Turns as its authors write them; observations as they are, since their texts say who speaks."""
    return "\n".join(f'{m.speaker} said, "{m.text}"' if m.speaker in SPEAKERS else m.text for m in messages)


DRIVER = MemSkill
