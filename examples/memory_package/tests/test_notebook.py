"""The notebook keeps what runs rely on, and what it says of itself."""

import asyncio
from pathlib import Path

from egostream_notebook import NotebookMemory

from egostream import LaneContext, ObservationEvent, Segment, check_memory


def test_it_is_sound(tmp_path: Path) -> None:
    results = asyncio.run(check_memory(NotebookMemory, NotebookMemory.capabilities, folder=tmp_path))
    assert [f"{r.case}: {r.said}" for r in results if r.outcome == "fail"] == []


def test_a_line_that_comes_again_is_the_same_note(tmp_path: Path) -> None:
    async def main() -> None:
        notebook = NotebookMemory(LaneContext(lane="l", stream="s", directory=tmp_path))
        first = await notebook.ingest(segment(0, "rain", "tea", "rain"))
        assert [(r.id, r.op, r.event_time_us) for r in first.records] == [("n1", "add", 2), ("n2", "add", 1)]
        again = await notebook.ingest(segment(1, "tea"))
        assert [(r.id, r.op, r.event_time_us) for r in again.records] == [("n2", "update", 10)]
        assert (first.stored_bytes, again.stored_bytes) == (7, 0)
        await notebook.aclose()

    asyncio.run(main())


def segment(number: int, *texts: str) -> Segment:
    start_us = 10 * number
    observations = tuple(
        ObservationEvent(
            id=f"s/{start_us + i}",
            run="r",
            stream="s",
            event_time_us=start_us + i,
            seq=i,
            source="dialog",
            text=text,
        )
        for i, text in enumerate(texts)
    )
    return Segment(
        stream="s",
        segment=number,
        day="DAY1",
        segment_id=number,
        start_time_us=start_us,
        end_time_us=start_us + 9,
        observations=observations,
    )
