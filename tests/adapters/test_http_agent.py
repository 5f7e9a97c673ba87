from __future__ import annotations

import json
import random
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters.memory import Answer, Capabilities, Interaction, LaneContext, MemorySystem, Request
from adapters.registry import capabilities, open_system, parse_spec
from adapters.systems.http_agent import (
    AgentContext,
    AnswerCall,
    CloseCall,
    CommitCall,
    DeltaReply,
    ForkCall,
    IngestCall,
)
from simulator.errors import ConfigError, MemorySystemError
from simulator.events import Turn
from tests.adapters.helpers import context, segment
from tests.adapters.http_servers import server
from tests.conftest import ROOT

DATA = "synthetic:wearers=1,segments_per_day=12,anchors_per_day=6"


@pytest.fixture(scope="module")
def example() -> Iterator[str]:
    with server("example") as url:
        yield url


@pytest.fixture(scope="module")
def good(example: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The verdicts of a run in which nothing went wrong."""
    out = tmp_path_factory.mktemp("good") / "run"
    code, said = run(out, "--system", f"x=http:url={example}")
    assert code == 0, said
    return verdicts(out)


def run(out: Path, *arguments: str) -> tuple[int, str]:
    """`egostream run`: exit code and what it said."""
    command = [sys.executable, "-m", "egostream", "run", "--data", DATA, "--out", str(out), *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    return ended.returncode, ended.stdout + ended.stderr


def verdicts(out: Path) -> dict[str, dict[str, Any]]:
    """Id → verdict, without the run's id, which hangs on the server's port."""
    lines = [json.loads(line) for line in (out / "verdicts.jsonl").read_text().splitlines()]
    return {line["id"]: {k: v for k, v in line.items() if k != "run"} for line in lines}


def talk(number: int, event_time_us: int) -> Interaction:
    turns = (Turn(role="user", text=f"word{number}?"), Turn(role="assistant", text="perhaps"))
    return Interaction(id=f"i{number}", turns=turns, event_time_us=event_time_us)


async def retrieved(memory: MemorySystem) -> list[str]:
    answer = await memory.answer(Request(text="any", phase="R1"))
    return sorted(record.id for record in answer.retrieved)


def test_the_example_is_evaluated_from_end_to_end(tmp_path: Path) -> None:
    with server("example") as url:
        code, said = run(tmp_path / "run", "--system", f"http:url={url}", "--ablate-commit")
    assert code == 0, said
    found = verdicts(tmp_path / "run")
    assert len({v["anchor"] for v in found.values()}) == 6
    assert all(v["lane"].startswith("http@") for v in found.values())
    assert {v["outcome"] for v in found.values()} == {"pass", "fail"}
    fidelity = [v["outcome"] for v in found.values() if v["metric"] == "fidelity"]
    assert fidelity == ["pass"] * 6  # it keeps every line


@pytest.mark.parametrize("spec", ["rag_raw:retrieval=bm25", "full_context"])
def test_the_same_memory_has_the_same_verdicts_here_and_behind_http(tmp_path: Path, spec: str) -> None:
    code, said = run(tmp_path / "here", "--system", f"x={spec}", "--ablate-commit")
    assert code == 0, said
    with server("serve", spec) as url:
        code, said = run(tmp_path / "there", "--system", f"x=http:url={url}", "--ablate-commit")
    assert code == 0, said
    assert verdicts(tmp_path / "there") == verdicts(tmp_path / "here")


@pytest.mark.parametrize("seed", range(8))
async def test_a_fork_is_of_its_moment_whatever_is_told_when(example: str, seed: int) -> None:
    draw = random.Random(seed)
    root = open_system(f"http:url={example}", context(top_k=1000))
    memories: list[tuple[MemorySystem, frozenset[str]]] = [(root, frozenset())]
    for step in range(60):
        place = draw.randrange(len(memories))
        memory, holds = memories[place]
        match draw.choice(["ingest", "commit", "fork", "fork", "answer", "close"]):
            case "ingest":
                delta = await memory.ingest(segment(step, "a line", "another"))
                memories[place] = (memory, holds | {r.id for r in delta.records})
            case "commit":
                delta = await memory.commit(talk(step, step))
                memories[place] = (memory, holds | {r.id for r in delta.records})
            case "fork":
                memories.append((memory.fork(), holds))
            case "answer":
                assert await retrieved(memory) == sorted(holds)
            case "close" if len(memories) > 1:
                await memories.pop(place)[0].aclose()
    for memory, holds in memories:
        assert await retrieved(memory) == sorted(holds)
        await memory.aclose()


async def test_what_no_one_asks_is_not_told() -> None:
    with server("fails", "2") as url:  # more than two calls would fail: the root and the ingest are two
        never_begun = open_system(f"http:url={url}", context())
        await never_begun.aclose()
        memory = open_system(f"http:url={url}", context())
        await memory.fork().aclose()
        await memory.ingest(segment(0, "tea"))
        await memory.aclose()
        await memory.aclose()  # a second time is nothing


@pytest.mark.parametrize("mode", ["busy", "breaks"])
def test_calls_that_were_put_off_or_whose_answer_was_lost_are_done_once(
    tmp_path: Path, good: dict[str, dict[str, Any]], mode: str
) -> None:
    with server(mode) as url:
        code, said = run(tmp_path / "bad", "--system", f"x=http:url={url}")
    assert code == 0, said
    assert verdicts(tmp_path / "bad") == good


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("dies", r"can't connect"),
        ("rubbish", r"JSON is malformed.*it said: <html>"),
        ("shapeless", r'missing required field `\w+`.*it said: {"error": "out of memory"}'),
        ("fails", r"500 Internal Server Error: Traceback: ZeroDivisionError"),
        ("moved", r"302 Found"),
        ("hangs", r"no answer within 2 s"),
    ],
)
def test_a_server_that_goes_wrong_leaves_results_unjudged_and_none_wrong(
    tmp_path: Path, good: dict[str, dict[str, Any]], mode: str, says: str
) -> None:
    timeout_s = 2 if mode == "hangs" else 60
    with server(mode, "25") as url:
        code, said = run(tmp_path / "bad", "--system", f"x=http:url={url},attempts=2,timeout_s={timeout_s}")
    assert code == 4, said
    bad = verdicts(tmp_path / "bad")
    unjudged = [v for v in bad.values() if v["outcome"] == "unjudged"]
    assert any(re.search(says, v["reason"]) for v in unjudged)
    assert all(v["reason"] for v in unjudged)
    for name, verdict in bad.items():
        assert verdict["outcome"] == "unjudged" or verdict == good[name]
    assert len(unjudged) < len(bad)


def test_nobody_there_at_all(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can take the port meanwhile
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        code, said = run(tmp_path / "run", "--system", f"http:url={url},attempts=2")
    assert code == 4, said
    found = verdicts(tmp_path / "run").values()
    assert {v["outcome"] for v in found} == {"unjudged"}
    assert all(f"{url}/fork: can't connect" in v["reason"] for v in found if v["metric"] == "fidelity")


def test_a_server_that_can_t_fork_runs_in_isolation_shared(tmp_path: Path) -> None:
    with server("example") as url:
        code, said = run(tmp_path / "run", "--system", f"http:url={url},fork=none")
        assert code == 2
        assert "http can't branch its memory (it declares fork=none): run it with --isolation shared" in said
        code, said = run(tmp_path / "run", "--system", f"http:url={url},fork=none", "--isolation", "shared")
    assert code == 0, said
    assert capabilities("http:url=http://x,fork=none") == Capabilities(fork="none")
    assert capabilities("http:url=http://x") == Capabilities()


def test_a_server_that_can_t_fork_is_replayed(tmp_path: Path) -> None:
    with server("example") as url:
        for fork in ("cheap", "replay"):
            system = f"http=http:url={url},fork={fork}"
            code, said = run(tmp_path / fork, "--system", system, "--ablate-commit")
            assert code == 0, said
    assert "http can't fork: each trajectory ran on a new memory" in said
    kept = {fork: verdicts(tmp_path / fork) for fork in ("cheap", "replay")}
    assert kept["replay"] == kept["cheap"]
    assert capabilities("http:url=http://x,fork=replay") == Capabilities(fork="replay")


async def test_a_memory_that_the_server_forgot_is_an_error_and_no_empty_memory() -> None:
    with server("example") as url:
        memory = open_system(f"http:url={url},attempts=1", context())
        await memory.ingest(segment(0, "tea"))
    port = int(url.rsplit(":", 1)[1])
    with pytest.raises(MemorySystemError, match=f"{port}/answer: (can't connect|the connection broke)"):
        await memory.answer(Request(text="tea?", phase="R1"))
    await memory.aclose()

    with server("example") as url:
        memory = open_system(f"http:url={url}", context())
        await memory.ingest(segment(0, "tea"))
        fork = memory.fork()
        await fork.answer(Request(text="tea?", phase="R1"))
        fork._id = "another"  # type: ignore[attr-defined]  # what the server knows nothing of
        with pytest.raises(MemorySystemError, match="404 Not Found: there is no 'another' here"):
            await fork.answer(Request(text="tea?", phase="R1"))
        await memory.aclose()
        await fork.aclose()


async def test_a_fork_that_the_server_refuses_is_lost_alone() -> None:
    with server("fails", "2") as url:  # the root and one ingest are well
        memory = open_system(f"http:url={url}", context())
        await memory.ingest(segment(0, "tea"))
        fork = memory.fork()
        with pytest.raises(MemorySystemError, match="/ingest: 500"):
            await memory.ingest(segment(1, "cup"))
        with pytest.raises(MemorySystemError, match="/fork: 500"):
            await fork.answer(Request(text="tea?", phase="R1"))
        await fork.aclose()
        await memory.aclose()


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("http", "needs the server's address"),
        ("x=http:url=127.0.0.1:8000", "is no address"),
        ("http:url=ftp://h/x", "is no address: write it as http://HOST:PORT"),
        ("http:url=http://h:99999", "is no address"),
        ("http:url=http://me:secret@h", "user name or password"),
        ("http:url=http://h/?q", "ends before any"),
        ("http:url=http://h,fork=dear", "one of cheap, replay, none"),
        ("http:url=http://h,timeout_s=0", "timeout_s must be above 0"),
        ("http:url=http://h,token_env=NO_SUCH_TOKEN", "no NO_SUCH_TOKEN in the environment"),
    ],
)
def test_what_can_t_be_an_agent_is_one_clear_line(spec: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        open_system(spec, context())
    assert "secret" not in str(raised.value)


def test_an_address_makes_no_label() -> None:
    assert parse_spec("http:url=http://127.0.0.1:8000").label == "http"
    assert parse_spec("mine=http:url=http://127.0.0.1:8000").label == "mine"
    with pytest.raises(ConfigError, match=r"label=my\.pkg:Mine:url=http://x"):
        parse_spec("my.pkg:Mine:url=http://x")


def test_a_token_travels_and_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    memory = open_system("http:url=http://127.0.0.1:1,token_env=MY_TOKEN", context())
    client = memory._shared._client._client  # type: ignore[attr-defined]
    assert client.headers["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in repr(client.headers)


def test_the_documentation_shows_what_really_travels() -> None:
    shown = re.findall(r"```json (\w+)\n(.*?)```", (ROOT / "docs" / "http-agent.md").read_text(), re.DOTALL)
    kinds: dict[str, Any] = {
        "fork": ForkCall,
        "ingest": IngestCall,
        "answer": AnswerCall,
        "commit": CommitCall,
        "close": CloseCall,
        "Delta": DeltaReply,
        "Answer": Answer,
    }
    assert [name for name, _ in shown] == list(kinds)
    for name, example in shown:
        decoded = msgspec.json.decode(example, type=kinds[name])
        assert json.loads(msgspec.json.encode(decoded)) == json.loads(example), name


def test_only_the_lane_s_own_settings_are_sent() -> None:
    # the gold; a folder, models and how answers are made here, not on the server
    here = {"anchors", "directory", "responder", "model_of", "embedder_of", "gateway", "language"}
    here |= {"ranked", "sessions", "logs"}
    fields = set(LaneContext.__struct_fields__) - here
    assert set(AgentContext.__struct_fields__) == fields
