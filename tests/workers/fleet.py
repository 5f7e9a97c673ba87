"""The roles of one run as real processes, killed and started again at will."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import IO

import anyio
import msgspec

from consumers.audit import Finding
from simulator.intake import decode_records, read_to_end
from simulator.log import StoredRecord, open_log
from simulator.plan import RunOptions, plan_run
from simulator.run import execute
from simulator.runfolder import NOTE_NAME, VERDICTS_NAME, open_run
from simulator.topics import Topics
from tests.conftest import ROOT
from tests.history import History

EGOSTREAM = (sys.executable, "-m", "egostream")
LABEL = "slow"
SYSTEM = f"{LABEL}=tests.workers.slow_memory:SlowMemory"
DATA = "synthetic:seed=5,wearers=4,segments_per_day=30,observations_per_segment=6,anchors_per_day=12"
"""9,000 s of life in four partitions, so that two agents and two judges have two each."""


PATIENCE_S = 120.0
"""It ends a hang, and measures nothing: each of ten processes may have a tenth of a core."""


def environment() -> dict[str, str]:
    paths = os.pathsep.join((str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])))
    return {**os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1", "COLUMNS": "120"}


class Fleet:
    """Processes by name. Their standard errors are files in `folder`."""

    def __init__(self, folder: Path, commands: Mapping[str, tuple[object, ...]]) -> None:
        self.folder = folder
        self.commands = dict(commands)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.ended: dict[str, int] = {}
        """Name → exit code of those that ended by themselves."""
        self.ends_with: dict[str, int] = {}
        """Name → exit code, where it is to be another than 0."""

    def start(self, *names: str) -> None:
        for name in names:
            command = [*EGOSTREAM, *map(str, self.commands[name])]
            with self._errors(name) as errors:
                self.running[name] = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env=environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                )

    def _errors(self, name: str) -> IO[bytes]:
        return (self.folder / f"{name}.txt").open("ab")

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text(errors="replace")

    def kill(self, *names: str) -> None:
        """kill -9, and no trace of it left."""
        for name in names:
            process = self.running.pop(name, None)
            if process is not None:  # else it had ended
                process.kill()
                process.wait()

    def check(self) -> None:
        """Nobody ended by itself but at the end of the run."""
        for name, process in list(self.running.items()):
            code = process.poll()
            if code is not None:
                del self.running[name]
                self.ended[name] = code
                assert code == self.ends_with.get(name, 0), (
                    f"{name} ended with {code}: {self.said(name)[-3000:]}"
                )

    def wait(self, *names: str, deadline_s: float = PATIENCE_S) -> None:
        """Until these have ended by themselves, and well."""
        self.wait_for(lambda: all(name in self.ended for name in names), deadline_s)

    def wait_for(self, condition: Callable[[], bool], deadline_s: float = PATIENCE_S) -> None:
        """Until it holds; fails when a process ends badly, or after `deadline_s`, naming who still runs."""
        ends_s = time.monotonic() + deadline_s
        while not condition():
            self.check()
            assert time.monotonic() < ends_s, f"after {deadline_s:g} s, running: {', '.join(self.running)}"
            time.sleep(0.05)

    def sleep(self, seconds: float) -> None:
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s:
            self.check()
            time.sleep(0.05)


@contextmanager
def fleet(folder: Path, commands: Mapping[str, tuple[object, ...]]) -> Iterator[Fleet]:
    """None of its processes is left at the end. Where a whole run fails, it is said which results
    its log holds twice, and where."""
    processes = Fleet(folder, commands)
    try:
        yield processes
    except AssertionError as error:
        if scoreboard := commands.get("scoreboard"):
            log, out = (str(scoreboard[scoreboard.index(option) + 1]) for option in ("--log", "--out"))
            if (Path(out) / NOTE_NAME).exists():
                error.add_note(anyio.run(twice, log, run_of(Path(out))))
        raise
    finally:
        processes.kill(*processes.running)


def workers(
    log: object,
    out: Path,
    *options: object,
    system: str = SYSTEM,
    data: str = DATA,
    rate: object = "inf",
    conductors: int = 1,
    agents: int = 2,
    judges: int = 2,
) -> dict[str, tuple[object, ...]]:
    """The commands of a whole run: a replayer, conductors (one conducts), agents and judges, a scoreboard."""
    where = ("--log", log, "--run", "any", "--wait", PATIENCE_S, "-q")
    run = ("--data", data, "--system", system, "--log", log, "--out", out, "--rate", rate, "-q", *options)
    return {
        "replayer": ("worker", "replayer", *run),
        **{f"conductor-{i}": ("worker", "conductor", *where) for i in range(conductors)},
        **{f"judge-{i}": ("worker", "judge", *where) for i in range(judges)},
        **{f"agent-{i}": ("worker", "agent", "--system", system, *where) for i in range(agents)},
        "scoreboard": ("worker", "scoreboard", "--out", out, *where),
    }


def undisturbed(out: Path, **options: object) -> bytes:
    """The verdicts of the same run in this process, on a log of its own, as fast as it goes."""
    asked = {"data": DATA, "systems": (SYSTEM,), **options}
    plan = plan_run(RunOptions(out=out, **asked))  # type: ignore[arg-type]  # options by name, as a test gives them
    anyio.run(execute, plan)
    return (out / VERDICTS_NAME).read_bytes()


def torment(processes: Fleet, rng: Random, kills: int, *, longest_s: float = 2.0) -> None:
    """Kill a random worker again and again, each started again a moment later, or, where another of its kind
    remains, much later."""
    down: dict[str, float] = {}
    for _ in range(kills):
        processes.sleep(rng.uniform(0.2, longest_s))
        victims = sorted(set(processes.running) - {"scoreboard"})
        victim = victims[int(rng.random() * len(victims))]
        processes.kill(victim)
        kind = victim.partition("-")[0]
        others = [name for name in processes.running if name.partition("-")[0] == kind]
        patience_s = 3 * longest_s if others and rng.random() < 0.5 else longest_s / 2
        down[victim] = time.monotonic() + rng.uniform(0, patience_s)
        for name in [name for name, at_s in down.items() if at_s <= time.monotonic()]:
            del down[name]
            processes.start(name)
    processes.start(*down)


def stop(process: subprocess.Popen[bytes], log: str) -> None:
    """SIGSTOP, but not within a transaction on a file: so stopped, it would keep everybody else from writing until it
    goes on."""
    process.send_signal(signal.SIGSTOP)
    while "://" not in log and not _writable(log):
        process.send_signal(signal.SIGCONT)
        time.sleep(0.01)
        process.send_signal(signal.SIGSTOP)


def _writable(path: str) -> bool:
    """Whether the file's write lock can be had by somebody, in time enough for those at work to let it go."""
    with closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
    return True


