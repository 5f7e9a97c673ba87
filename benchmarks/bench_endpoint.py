"""500 calls to a server that bears 20 at once and refuses what is above, against the ideal (all 20 places always taken,
nothing refused), and against the same calls where the 20 are told: what of the time is the search for the limit, and
what is this machine. And what an answer from the cache takes.

    python benchmarks/bench_endpoint.py
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio
import structlog
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from adapters.endpoints import Models, ModelSettings
from adapters.model import Ask, Message
from simulator.errors import ModelError
from tests.models.server import Script, scripted_server

CALLS = 500
HIDDEN_LIMIT = 20
CALL_S = (0.3, 1.0)
CACHED = 2_000


def asking(text: str) -> Ask:
    return Ask(messages=(Message(role="user", content=text),))


async def ask_all(call_s: float, max_in_flight: int) -> tuple[float, int, int]:
    """Seconds, calls lost, and tries that were refused."""
    async with scripted_server(Script(delay_s=call_s, most_at_once=HIDDEN_LIMIT)) as server:
        settings = {"m": ModelSettings(base_url=server.url, model="m", max_in_flight=max_in_flight)}
        lost: list[str] = []
        async with Models(settings, cache=None) as models:
            model = models.model("m", role="bench")

            async def ask(number: int) -> None:
                try:
                    said = await model.ask(asking(f"call {number}"))
                    if said.text != f"call {number}":
                        lost.append(said.text)
                except ModelError as error:
                    lost.append(str(error))

            began = time.perf_counter()
            async with anyio.create_task_group() as tasks:
                for number in range(CALLS):
                    tasks.start_soon(ask, number)
            took_s = time.perf_counter() - began
        refused = sum(asked.did == "429" for asked in await server.asked())
    return took_s, len(lost), refused


async def cache_hit(folder: Path) -> tuple[float, float]:
    """Milliseconds of an answer from the server, and from the cache."""
    async with scripted_server() as server:
        settings = {"m": ModelSettings(base_url=server.url, model="m")}
        async with Models(settings, cache=folder / "cache.db") as models:
            model = models.model("m", role="bench")
            times: list[list[float]] = []
            for _ in range(2):
                times.append([])
                for number in range(CACHED):
                    began = time.perf_counter()
                    await model.ask(asking(f"call {number}"))
                    times[-1].append(time.perf_counter() - began)
    asked, cached = (statistics.median(each) * 1e3 for each in times)
    return asked, cached


async def main() -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    table = Table("a call takes", "ideal", "took", "ratio", "told", "ratio", "refused", "lost")
    all_lost = 0
    for call_s in CALL_S:
        took_s, lost, refused = await ask_all(call_s, 64)
        told_s, _, _ = await ask_all(call_s, HIDDEN_LIMIT)
        ideal_s = CALLS * call_s / HIDDEN_LIMIT
        all_lost += lost
        table.add_row(
            f"{call_s:g} s",
            f"{ideal_s:.1f} s",
            f"{took_s:.1f} s",
            f"{took_s / ideal_s:.2f}",
            f"{told_s:.1f} s",
            f"{took_s / told_s:.2f}",
            str(refused),
            str(lost),
        )
    console = Console()
    console.print(f"{CALLS} calls, a hidden limit of {HIDDEN_LIMIT} at once (wanted: 1.3 at most, none lost)")
    console.print(table)
    with tempfile.TemporaryDirectory() as folder:
        asked_ms, cached_ms = await cache_hit(Path(folder))
    console.print(
        f"an answer that takes the server nothing: {asked_ms:.2f} ms, {asked_ms / cached_ms:.1f} times as long as from "
        f"the cache ({cached_ms:.2f} ms)"
    )
    return int(all_lost > 0)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
