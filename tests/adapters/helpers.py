"""What the adapters' tests share: a deterministic embedder without a model, and short inputs."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence

import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from adapters.memory import LaneContext, Segment
from simulator.events import AnchorEvent, AnchorTask, MemoryRecord, ObservationEvent
from simulator.text import tokens


class HashEmbedder:
    """A text's vector is the normalised sum of one pseudo-random vector for each token."""

    name = "hash"
    dimensions = 16

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.embedded: list[str] = []

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return await anyio.to_thread.run_sync(self._embed, texts)

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.threads.add(threading.get_ident())
        self.embedded.extend(texts)
        return np.stack([vector_of(text) for text in texts])


def vector_of(text: str, dimensions: int = HashEmbedder.dimensions) -> NDArray[np.float32]:
    total = np.full(dimensions, 1e-3)
    for token in tokens(text):
        seed = int.from_bytes(hashlib.sha256(token.encode()).digest()[:8], "big")
        total += np.random.default_rng(seed).standard_normal(dimensions)
    return (total / np.linalg.norm(total)).astype(np.float32)


def record(number: int, text: str = "text") -> MemoryRecord:
    return MemoryRecord(id=f"r{number}", text=text, event_time_us=number)


def segment(number: int, *texts: str) -> Segment:
    start = 1000 * number
    return Segment(
        stream="A1_JAKE",
        segment=number,
        day="DAY1",
        segment_id=number,
        start_time_us=start,
        end_time_us=start + 999,
        observations=tuple(
            ObservationEvent(
                id=f"A1_JAKE/{start + i}",
                run="r",
                stream="A1_JAKE",
                event_time_us=start + i,
                seq=start + i,
                source="dialog",
                text=text,
            )
            for i, text in enumerate(texts)
        ),
    )


def anchor(segment: int, number: int, statement: str, initial: str, followup: str) -> AnchorEvent:
    return AnchorEvent(
        id=f"anchor/{segment}/{number}",
        run="r",
        event_time_us=1000 * segment,
        anchor=f"A1_JAKE/s{segment}/e{number}",
        segment=segment,
        evidence_id="E",
        evidence_statement=statement,
        evidence_type="stated",
        subject="Jake",
        initial_task=AnchorTask(user_request=initial, expected_behavior="b"),
        followup_task=AnchorTask(user_request=followup, expected_behavior="b"),
    )


def context(*, top_k: int = 10, word_budget: int = 500, anchors: tuple[AnchorEvent, ...] = ()) -> LaneContext:
    return LaneContext(
        lane="A1_JAKE@x", stream="A1_JAKE", top_k=top_k, word_budget=word_budget, anchors=anchors
    )
