"""A-Mem as in its paper's repository (WujiangXu/A-mem, `memory_layer.py`): notes to which a model gives keywords, a
context and tags, linked with the nearest notes, whose context and tags it rewrites.

Its state is in RAM alone, and a fork copies it there. Two things are put right: `re` is imported, which the file uses
and does not import, so that keywords, context and tags are not always empty; and `last_accessed` is the simulated time.
"""

from __future__ import annotations

import copy
import functools
import importlib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from ..driver import Held, Message, Settings
from ..patching import (
    CurrentClient,
    Inside,
    SentenceTransformer,
    SimulatedDatetime,
    from_checkout,
    line,
    pieces,
    silent,
    stand_in,
    unit_of,
)

for _slow in ("sklearn.metrics.pairwise", "nltk.tokenize", "rank_bm25", "requests"):
    importlib.import_module(_slow)

_LOADING: Final = threading.Lock()


@functools.cache
def _memory_layer(source: Path) -> Any:
    stand_in("sentence_transformers", SentenceTransformer=SentenceTransformer)
    stand_in("transformers", AutoModel=None, AutoTokenizer=None)
    stand_in("litellm", completion=None)
    layer: Any = from_checkout("memory_layer", source / "memory_layer.py")
    layer.re = re
    layer.datetime = SimulatedDatetime
    layer.print = silent
    return layer


class AMem:
    """One memory. Option: `unit`."""

    searching_changes: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        assert settings.source is not None
        self._inside = Inside(settings)
        self._unit = unit_of(settings)
        with _LOADING:
            layer = _memory_layer(settings.source)
        with self._inside.called(0):
            self._system = layer.AgenticMemorySystem(
                model_name=settings.embedder, llm_backend="openai", llm_model=settings.model, api_key="unused"
            )
        self._system.llm_controller.llm.client = CurrentClient()

    def ingest(self, messages: Sequence[Message], event_time_us: int) -> None:
        """One note for a segment or a conversation; with `unit=observation` one for each observation or turn."""
        for piece in pieces(messages, self._unit):
            at_us = event_time_us if self._unit == "segment" else piece[0].event_time_us
            with self._inside.called(at_us):
                time = self._inside.now.strftime("%Y%m%d%H%M")
                self._system.add_note("\n".join(map(line, piece)), time=time, id=self._inside.named("note"))

    def records(self) -> Mapping[str, Held]:
        """The notes, each with what the model said about it."""
        return {native: Held(_text(note)) for native, note in self._system.memories.items()}

    def search(self, text: str, top_k: int, now_us: int) -> Sequence[tuple[str, float]]:
        """The nearest notes, each followed by those that it is linked with, as the paper shows them to who answers.
        A-Mem gives an order and no scores: the score is 1 / rank."""
        with self._inside.called(now_us):
            nearest = self._system.retriever.search(text, top_k)
        names = list(self._system.memories)
        found = list(dict.fromkeys(names[place] for place in self._linked(nearest, top_k)))[:top_k]
        return [(native, 1 / rank) for rank, native in enumerate(found, 1)]

    def _linked(self, nearest: Sequence[int], top_k: int) -> Iterator[int]:
        notes = list(self._system.memories.values())
        for place in nearest:
            yield place
            # A model draws up the links: some of them lead nowhere
            links = [link for link in notes[place].links if isinstance(link, int) and 0 <= link < len(notes)]
            yield from links[:top_k]

    def stored_bytes(self) -> int:
        """Texts and vectors."""
        vectors = self._system.retriever.embeddings
        texts = sum(len(_text(note).encode()) for note in self._system.memories.values())
        return texts + (0 if vectors is None else int(vectors.nbytes))

    def fork(self, settings: Settings) -> AMem:
        """Copies what later changes alter in place: a vector never is."""
        child = copy.copy(self)
        child._inside = self._inside.fork(settings)
        system = child._system = copy.copy(self._system)
        system.memories = {native: copy.copy(note) for native, note in self._system.memories.items()}
        for note in system.memories.values():
            note.links = list(note.links)
        system.retriever = copy.copy(self._system.retriever)
        system.retriever.corpus = list(system.retriever.corpus)
        system.retriever.document_ids = dict(system.retriever.document_ids)
        return child

    def close(self) -> None:
        """There is nothing to let go of."""


def _text(note: Any) -> str:
    keywords, tags = (", ".join(map(str, words)) for words in (note.keywords, note.tags))
    return f"{note.content}\ncontext: {note.context}\nkeywords: {keywords}\ntags: {tags}"


DRIVER = AMem
