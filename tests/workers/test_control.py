"""`egostream ctl` and `egostream lag`, beside a run that is under way in another process."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from simulator.events import ObservationEvent
from simulator.runfolder import VERDICTS_NAME, open_run
from tests.history import History
from tests.workers.fleet import (
    EGOSTREAM,
    PATIENCE_S,
    Fleet,
    environment,
    fleet,
    published,
    undisturbed,
)

DATA = "synthetic:seed=6,wearers=2,segments_per_day=24,observations_per_segment=20,anchors_per_day=4"
OBSERVATIONS = 2 * 24 * 20
RATE = 60
"""Two minutes of real time for the whole of it: many more than it takes to say that it shall pause."""


def egostream(*args: object) -> str:
    ran = subprocess.run(
        [*EGOSTREAM, *map(str, args)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def read(out: Path) -> History:
    async def history() -> History:
        async with open_run(out) as (log, started):
            return await History.read(log, started.run)

    return anyio.run(history)


def steer(processes: Fleet, name: str, out: Path) -> None:
    """Pause, go on, and go on faster, from this process."""
    processes.start(name)
    processes.wait_for(lambda: published(out) > 20)
    egostream("ctl", out, "pause")
    before = -1
    while before != (before := published(out)):  # until it has heard, there are some twenty more each time
        processes.sleep(2.5)
    assert before < OBSERVATIONS
    egostream("ctl", out, "resume")
    processes.wait_for(lambda: published(out) > before)
    egostream("ctl", out, "rate", "inf")
    processes.wait(name)


def check_gapless(history: History) -> None:
    for stream in history.started.streams:
        seqs = [event.seq for event in history.of(ObservationEvent) if event.stream == stream]
        assert seqs == list(range(OBSERVATIONS // 2))


def steered_replay(folder: Path, *log: object) -> None:
    out = folder / "replay"
    command = ("replay", "--data", DATA, "--rate", RATE, "--out", out, "-q", *log)
    with fleet(folder, {"replay": command}) as processes:
        steer(processes, "replay", out)
    check_gapless(read(out))


def steered_run(folder: Path, *log: object) -> None:
    out = folder / "run"
    run = (
        "run",
        "--data",
        DATA,
        "--system",
        "null",
        "--system",
        "bm25=rag_raw:retrieval=bm25",
        "--rate",
        RATE,
    )
    with fleet(folder, {"run": (*run, "--out", out, "-q", *log)}) as processes:
        steer(processes, "run", out)
    history = read(out)
    check_gapless(history)
    assert history.findings == ()
    expected = undisturbed(folder / "straight", data=DATA, systems=("null", "bm25=rag_raw:retrieval=bm25"))
    assert (out / VERDICTS_NAME).read_bytes() == expected
    check_lag(out)


def check_lag(out: Path) -> None:
    lags = json.loads(egostream("lag", out, "--json"))
    assert {one["group"] for one in lags} == {"agent.null", "agent.bm25", "judge", "conductor"}
    assert all(one["lag"] == one["end"] - (one["committed"] or 0) >= 0 for one in lags)
    # an agent's last delta is written with all before it; after it comes the stream's end alone
    observed = [one for one in lags if one["group"].startswith("agent") and one["topic"] == "observations"]
    assert len(observed) == 2 * 2
    assert all(one["lag"] < one["end"] / 4 for one in observed)
    pretty = egostream("lag", out)
    assert "conductor" in pretty
    assert "Committed" in pretty


@pytest.mark.parametrize("steered", [steered_replay, steered_run])
def test_pause_resume_and_another_rate(tmp_path: Path, steered: Callable[..., None]) -> None:
    steered(tmp_path)
