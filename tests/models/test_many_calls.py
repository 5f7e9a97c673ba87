"""Many calls at one server: its limits, its faults, and a server that is gone."""

from __future__ import annotations

import time

import anyio
import pytest

from adapters.endpoints import Models, ModelSettings
from simulator.errors import ConfigError, ModelError
from tests.models.helpers import FAULTS, VERDICTS, Verdict, asking, endpoint
from tests.models.server import Script, Server, Step


async def test_a_model_is_opened_once_whatever_asks_it(server: Server) -> None:
    async with endpoint(server, Script(delay_s=0.05), max_in_flight=1) as (model, models):
        other = models.model("m", role="other")
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(model.ask, asking(f"a{number}"))
                tasks.start_soon(other.ask, asking(f"b{number}"))
        assert max(a.at_once for a in await server.asked()) == 1
        assert [(t.model, t.role, t.calls) for t in models.tallies()] == [("m", "test", 4), ("m", "other", 4)]
        with pytest.raises(ConfigError, match="is one for chat, and embeddings is wanted"):
            models.embedder("m", role="r")


async def test_calls_to_a_server_with_a_hidden_limit_are_all_answered(server: Server) -> None:
    async with endpoint(server, Script(delay_s=0.15, most_at_once=6), max_in_flight=64) as (model, models):
        texts = [f"number {number}" for number in range(200)]
        said: list[str] = []

        async def ask(text: str) -> None:
            said.append((await model.ask(asking(text))).text)

        async with anyio.create_task_group() as tasks:
            for text in texts:
                tasks.start_soon(ask, text)
        asked = await server.asked()
    assert sorted(said) == sorted(texts)
    refused = sum(a.did == "429" for a in asked)
    assert 0 < refused < 60
    assert models.tallies()[0].tries == 200 + refused
    assert max(a.at_once for a in asked) > 6


async def test_with_thirty_percent_of_calls_failing_none_is_lost(server: Server) -> None:
    faults = (*FAULTS.values(), Step(say='{"outcome": "perhaps"}'), Step(say="I would rather not."))
    script = Script(rule=VERDICTS, faults=faults, fault_share=0.3, seed=1)
    async with endpoint(server, script, timeout_s=2.0) as (model, models):
        verdicts: dict[int, Verdict] = {}

        async def ask(number: int) -> None:
            verdicts[number] = (await model.ask_for(asking(f"case {number}"), Verdict))[0]

        async with anyio.create_task_group() as tasks:
            for number in range(150):
                tasks.start_soon(ask, number)
        did = {a.did for a in await server.asked()}
    assert all(verdicts[number].reason.startswith((f"case {number}", "That can't")) for number in range(150))
    assert len(verdicts) == 150
    assert did >= {"429", "500", "503", "cut", "hang", "not_json", "wrong_shape", "empty"}
    assert models.tallies()[0].failed == 0


async def test_a_server_that_is_gone_ends_all_calls_soon_and_is_found_again(server: Server) -> None:
    async with endpoint(server, Script(), attempts=3, timeout_s=2.0) as (model, models):
        await server.play(Script(faults=(FAULTS["hang"],), fault_share=1))
        failures: list[ModelError] = []

        async def ask(number: int) -> None:
            try:
                await model.ask(asking(f"number {number}"))
            except ModelError as error:
                failures.append(error)

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(ask, number)
        assert {error.failure for error in failures} == {"unavailable"}
        assert len(failures) == models.tallies()[0].failed == 100
        tried = len(await server.asked())
        assert tried <= 8 * 3 + 8  # and not 300, each with its time-out
        with pytest.raises(ModelError):
            await model.ask(asking("is it back?"))
        assert len(await server.asked()) == tried + 1
        await server.play(Script())
        assert (await model.ask(asking("and now?"))).text == "and now?"
        await server.play(Script(steps=(FAULTS["500"],)))
        assert (await model.ask(asking("tried again?"))).text == "tried again?"


async def test_where_nobody_listens_it_says_so(server: Server) -> None:
    configured = {"m": ModelSettings(base_url="http://127.0.0.1:1/v1", model="x", attempts=2)}
    async with Models(configured, cache=None) as models:
        with pytest.raises(ModelError, match=r"m: can't connect: .* \(2 tries\)") as raised:
            await models.model("m", role="test").ask(asking("hello"))
    assert raised.value.failure == "unavailable"


async def test_requests_of_a_minute_are_kept_to(server: Server) -> None:
    async with endpoint(server, requests_per_minute=600) as (model, _):
        began = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for number in range(110):
                tasks.start_soon(model.ask, asking(f"number {number}"))
        assert time.perf_counter() - began > 0.99  # a burst of 100, then ten in a second
        assert len(await server.asked()) == 110


async def test_tokens_of_a_minute_are_kept_to_as_they_were_really_used(server: Server) -> None:
    """Each call reserves 100 tokens and more, and takes four: after one answer, the next needs not wait."""
    async with endpoint(server, tokens_per_minute=1_200, max_in_flight=1) as (model, _):
        with anyio.fail_after(60):  # 2,000 tokens would take 90 s
            for number in range(20):
                await model.ask(asking(f"number {number}", max_tokens=100))
