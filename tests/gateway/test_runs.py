"""A whole run with a system that asks over HTTP: what its calls came to is counted as everybody's is."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio.to_thread

from tests.cli.helpers import Ran, egostream
from tests.conftest import ROOT
from tests.models.server import Script, Server, Step, scripted_server

DATA = "synthetic:seed=3,wearers=1,days=1,segments_per_day=4,observations_per_segment=10,anchors_per_day=4"
SYSTEM = "careless=tests.gateway.systems:Careless:model=small"


async def ran(folder: Path, server: Server, out: str, *more: str) -> Ran:
    (folder / "models.toml").write_text(
        f'[models.small]\nbase_url = "{server.url}"\nmodel = "small"\nattempts = 1\n'
        "price_per_million = {prompt = 2.0, completion = 2.0}\n"
    )
    where = ["--models", folder / "models.toml", "--cache", folder / "cache.db", "--out", folder / out]
    command = ["run", "--data", DATA, "--system", SYSTEM, *where, "-q", *more]
    return await anyio.to_thread.run_sync(partial(egostream, *command, cwd=ROOT))


async def test_its_calls_are_counted_paid_once_and_the_same_in_each_run(tmp_path: Path) -> None:
    async with scripted_server(Script()) as server:
        done = await ran(tmp_path, server, "run", "--json")
        assert done.code == 0, done.err + done.out
        calls = await server.asked()
        again = await ran(tmp_path, server, "again", "--json")
        assert again.code == 0, again.err
        assert len(await server.asked()) == len(calls)
    assert {call.body["seed"] for call in calls} == {0}
    rows = {row["role"]: row for row in done.json["spending"] if row["system"] == "careless"}
    assert rows.keys() == {"ingest", "commit"}
    assert rows["ingest"]["calls"] == 4
    assert rows["commit"]["calls"] == 4
    assert sum(row["prompt_tokens"] for row in rows.values()) == sum(
        len(call.body["messages"][0]["content"].split()) for call in calls
    )
    assert rows["ingest"]["money"]["total"] == 4e-6 * rows["ingest"]["prompt_tokens"]
    assert rows["ingest"]["model_seconds"]["total"] > 0
    cached = {row["role"]: row["cached"] for row in again.json["spending"] if row["system"] == "careless"}
    assert cached == {"ingest": 4, "commit": 4}
    assert (tmp_path / "run" / "verdicts.jsonl").read_bytes() == (
        tmp_path / "again" / "verdicts.jsonl"
    ).read_bytes()


async def test_a_call_that_fails_for_good_is_a_failed_delta_though_the_system_goes_on(tmp_path: Path) -> None:
    down = Script(faults=(Step(does="refuse", status=503),), fault_share=1.0)
    async with scripted_server(down) as server:
        done = await ran(tmp_path, server, "run")
    assert done.code == 4
    assert "careless failed to ingest 4 segments: ModelError: small: 503" in done.out + done.err
