from __future__ import annotations

import json
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from simulator.asyncapi import document
from simulator.cli.asyncapi import asyncapi
from simulator.errors import ConfigError
from simulator.events import AnyEvent, decode, encode
from simulator.plan import RunOptions, plan_run
from simulator.run import execute
from simulator.runfolder import open_run
from simulator.topics import TOPIC_OF_KIND, Topics
from tests.conftest import ROOT
from tests.history import History
from tests.node import node_folder
from tests.probes.helpers import APM
from tests.roles.harness import SMALL


def validate(document: dict[str, Any], events: list[object]) -> tuple[list[dict[str, Any]], list[Any]]:
    """AsyncAPI's own parser: what it has against the document, and the events that its schemas refuse."""
    folder = node_folder(ROOT / "tests" / "asyncapi")
    asked = json.dumps({"document": document, "events": events})
    ended = subprocess.run(
        ["node", "validate.mjs"], cwd=folder, input=asked, capture_output=True, text=True, timeout=140
    )
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    return said["diagnostics"], said["refused"]


@pytest.mark.parametrize("run", [None, "run-1"])
def test_document_is_valid_by_the_published_schema(run: str | None) -> None:
    diagnostics, _ = validate(document("1.0.0", run), [])
    # 2 is a note: that there is a newer version of AsyncAPI
    assert [found for found in diagnostics if found["severity"] < 2] == []

    broken = document("1.0.0", run)
    del broken["info"]["version"]
    broken["operations"]["readTasks"]["messages"] = [{"$ref": "#/channels/tasks/messages/task_"}]
    diagnostics, _ = validate(broken, [])
    assert len([found for found in diagnostics if found["severity"] < 2]) >= 2


async def test_schemas_take_every_event_of_a_run_of_probes_and_refuse_others(tmp_path: Path) -> None:
    options = RunOptions(data=APM, benchmark="apm", systems=("null", "bm25"), out=tmp_path / "run")
    await execute(plan_run(options))
    async with open_run(tmp_path / "run") as (log, started):
        history = await History.read(log, started.run)
    events: list[Any] = [json.loads(encode(event)) for event in history.events]
    by_kind = {event["kind"]: event for event in events}
    assert {"probe", "outline", "verdict", "response"} <= by_kind.keys()
    probe = by_kind["probe"]
    wrong: list[Any] = [
        {name: value for name, value in probe.items() if name != "metrics"},
        probe | {"metrics": ["fidelity"]},
        probe | {"gold": {"decision": "PERHAPS"}},
        by_kind["outline"] | {"sessions": [{"name": "a"}]},
        by_kind["verdict"] | {"metric": "wisdom"},
        by_kind["verdict"] | {"value": "all of it"},
    ]
    _, refused = validate(document("1.0.0"), [*events, *wrong])
    assert refused == wrong


async def test_schemas_take_every_event_of_a_run_and_refuse_others(tmp_path: Path) -> None:
    systems = ("rag_raw:retrieval=bm25", "null")
    options = RunOptions(data=SMALL, systems=systems, out=tmp_path / "run", ablate_commit=True)
    await execute(plan_run(options))
    async with open_run(tmp_path / "run") as (log, started):
        history = await History.read(log, started.run)
    events: list[Any] = [json.loads(encode(event)) for event in history.events]
    made = document("1.0.0")
    refs = [message["$ref"] for operation in made["operations"].values() for message in operation["messages"]]
    for_agents = {ref.rsplit("/", 1)[1] for ref in refs}
    assert {event["kind"] for event in events} >= {*for_agents, "anchor", "verdict"} - {
        "lane_failed",
        "load_cut_short",
    }
    by_kind = {event["kind"]: event for event in events}
    wrong: list[Any] = [
        by_kind["delta"] | {"segment": "9"},
        by_kind["response"] | {"phase": "R9"},
        by_kind["ready"] | {"kind": "ready", "role": None},
        {name: value for name, value in by_kind["committed"].items() if name != "step"},
        by_kind["delta"] | {"records": [{"id": "x", "text": "no time"}]},
    ]
    _, refused = validate(made, [*events, *wrong])
    assert refused == wrong


def test_agents_read_what_they_may_and_send_what_is_read() -> None:
    made = document("1.0.0", "r")
    assert {c["address"] for c in made["channels"].values()} == set(Topics.of("r"))
    operations = made["operations"].values()
    received = {o["channel"]["$ref"].rsplit("/", 1)[1] for o in operations if o["action"] == "receive"}
    assert {f"r.{name}" for name in received} == set(Topics.of("r").for_agents)
    sent = {m["$ref"].rsplit("/", 1)[1] for o in operations if o["action"] == "send" for m in o["messages"]}
    assert sent == {"ready", "delta", "committed", "response"}
    for kind in sent:
        message = made["components"]["messages"][kind]
        assert "\n\nId: " in message["description"]
        for example in message["examples"]:
            event = decode(json.dumps(example["payload"]).encode())
            assert json.loads(encode(event)) == example["payload"]
            assert event.id == example["name"]


def test_every_kind_has_one_message_in_its_topic() -> None:
    made = document("1.0.0")
    assert made["components"]["messages"].keys() == TOPIC_OF_KIND.keys()
    assert len(typing.get_args(AnyEvent)) == len(TOPIC_OF_KIND)
    for name, channel in made["channels"].items():
        assert channel["address"] == f"{{run}}.{name}"
        assert channel["messages"].keys() == {kind for kind, topic in TOPIC_OF_KIND.items() if topic == name}


def test_command_prints_the_same_bytes_each_time() -> None:
    program = "from simulator.cli.asyncapi import asyncapi; asyncapi(['--run', 'run-1', '--json'])"
    command = [sys.executable, "-c", program]
    printed = {
        subprocess.run(
            command, cwd=ROOT, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True, timeout=60
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    made = msgspec.json.decode(printed.pop())
    assert made["channels"]["deltas"]["bindings"]["kafka"]["topic"] == "run-1.deltas"


def test_a_run_that_can_t_be_is_refused() -> None:
    result = CliRunner().invoke(asyncapi, ["--run", "run 1"])
    assert isinstance(result.exception, ConfigError)
