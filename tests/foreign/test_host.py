"""The host as a server of docs/http-agent.md, with a system that is short."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import anyio.to_thread
import httpx
import msgspec
import pytest

from adapters.foreign.host.memories import Task
from adapters.foreign.process import ForeignProcess, start_process
from adapters.memory import Request
from adapters.systems.http_agent import HttpMemory
from simulator.errors import MemorySystemError, ProcessError
from simulator.events import MemoryRecord
from tests.adapters.helpers import context, segment
from tests.foreign.helpers import interaction, start_toy, toy_task, wait_until
from tests.models.server import Script, Server, Step

ASKED = Request(text="tea cup", phase="R1", event_time_us=9000)


def memory_at(host: ForeignProcess) -> HttpMemory:
    return HttpMemory(context(top_k=2), url=host.url, attempts=2)


async def test_deltas_answers_and_commits_name_records_alike(host: ForeignProcess, server: Server) -> None:
    memory = memory_at(host)
    first = await memory.ingest(segment(0, "red tea", "blue cup", "green hat"))
    assert first.records == (
        MemoryRecord(id="s0/m0", text="red tea", event_time_us=2),
        MemoryRecord(id="s0/m1", text="blue cup", event_time_us=2),
        MemoryRecord(id="s0/m2", text="green hat", event_time_us=2),
    )
    assert first.stored_bytes == len("red teablue cupgreen hat")
    second = await memory.ingest(segment(1, "change:tea cup", "drop:"))
    assert second.records == (
        MemoryRecord(id="s0/m2", text="tea cup", event_time_us=1001, op="update"),
        MemoryRecord(id="s0/m0", text="red tea", event_time_us=1001, op="delete"),
    )
    assert second.stored_bytes == len("tea cup") - len("green hat") - len("red tea")
    said = await memory.commit(interaction("s1/e0", "which cup?", "the blue one"))
    assert [record.id for record in said.records] == ["s1/e0/m0", "s1/e0/m1"]
    found = (await memory.answer(ASKED)).retrieved
    assert [(record.id, record.text, record.event_time_us) for record in found] == [
        ("s0/m2", "tea cup", 1001),
        ("s0/m1", "blue cup", 2),
    ]
    await memory.aclose()


async def test_forks_go_their_own_way_and_a_search_changes_none(host: ForeignProcess) -> None:
    memory = memory_at(host)
    await memory.ingest(segment(0, "red tea"))
    fork = memory.fork()
    await memory.ingest(segment(1, "blue cup"))
    once = await fork.answer(ASKED)
    assert [record.text for record in once.retrieved] == ["red tea"]
    assert await fork.answer(ASKED) == once  # the score would tell of an earlier search
    await fork.commit(interaction("e", "tea cup"))
    assert [record.text for record in (await fork.answer(ASKED)).retrieved] == ["tea cup", "red tea"]
    assert [record.text for record in (await memory.answer(ASKED)).retrieved] == ["red tea", "blue cup"]
    await fork.aclose()
    assert [record.text for record in (await memory.answer(ASKED)).retrieved] == ["red tea", "blue cup"]
    await memory.aclose()


async def test_a_call_that_comes_twice_is_done_once(host: ForeignProcess, server: Server) -> None:
    async with httpx.AsyncClient(base_url=host.url, trust_env=False, verify=False, timeout=30) as client:
        context_ = {"lane": "l", "stream": "s", "seed": 0, "top_k": 3, "word_budget": 9}
        await client.post(
            "/fork", json={"memory": None, "fork": "m", "context": context_}, headers={"Idempotency-Key": "f"}
        )
        await server.play(Script(delay_s=0.2))
        call = {"memory": "m", "segment": msgspec.to_builtins(segment(0, "red tea"))}
        both = await asyncio.gather(
            *(client.post("/ingest", json=call, headers={"Idempotency-Key": "i"}) for _ in range(2))
        )
    assert [answer.status_code for answer in both] == [200, 200]
    assert both[0].content == both[1].content
    assert len(await server.asked()) == 1


async def test_what_is_not_there_is_404(host: ForeignProcess) -> None:
    async with httpx.AsyncClient(base_url=host.url, trust_env=False, verify=False, timeout=30) as client:
        for path, call in {"/close": {"memory": "m"}, "/forget": {}}.items():
            answer = await client.post(path, json=call, headers={"Idempotency-Key": path})
            assert answer.status_code == 404


async def test_a_failed_change_takes_its_memory_with_it_and_leaves_the_one_it_was_forked_from(
    host: ForeignProcess,
) -> None:
    memory = memory_at(host)
    await memory.ingest(segment(0, "red tea"))
    fork = memory.fork()
    with pytest.raises(MemorySystemError, match="500 Internal Server Error: ValueError: can't take milk"):
        await fork.ingest(segment(1, "fail:milk"))
    with pytest.raises(MemorySystemError, match="404"):
        await fork.answer(ASKED)
    assert [record.text for record in (await memory.answer(ASKED)).retrieved] == ["red tea"]
    await fork.aclose()
    await memory.aclose()


async def test_memories_share_the_process_and_nothing_else(host: ForeignProcess, tmp_path: Path) -> None:
    memories = [memory_at(host) for _ in range(4)]
    deltas = await asyncio.gather(*(m.ingest(segment(0, f"note {i}")) for i, m in enumerate(memories)))
    assert [delta.records[0].text for delta in deltas] == [f"note {i}" for i in range(4)]
    folders = tmp_path / "process" / "memories"
    assert len(list(folders.iterdir())) == 4
    for memory in memories:
        await memory.aclose()
    await anyio.to_thread.run_sync(wait_until, lambda: not list(folders.iterdir()))


async def test_a_host_gets_no_key_no_proxy_and_no_home_of_ours(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENROUTER_API_KEY", "HTTPS_PROXY", "PYTHONPATH"):
        monkeypatch.setenv(name, "secret")
    async with start_toy(server, tmp_path) as host:
        variables = _environment(host.pid)
        memory = memory_at(host)
        await memory.ingest(segment(0, "red tea"))
        await memory.aclose()
    assert "secret" not in variables.values()
    home = tmp_path / "process" / "home"
    assert variables["HOME"] == str(home)
    assert variables["TOY"] == f"{home}/toy"
    assert (await server.asked())[0].headers["authorization"] == "Bearer none"
    assert "what the system prints" in (tmp_path / "host.log").read_text()


async def test_a_driver_that_can_t_be_imported_says_why(server: Server, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_thing")
    with pytest.raises(ProcessError, match=r"ended with exit code 1.*No module named 'no_such_thing'"):
        async with start_toy(server, tmp_path, driver=str(broken)):
            pass


async def test_a_host_that_is_not_ready_in_time_is_killed(server: Server, tmp_path: Path) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text("import time; time.sleep(60)")
    with pytest.raises(ProcessError, match="not ready within 1 s"):
        await start_process(
            Path(sys.executable), toy_task(server, tmp_path, driver=str(slow)), {}, tmp_path / "l", 1
        )


STARTS = """
import asyncio, sys, json
from pathlib import Path
from adapters.foreign.host.memories import Task
from adapters.foreign.process import start_process

async def main():
    folder = Path(sys.argv[1])
    task = Task(**json.loads(sys.argv[2]))
    process = await start_process(Path(sys.executable), task, {}, folder / "host.log")
    print(process.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_a_host_dies_with_a_run_that_is_killed(server: Server, tmp_path: Path) -> None:
    task: Task = toy_task(server, tmp_path)
    command = [sys.executable, "-c", STARTS, str(tmp_path), msgspec.json.encode(task._asdict()).decode()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        assert _runs(pid)
        run.send_signal(signal.SIGKILL)
    wait_until(lambda: not _runs(pid))


def _environment(pid: int) -> dict[str, str]:
    content = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(line.split("=", 1) for line in content if line)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_call_of_the_model_that_fails_is_the_system_s_to_say(
    host: ForeignProcess, server: Server
) -> None:
    await server.play(Script(steps=(Step(does="refuse", status=400),)))
    memory = memory_at(host)
    with pytest.raises(MemorySystemError, match="HTTPError: HTTP Error 400"):
        await memory.ingest(segment(0, "red tea"))
    await memory.aclose()
