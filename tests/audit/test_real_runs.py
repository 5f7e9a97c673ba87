"""The audit of logs that real roles wrote: sound systems, leaking ones, runs under way."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.memory import Answer, Delta, Interaction, LaneContext, Request, Segment
from consumers.monitor import Progress
from simulator.events import Limits, MemoryRecord, RetrievedRecord
from simulator.plan import RunOptions, plan_run
from simulator.results import audit_run
from simulator.run import execute
from simulator.runfolder import AUDIT_NAME
from tests.cli.helpers import egostream
from tests.history import History
from tests.roles.harness import run_all
from tests.roles.systems import Ledger

SMALL = "synthetic:seed=4,wearers=2,segments_per_day=6,observations_per_segment=8,anchors_per_day=6"
SYSTEMS = ("rag_raw:retrieval=bm25", "null", "oracle", "full_context")


class Leaky(Ledger):
    """Its forks are no forks: what is committed on one is in all."""

    def __init__(self, context: LaneContext | None = None) -> None:
        super().__init__(context)
        self.commits: list[MemoryRecord] = []

    async def commit(self, interaction: Interaction) -> Delta:
        delta = await super().commit(interaction)
        self.commits += delta.records
        return delta

    async def answer(self, request: Request) -> Answer:
        own = self.records
        others = tuple(record for record in self.commits if record not in own)
        self.records = tuple(r for r in others + own if r.event_time_us <= request.event_time_us)
        answer = await super().answer(request)
        self.records = own
        return answer


class OneForAll(Ledger):
    """All lanes write into one memory."""

    def __init__(self, everything: list[MemoryRecord]) -> None:
        super().__init__()
        self.everything = everything

    async def ingest(self, segment: Segment) -> Delta:
        delta = await super().ingest(segment)
        self.everything += delta.records
        return delta

    async def answer(self, request: Request) -> Answer:
        found = tuple(
            RetrievedRecord(id=r.id, text=r.text, event_time_us=r.event_time_us)
            for r in self.everything
            if r.event_time_us <= request.event_time_us
        )
        return Answer(text="", retrieved=found)


class Dreamer(Ledger):
    """Rests its answers on what it never stored."""

    async def answer(self, request: Request) -> Answer:
        found = RetrievedRecord(id="dream", text="a house by the sea", event_time_us=0)
        return Answer(text="by the sea", retrieved=(found,))


def rules(history: History) -> set[str]:
    return {finding.rule for finding in history.findings}


async def test_forks_that_share_their_memory_are_found(tmp_path: Path) -> None:
    history = await run_all(tmp_path, {"leaky": lambda lane, stream: Leaky()})
    assert "foreign_commit" in rules(history)


async def test_lanes_that_share_their_memory_are_found(tmp_path: Path) -> None:
    everything: list[MemoryRecord] = []
    history = await run_all(tmp_path, {"one": lambda lane, stream: OneForAll(everything)})
    assert "record_text" in rules(history)  # two lanes call their records alike


async def test_answers_from_nowhere_are_found(tmp_path: Path) -> None:
    history = await run_all(
        tmp_path, {"dreamer": lambda lane, stream: Dreamer(), "sound": lambda lane, stream: Ledger()}
    )
    assert rules(history) == {"unknown_record"}
    assert all(finding.events[0].startswith("dreamer@") for finding in history.findings)


@pytest.mark.parametrize("more", [{}, {"ablate_commit": True}, {"isolation": "shared"}, {"canaries": 20}])
async def test_equal_runs_have_equal_digests_and_other_runs_another(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    digests = set()
    for number, speed in enumerate(({}, {"limits": Limits(segments_ahead=1, calls_in_flight=1)})):
        options = RunOptions(data=SMALL, systems=SYSTEMS, out=tmp_path / str(number), **speed, **more)  # type: ignore[arg-type]  # options by name
        plan = plan_run(options)
        await execute(plan)
        certificate = await audit_run(options.out)
        assert certificate.findings == ()
        assert certificate.ended
        assert certificate.canaries == more.get("canaries", 0)
        assert certificate.identity == plan.started.identity
        assert all(n > 0 for n in certificate.checked.values())
        digests.add(certificate.digest)
    assert len(digests) == 1
    other = RunOptions(data=SMALL, systems=SYSTEMS, out=tmp_path / "other", seed=1, **more)
    await execute(plan_run(other))
    assert (await audit_run(other.out)).digest not in digests


async def test_a_run_under_way_is_open(tmp_path: Path) -> None:
    """Stopped, and audited from beside while it goes on."""
    options = RunOptions(data=SMALL, systems=("null", "full_context"), out=tmp_path)
    seen = []
    async with anyio.create_task_group() as tasks:

        async def look() -> None:
            seen.append(await audit_run(tmp_path))
            if len(seen) == 3:
                tasks.cancel_scope.cancel()

        def show(progress: Progress) -> None:
            if progress.verdicts >= 2:
                tasks.start_soon(look)

        tasks.start_soon(execute, plan_run(options), show)
    seen.append(await audit_run(tmp_path))
    for certificate in seen:
        assert certificate.findings == ()
        assert certificate.open or certificate.ended


def test_canaries_change_the_run_and_its_id(tmp_path: Path) -> None:
    runs = {
        plan_run(RunOptions(data=SMALL, systems=("null",), out=tmp_path, canaries=n)).started.run
        for n in (0, 1, 2)
    }
    assert len(runs) == 3


def test_the_command_says_what_holds(tmp_path: Path) -> None:
    ran = egostream(
        "run", "--data", SMALL, "--system", "full_context", "--out", "r", "--canaries", 9, cwd=tmp_path
    )
    assert ran.code == 0, ran.err
    assert "invariants 1-7 hold; digest " in ran.out
    audited = egostream("audit", "r", "-q", cwd=tmp_path)
    assert (audited.code, audited.err) == (0, "")
    assert "It holds 9 canaries" in audited.out
    assert max(map(len, audited.out.splitlines())) <= 100
    found = egostream("audit", "r", "--json", cwd=tmp_path).json
    assert found == json.loads((tmp_path / "r" / AUDIT_NAME).read_text())
    assert found["digest"] in audited.out
    nothing = egostream("audit", "nowhere", cwd=tmp_path)
    assert nothing.code == 2
    assert "no run at nowhere" in nothing.err


def test_the_command_says_what_is_broken(tmp_path: Path) -> None:
    ran = egostream(
        "run",
        "--data",
        SMALL,
        "--system",
        "leaky=tests.audit.test_real_runs:Leaky",
        "--out",
        "r",
        "--json",
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert ran.code == 3, ran.err
    assert "foreign_commit" in {finding["rule"] for finding in ran.json["audit"]["findings"]}
    audited = egostream("audit", "r", cwd=tmp_path)
    assert audited.code == 3
    assert "Violation of 5 (foreign_commit): leaky@" in audited.out
    assert "which the commit of another trajectory wrote" in audited.out
    assert "    record run-" in audited.out


def test_a_verdict_that_was_turned_round_shows_in_the_digest(tmp_path: Path) -> None:
    run = ("run", "-q", "--data", SMALL, "--system", "full_context", "--out", "r")
    assert egostream(*run, cwd=tmp_path).code == 0
    first = (tmp_path / "r" / AUDIT_NAME).read_text()
    with closing(sqlite3.connect(tmp_path / "r" / "log.db")) as db:
        ((partition,),) = db.execute(
            "SELECT id FROM partitions WHERE topic LIKE '%.verdicts' AND partition = 0"
        )
        chunks = db.execute(f"SELECT offset, data FROM chunks_{partition}").fetchall()
        offset, data = next((o, d) for o, d in chunks if b'"outcome":"fail"' in d)
        turned = data.replace(b'"outcome":"fail"', b'"outcome":"pass"', 1)
        db.execute(f"UPDATE chunks_{partition} SET data = ? WHERE offset = ?", (turned, offset))
        db.commit()
    for command in (("audit", "r"), run):  # also where the run's own command is given again
        ran = egostream(*command, cwd=tmp_path)
        assert ran.code == 3, ran.err
        assert "Violation of form (changed)" in ran.out
    assert (tmp_path / "r" / AUDIT_NAME).read_text() == first
