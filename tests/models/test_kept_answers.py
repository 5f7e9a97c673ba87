"""Answers that are kept: what is asked of the server again, and what several who ask at once come to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from adapters.endpoints import Models, ModelSettings
from adapters.endpoints.settings import Price
from adapters.model import Ask, Message, Said
from simulator.errors import ModelError
from tests.conftest import ROOT
from tests.models.helpers import VERDICTS, Verdict, asking, endpoint
from tests.models.server import Script, Server, Step


async def test_a_cached_answer_takes_nothing(server: Server, tmp_path: Path) -> None:
    script = Script(rule="tests.models.rules:drawn")
    async with endpoint(server, script, tmp_path / "c.db", price_per_million=Price(prompt=1)) as (
        model,
        models,
    ):
        first = await model.ask(asking("hello"))
        second = await model.ask(asking("hello"))
        assert len(await server.asked()) == 1
    free = {"cached": True, "seconds": 0.0, "cost": 0.0, "attempts": 0}
    assert second == Said(text=first.text, usage=msgspec.structs.replace(first.usage, **free))
    [tally] = models.tallies()
    assert (tally.calls, tally.cached, tally.tries, tally.prompt_tokens) == (2, 1, 1, 1)


async def test_all_that_changes_an_answer_is_asked_anew(server: Server, tmp_path: Path) -> None:
    asks = [
        asking("hello"),
        asking("hello", vote=1),
        asking("hello", temperature=0.5),
        asking("hello", seed=3),
        asking("hello", max_tokens=9),
        asking("hallo"),
    ]
    async with endpoint(server, Script(rule="tests.models.rules:drawn"), tmp_path / "c.db") as (model, _):
        texts = {(await model.ask(ask)).text for ask in asks * 2}
        assert len(texts) == len(asks)
        others: list[dict[str, Any]] = [
            {"model": "other"},
            {"body": {"top_p": 1}},
            {"seed": 9},
            {"temperature": 1},
        ]
        for changed in others:
            configured = {"m": ModelSettings(**({"base_url": server.url, "model": "scripted"} | changed))}
            async with Models(configured, cache=tmp_path / "c.db") as models:
                assert (await models.model("m", role="test").ask(asks[0])).text not in texts
        same = {
            "m2": ModelSettings(
                base_url=server.url, model="scripted", timeout_s=9, stream=True, max_in_flight=2
            )
        }
        async with Models(same, cache=tmp_path / "c.db") as models:
            assert (await models.model("m2", role="other").ask(asks[0])).text in texts


async def test_what_was_paid_for_is_found_by_later_versions() -> None:
    """Another key for the same question would ask, and pay, anew for all that a person has in the cache."""
    settings = ModelSettings(base_url="http://h/v1", model="m", temperature=1.0, body={"top_p": 0.9})
    async with Models({"m": settings}, cache=None) as models:
        model = models.model("m", role="test")
        ask = Ask(
            messages=(Message(role="system", content="s"), Message(role="user", content="u")), seed=3, vote=1
        )
        assert model.key(ask).hex() == "6e28d5c05ae3f6311c76271f63e6def67ef4492516fed8c3d8db88e2a720ceca"
        with_schema = msgspec.structs.replace(ask, schema={"type": "object"})
        assert (
            model.key(with_schema).hex() == "1035f9df1d625e80530a67709c5493df655cb8f84534f62dabd8edcb12322273"
        )


async def test_errors_are_never_kept(server: Server, tmp_path: Path) -> None:
    steps = (
        Step(does="refuse", status=400),
        Step(say='{"outcome": "?"}'),
        Step(does="empty"),
        Step(say="no"),
    )
    async with endpoint(server, Script(rule=VERDICTS, steps=steps), tmp_path / "c.db") as (model, _):
        for _ in range(2):
            with pytest.raises(ModelError):
                await model.ask_for(asking("x"), Verdict)
        verdict, said = await model.ask_for(asking("x"), Verdict)
    assert (verdict.outcome, said.usage.cached) == ("pass", False)


async def test_a_kept_answer_that_no_longer_fits_is_asked_anew(server: Server, tmp_path: Path) -> None:
    class Strict(msgspec.Struct, frozen=True, kw_only=True):
        outcome: str
        reason: str

        def __post_init__(self) -> None:
            if self.outcome != "fail":
                raise ValueError("only failures")

    class Lax(msgspec.Struct, frozen=True, kw_only=True):
        outcome: str
        reason: str

    Lax.__name__ = Strict.__name__ = "Outcome"  # one schema, one key
    steps = (Step(say='{"outcome": "pass", "reason": ""}'), Step(say='{"outcome": "fail", "reason": ""}'))
    async with endpoint(server, Script(steps=steps), tmp_path / "c.db") as (model, _):
        assert (await model.ask_for(asking("x"), Lax))[0].outcome == "pass"
        assert (await model.ask_for(asking("x"), Strict))[0].outcome == "fail"
        assert (await model.ask_for(asking("x"), Strict))[1].usage.cached
        assert len(await server.asked()) == 2


async def test_equal_questions_at_one_time_are_one_call(server: Server, tmp_path: Path) -> None:
    script = Script(rule="tests.models.rules:drawn", delay_s=0.1)
    async with endpoint(server, script, tmp_path / "c.db") as (_model, models):
        said: list[Said] = []

        async def ask(role: str) -> None:
            said.append(await models.model("m", role=role).ask(asking("hello")))

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(ask, f"role {number % 2}")
        assert len(await server.asked()) == 1
    assert len({s.text for s in said}) == 1
    assert sorted(s.usage.cached for s in said) == [False] + [True] * 9


async def test_if_the_one_who_asks_is_cancelled_another_asks(server: Server, tmp_path: Path) -> None:
    script = Script(steps=(Step(does="hang"),))
    async with endpoint(server, script, tmp_path / "c.db") as (model, models):
        said: list[Said] = []
        cut = anyio.CancelScope()

        async def first() -> None:
            with cut:
                await model.ask(asking("hello"))

        async def second() -> None:
            said.append(await model.ask(asking("hello")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            while not await server.asked():  # noqa: ASYNC110  # another process has no event of ours
                await anyio.sleep(0.01)
            tasks.start_soon(second)
            await anyio.wait_all_tasks_blocked()
            assert models.tallies()[0].calls == 2
            cut.cancel()
        assert len(await server.asked()) == 2
    assert said[0].text == "hello"


async def test_offline_answers_from_the_cache_alone_and_counts_what_is_missing(
    server: Server, tmp_path: Path
) -> None:
    async with endpoint(server, Script(), tmp_path / "c.db") as (model, _):
        await model.ask(asking("known"))
    configured = {"m": ModelSettings(base_url=server.url, model="scripted", api_key_env="NOT_SET_HERE")}
    async with Models(configured, cache=tmp_path / "c.db", offline=True) as models:
        model = models.model("m", role="judge")
        assert (await model.ask(asking("known"))).text == "known"
        for text in ("new", "newer"):
            with pytest.raises(ModelError, match="m: the cache has no answer") as raised:
                await model.ask(asking(text))
            assert raised.value.failure == "offline"
    assert len(await server.asked()) == 1
    [tally] = models.tallies()
    assert (tally.calls, tally.cached, tally.missing, tally.failed) == (3, 1, 2, 0)
    assert models.missing() == {"m": 2}


ASKER = """
import sys, anyio
from pathlib import Path
from adapters.endpoints import Models, ModelSettings
from tests.models.helpers import asking