def published(out: Path, topic: str = "observations") -> int:
    """How many observations (or what else) of a run are in its log; 0 before it began."""

    async def count() -> int:
        async with open_run(out) as (log, started):
            return sum((await log.end_offsets([getattr(Topics.of(started.run), topic)])).values())

    return anyio.run(count) if (out / NOTE_NAME).exists() else 0


def hurry(processes: Fleet) -> None:
    """Kill the replayer once more, and let it go on as fast as it can."""
    command = list(processes.commands["replayer"])
    command[command.index("--rate") + 1] = "inf"
    processes.commands["replayer"] = tuple(command)
    processes.kill("replayer")
    processes.start("replayer")


def run_of(out: Path) -> str:
    """The run that a folder belongs to."""
    run: str = msgspec.json.decode((out / NOTE_NAME).read_bytes())["run"]
    return run


def history_of(log: str, run: str) -> History:
    async def read() -> History:
        async with open_log(log) as opened:
            return await History.read(opened, run)

    return anyio.run(read)


async def twice(log: str, run: str) -> str:
    """The records of deltas, responses and verdicts whose event is in the log more than once, in full."""
    places: dict[str, list[StoredRecord]] = {}
    topics = Topics.of(run)
    async with open_log(log) as opened:
        async for record in read_to_end(opened, [topics.deltas, topics.responses, topics.verdicts]):
            for event, _ in decode_records(run, [record])[0]:
                places.setdefault(event.id, []).append(record)
    doubled = [record for records in places.values() if len(records) > 1 for record in records]
    return "\n".join(
        ["In the log twice:", *map(str, doubled)] if doubled else ["Nothing is in the log twice."]
    )


def log_findings(log: str, run: str) -> tuple[Finding, ...]:
    return history_of(log, run).findings
