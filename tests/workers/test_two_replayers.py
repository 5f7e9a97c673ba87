"""Two replayers of one run: one replays, the other stands by; nothing is doubled, whoever is stopped or killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import pytest

from simulator.events import ObservationEvent, ReplayEndedEvent
from simulator.intake import decode_records, read_to_end
from simulator.log import open_log
from simulator.topics import Topics
from tests.conftest import ROOT
from tests.workers.fleet import EGOSTREAM, PATIENCE_S, environment, stop

DATA = "synthetic:seed=6,wearers=2,segments_per_day=24,observations_per_segment=20"
OBSERVATIONS = 2 * 24 * 20
RUN = "two"


@contextmanager
def process(command: list[str], errors: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose output is a file; gone at the end, stopped or not."""
    with errors.open("wb") as out:
        running = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=out, stderr=out)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def observations(log: str, run: str) -> list[ObservationEvent]:
    return [event for event in events(log, run) if isinstance(event, ObservationEvent)]


def events(log: str, run: str) -> list[object]:
    """What is on observations and control."""

    async def read() -> list[object]:
        async with open_log(log) as opened:
            topics = Topics.of(run)
            if not await opened.exists(topics.control):
                return []
            return [
                event
                async for record in read_to_end(opened, [topics.observations, topics.control])
                for event, _ in decode_records(run, [record])[0]
            ]

    return anyio.run(read)


def wait_for(condition: Callable[[], bool], *running: subprocess.Popen[bytes]) -> None:
    ends_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert all(process.poll() in (None, 0) for process in running)
        assert time.monotonic() < ends_s
        time.sleep(0.2)


def check_gapless(log: str, run: str) -> None:
    seen = observations(log, run)
    for stream in {event.stream for event in seen}:
        seqs = [event.seq for event in seen if event.stream == stream]
        assert seqs == list(range(OBSERVATIONS // 2))
    assert sum(isinstance(event, ReplayEndedEvent) for event in events(log, run)) == 1


def stopped_and_continued(folder: Path, log: str, run: str, command: Callable[[int], list[str]]) -> None:
    """The one at work is stopped until the other has gone on, and then continued; in turns, three times."""
    with ExitStack() as stack:
        first = stack.enter_context(process(command(0), folder / "0.txt"))
        wait_for(lambda: len(observations(log, run)) > 20, first)
        second = stack.enter_context(process(command(1), folder / "1.txt"))
        at_work, standing_by = first, second
        for _ in range(3):
            time.sleep(1)
            stop(at_work, log)
            time.sleep(0.5)  # what it had sent arrives
            before = len(observations(log, run))
            assert before < OBSERVATIONS
            wait_for(lambda: len(observations(log, run)) > before + 10, standing_by)  # noqa: B023  # called at once
            at_work.send_signal(signal.SIGCONT)
            at_work, standing_by = standing_by, at_work
        wait_for(lambda: first.poll() is not None and second.poll() is not None, first, second)
        assert (first.returncode, second.returncode) == (0, 0)
    check_gapless(log, run)


def started_at_once(folder: Path, log: str, run: str, command: Callable[[int], list[str]]) -> None:
    """Both begin; the one at work is killed, and whoever stands by goes on."""
    with ExitStack() as stack:
        both = [stack.enter_context(process(command(i), folder / f"{i}.txt")) for i in range(2)]
        wait_for(lambda: len(observations(log, run)) > 20, *both)
        time.sleep(1)
        both[0].kill()
        both[0].wait()
        wait_for(lambda: both[1].poll() is not None, both[1])
        assert both[1].returncode == 0
    check_gapless(log, run)


TRIALS = pytest.mark.parametrize("trial", [stopped_and_continued, started_at_once])


@TRIALS
def test_on_a_file(tmp_path: Path, trial: Callable[..., None]) -> None:
    log = str(tmp_path / "log.db")

    async def make() -> None:
        async with open_log(log) as opened:
            await opened.create_topics(Topics.of(RUN).partitions(1))

    anyio.run(make)
    trial(tmp_path, log, RUN, lambda _: [sys.executable, "-m", "tests.workers.replayer", log, "250"])


def replay_command(log: str, out: Path, rate: float) -> list[str]:
    """`egostream replay`, from a terminal."""
    return [*EGOSTREAM, "replay", "--data", DATA, "--log", log, "--out", str(out), "--rate", f"{rate:g}"]
