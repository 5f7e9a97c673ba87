"""The port: opened where it is wanted, closed after, and open to nobody else; keys stay behind it."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import httpx
import openai
import pytest
from structlog.testing import capture_logs

from adapters.gateway.server import open_gateway
from adapters.registry import SystemSpec
from simulator.errors import ConfigError
from simulator.models import gateway_for
from tests.conftest import ROOT
from tests.gateway.helpers import asking, failure, front, refused, said, until_asked
from tests.models.server import Script, Server, Step

KEY = "sk-pr/oj+AbCdEf0123456789=secret"


def closed(url: str) -> bool:
    try:
        httpx.get(url)
    except httpx.ConnectError:
        return True
    return False


async def test_after_it_there_is_no_port_no_task_and_no_thread(server: Server) -> None:
    """Though a client has a connection open, and another is in the middle of a call."""
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    ended = ""
    async with anyio.create_task_group() as outside, httpx.AsyncClient(timeout=30) as idle:
        async with front(server, Script(steps=(Step(does="hang"),))) as there:
            lane = there.lane()
            url = lane.url_of(lane.lane)
            assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
            assert (await idle.get(url + "/models")).status_code == 200

            async def hanging() -> None:
                nonlocal ended
                async with asking(lane) as client:
                    try:
                        await said(client, "hello")
                    except openai.APIError as error:
                        ended = str(error)

            outside.start_soon(hanging)
            await until_asked(server)
        assert closed(url)
    assert "the run is over" in ended
    with anyio.fail_after(60):
        while not asyncio.all_tasks() <= tasks:  # noqa: ASYNC110  # connections end when their ends are read
            await anyio.sleep(0.01)
    # the loop's own workers, such as for host names, are no server's
    assert {t.name.split("_")[0] for t in set(threading.enumerate()) - threads} <= {
        "AnyIO worker thread",
        "asyncio",
    }


async def test_what_its_user_raises_comes_out_as_it_is_and_the_port_is_closed() -> None:
    urls: list[str] = []

    async def use() -> None:
        async with open_gateway() as gateway:
            urls.append(gateway.url)
            raise ConfigError("as it is")

    with pytest.raises(ConfigError, match="as it is"):
        await use()
    assert closed(urls[0])


async def test_a_run_that_is_cancelled_closes_it() -> None:
    url = ""
    with anyio.CancelScope() as scope:
        async with open_gateway() as gateway:
            url = gateway.url
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert closed(url)


async def test_who_does_not_know_the_address_is_told_nothing(server: Server) -> None:
    async with front(server) as there, httpx.AsyncClient(timeout=60) as client:
        lane = there.lane()
        url = lane.url_of("mine@A1")
        token = there.gateway.url.rpartition("/")[2]
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        for wrong in (
            url.replace(token, "x"),
            url.replace("mine", "yours"),
            url.removesuffix("/v1"),
            url + "/v1",
        ):
            response = await client.post(wrong + "/chat/completions", json=body)
            assert response.status_code in (404, 400), wrong
        assert await server.asked() == []
        assert url.startswith("http://127.0.0.1:")
        assert (await client.post(url + "/chat/completions", json=body)).status_code == 200


async def test_the_real_key_never_comes_through(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []

    async def look(client: openai.AsyncOpenAI) -> None:
        mine = client.with_options(api_key="the system's own")
        shown.append(str(await said(mine, "hello")))
        shown.append(str(await refused(mine, "again")))
        shown.append(str([model async for model in mine.models.list()]))

    steps = (Step(say=f"your key is {KEY}"), Step(does="refuse", status=400, message=f"{KEY} is wrong"))
    with capture_logs() as logged:
        async with front(
            server, Script(key=KEY, steps=steps), tmp_path / "c.db", api_key_env="TEST_KEY"
        ) as there:
            lane = there.lane()
            shown += [str(await failure(lane, look)), lane.url_of(lane.lane)]
            assert {asked.headers["authorization"] for asked in await server.asked()} == {f"Bearer {KEY}"}
    assert shown[0] == "your key is [key]"
    assert "[key] is wrong" in shown[1]
    for text in (*shown, repr(logged), caplog.text):
        assert "AbCdEf" not in text


async def test_what_was_asked_is_logged_and_nothing_else_is_said(
    server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    with capture_logs() as logged:
        async with front(server) as there, asking(there.lane()) as client:
            await said(client, "two words")
    assert capfd.readouterr() == ("", "")
    [entry] = logged
    assert (entry["event"], entry["lane"], entry["operation"]) == ("asked_over_http", "mine@A1", "late")
    assert (entry["calls"], entry["prompt_tokens"]) == (1, 2)


async def test_a_run_without_such_systems_opens_nothing_and_loads_no_web_server() -> None:
    async with gateway_for([SystemSpec(label="null", name="null")]) as gateway:
        assert gateway is None
    code = (
        "import sys, simulator.run, simulator.workers, simulator.cli, adapters.gateway\n"
        "print({'starlette', 'uvicorn'} & set(sys.modules))"
    )
    done = await anyio.run_process([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.STDOUT)
    assert done.stdout.decode().strip() == "set()"


async def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "asking_over_http.py").write_text(
        "from adapters.memory import Capabilities\n"
        "from adapters.systems.null import NullMemory\n\n\n"
        "class Mine(NullMemory):\n"
        "    capabilities = Capabilities(gateway=True)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    spec = SystemSpec(label="mine", name="asking_over_http:Mine")
    async with gateway_for([spec]) as gateway:
        assert gateway is not None
    monkeypatch.delitem(sys.modules, "adapters.gateway.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ConfigError, match=r"mine needs uvicorn.*pip install 'egostream\[systems\]'"):
        async with gateway_for([spec]):
            pass