async def main(url, cache):
    settings = {"m": ModelSettings(base_url=url, model="scripted")}
    async with Models(settings, cache=Path(cache)) as models:
        model = models.model("m", role="test")
        for number in range(30):
            print((await model.ask(asking(f"number {number}"))).text)

anyio.run(main, *sys.argv[1:])
"""


async def test_processes_that_ask_the_same_at_once_go_on_with_one_answer(
    server: Server, tmp_path: Path
) -> None:
    """Each answer of this server is another one, so that it shows whose was kept."""
    await server.play(Script(rule="tests.models.rules:drawn", delay_s=0.02))
    said: list[str] = []

    async def ask() -> None:
        done = await anyio.run_process(
            [sys.executable, "-c", ASKER, server.url, str(tmp_path / "c.db")], cwd=ROOT
        )
        said.append(done.stdout.decode())

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask)
    assert len(said[0].splitlines()) == 30
    assert said[0] == said[1] == said[2]
    assert 30 <= len(await server.asked()) <= 90
    before = len(await server.asked())
    await ask()
    assert said[3] == said[0]
    assert len(await server.asked()) == before


async def test_calls_that_are_cancelled_leave_nothing_behind(server: Server, tmp_path: Path) -> None:
    script = Script(delay_s=30)
    async with endpoint(server, script, tmp_path / "c.db", max_in_flight=4) as (model, models):
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(model.ask, asking(f"number {number % 10}"))
            while len(await server.asked()) < 4:  # noqa: ASYNC110  # another process has no event of ours
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        await server.play(Script(steps=(Step(held=True),) * 10))
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(model.ask, asking(f"number {number}"))
            while len(await server.asked()) < 4:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            await server.release()
        asked = await server.asked()
    assert len(asked) == 10
    assert max(a.at_once for a in asked) == 4  # all places are free again
    assert models.tallies()[0].failed == 0
