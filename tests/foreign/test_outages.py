"""Runs whose model fails now and then, or is gone for a while: nothing of it gets into a memory, nothing is lost, and
in the end the verdicts are those of a run that was left alone."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import anyio.to_thread
import msgspec
import pytest

from adapters.foreign.catalogue import known
from adapters.foreign.environment import installed
from simulator.events import DeltaEvent
from simulator.intake import read_events
from simulator.runfolder import open_run
from simulator.topics import Topics
from tests.cli.helpers import Ran, egostream, has, started
from tests.conftest import ROOT, skip_without
from tests.foreign.test_runs import outcomes
from tests.models.server import Script, Server, Step, running_server, scripted_server

DATA = "synthetic:seed=3,wearers=1,days=1,segments_per_day=4,observations_per_segment=6,anchors_per_day=4"
WRONG = "this model is out of order"
BROKEN = (
    Step(does="refuse", status=503, message=WRONG, retry_after="0"),
    Step(does="not_json"),
    Step(does="cut"),
    Step(does="wrong_shape"),
    Step(does="empty"),
    Step(does="hang"),
)
RULE = "tests.foreign.rules:everyone"
TOY = "toy=tests.foreign.helpers:ToyMemory:model=toy"
CALLS_BEFORE = {"toy": 8, "mem0": 2}
"""In the second segment, or near it."""


def arguments(
    folder: Path, server: Server, spec: str, out: str, attempts: int, timeout_s: float = 60.0
) -> list[object]:
    told = f'base_url = "{server.url}"\nattempts = {attempts}\ntimeout_s = {timeout_s}\n'
    names = ("toy", "mem0", "answers")
    tables = (f'[models.{name}]\nmodel = "{name}"\n{told}' for name in names)
    (folder / "models.toml").write_text("".join(tables))
    where = ("--models", folder / "models.toml", "--cache", folder / f"{out}.db", "--out", folder / out)
    return ["run", "--data", DATA, "--system", spec, *where, "--answers", "answers", "-q"]


async def ran(*words: object) -> Ran:
    return await anyio.to_thread.run_sync(functools.partial(egostream, *words, cwd=ROOT))


async def check_kept(run: Path) -> None:
    """Each segment has its delta, and nobody wrote down that a model failed."""
    async with open_run(run) as (log, started_event):
        topics = Topics.of(started_event.run)
        read = read_events(log, started_event.run, [topics.deltas, topics.responses, topics.commits])
        events = [event async for event, _ in read]
    deltas = [event for event in events if isinstance(event, DeltaEvent)]
    assert [delta.segment for delta in deltas] == list(range(4))
    assert all(bool(delta.records) != bool(delta.error) for delta in deltas)
    for event in events:
        said = {name: value for name, value in msgspec.to_builtins(event).items() if name != "error"}
        assert not any(word in str(said) for word in (WRONG, "Error", "Traceback", "<html>")), said


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, str]]:
    """The verdicts on a system where nothing fails."""

    @functools.cache
    def run(spec: str) -> dict[str, str]:
        folder = tmp_path_factory.mktemp("sound")
        with running_server(Script(rule=RULE)) as server:
            done = egostream(*arguments(folder, server, spec, "run", 1), cwd=ROOT)
        assert done.code == 0, done.err + done.out
        found = outcomes(folder / "run")
        assert {"pass", "fail"} <= set(found.values())
        return found

    return run


def spec_of(name: str, request: pytest.FixtureRequest) -> str:
    """How the system is named, once it is installed."""
    if name == "toy":
        request.getfixturevalue("toy")
        return TOY
    if installed(known(name)) is None:
        skip_without("systems", f"{name} is not installed: egostream systems install {name}")
    return f"{name}:model={name}"


@pytest.mark.usefixtures("toy")
async def test_with_a_fifth_of_calls_failing_verdicts_are_those_of_a_sound_model(
    undisturbed: Callable[[str], dict[str, str]], tmp_path: Path
) -> None:
    async with scripted_server(Script(rule=RULE, faults=BROKEN, fault_share=0.2, seed=1)) as server:
        done = await ran(*arguments(tmp_path, server, TOY, "failing", 12, 2.0))
        did = Counter(call.did for call in await server.asked())
    assert done.code == 0, done.err + done.out
    assert len(did) == 1 + len(BROKEN), did
    assert outcomes(tmp_path / "failing") == await anyio.to_thread.run_sync(undisturbed, TOY)
    await check_kept(tmp_path / "failing")


@pytest.mark.parametrize("name", ["toy", "mem0"])
async def test_what_a_model_that_was_gone_for_a_while_left_undone_a_retry_brings(
    name: str, undisturbed: Callable[[str], dict[str, str]], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    spec = spec_of(name, request)
    sound = await anyio.to_thread.run_sync(undisturbed, spec)
    async with scripted_server(Script(rule=RULE, delay_s=0.3)) as server:
        words = arguments(tmp_path, server, spec, "gone", 2)
        with started(*words, cwd=ROOT) as run:
            while len(await server.asked()) < CALLS_BEFORE[name]:
                assert run.poll() is None
                await anyio.sleep(0.02)
            server.process.kill()
            server.process.wait()
            failed = functools.partial(has, tmp_path / "gone", "deltas", "error!=null")
            while run.poll() is None and not await anyio.to_thread.run_sync(failed):
                pass
            port = int(server.url.rpartition(":")[2].partition("/")[0])
            async with scripted_server(Script(rule=RULE), port):
                code = await anyio.to_thread.run_sync(run.wait)
                assert code == 4, run.communicate()
                await check_kept(tmp_path / "gone")
                done = await ran("retry", tmp_path / "gone", "-q")
    assert done.code == 0, done.err + done.out
    await check_kept(tmp_path / "gone" / "retry-1")
    assert outcomes(tmp_path / "gone") == sound
