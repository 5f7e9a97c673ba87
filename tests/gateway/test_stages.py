"""Whose call it is: lanes that ask at one time, calls that come late, and what each operation is told that it took."""

from __future__ import annotations

import contextlib

import anyio
import openai
import pytest
from anyio import create_task_group

from adapters.endpoints.settings import Price
from adapters.gateway import Gateway
from adapters.metering import MODEL_CACHED, MODEL_US, metered
from adapters.model import Ask
from simulator.errors import ConfigError, ModelError
from simulator.events import Usage
from tests.gateway.helpers import asking, failure, front, refused, said, stage_of, until_asked
from tests.models.server import Script, Server, Step

PRICE = Price(prompt=2e6, completion=1e6)
REFUSED = Step(does="refuse", status=400, message="no")


async def test_lanes_that_ask_at_one_time_never_mix(server: Server) -> None:
    """Each lane's prompts have a length of their own, so that whoever counted another's would have other tokens."""
    lanes, stages, calls = 6, 3, 4
    async with front(server, Script(delay_s=0.005)) as there:

        async def run(number: int) -> None:
            name = f"sys/{number}@A1 ü?#%2F"
            lane = there.lane(name)
            async with asking(lane) as client:
                for segment in range(stages):
                    with metered() as meter:
                        async with (
                            lane.stage(name, "ingest", segment=segment) as stage,
                            create_task_group() as tasks,
                        ):
                            for call in range(calls):
                                words = " ".join([f"{number}.{segment}.{call}", *["w"] * (number + segment)])
                                tasks.start_soon(said, client, words)
                    tokens = calls * (1 + number + segment)
                    assert stage.usage == Usage(prompt_tokens=tokens, completion_tokens=tokens, calls=calls)
                    assert meter.calls == calls
                    assert meter.headers()[MODEL_US] > 0
                    assert meter.headers()[MODEL_CACHED] == 0

        async with create_task_group() as tasks:
            for number in range(lanes):
                tasks.start_soon(run, number)
        accounts = {account.lane: account for account in there.gateway.accounts()}
        for number in range(lanes):
            account = accounts[f"sys/{number}@A1 ü?#%2F"]
            assert (account.operation, account.calls, account.failed) == ("ingest", stages * calls, 0)
            assert account.prompt_tokens == calls * sum(1 + number + segment for segment in range(stages))
            assert account.seconds > 0


async def test_money_and_what_the_cache_saved_are_counted_by_operation(
    server: Server, tmp_path_factory
) -> None:  # type: ignore[no-untyped-def]
    cache = tmp_path_factory.mktemp("cache") / "c.db"
    async with (
        front(server, cache=cache, price_per_million=PRICE) as there,
        asking(lane := there.lane()) as client,
    ):
        for operation in ("ingest", "commit"):
            async with lane.stage(lane.lane, operation) as stage:
                await said(client, "three words here")
            assert stage.usage == Usage(prompt_tokens=3, completion_tokens=3, calls=1)
        commit, ingest = there.gateway.accounts()
        assert (ingest.operation, ingest.cost, ingest.cached) == ("ingest", 9.0, 0)
        assert (commit.operation, commit.cost, commit.cached, commit.seconds) == ("commit", 0.0, 1, 0.0)


async def test_a_branch_is_another_memory_of_the_lane(server: Server) -> None:
    async with front(server) as there:
        lane = there.lane()
        async with lane.stage("mine@A1", "ingest") as trunk, lane.stage("mine@A1/t1", "commit") as branch:
            async with asking(lane, "mine@A1/t1") as client:
                await said(client, "hello")
            assert (trunk.usage.calls, branch.usage.calls) == (0, 1)
        other = there.lane("other@A1")
        with pytest.raises(ValueError, match="a memory of mine@A1 is called 'mine@A1/t1'"):
            other.url_of("mine@A1/t1")


async def test_a_memory_that_is_forgotten_has_no_address_and_its_calls_are_counted(server: Server) -> None:
    async with front(server) as there:
        lane, branch = there.lane(), "mine@A1/t1"
        async with asking(lane, branch) as client:
            async with lane.stage(branch, "commit"):
                await said(client, "hello")
            lane.forget(branch)
            assert (await refused(client, "who is there?")).status_code == 404
        lane.forget(branch)
        assert there.gateway.find(branch) is None
        assert [(account.operation, account.calls) for account in there.gateway.accounts()] == [("commit", 1)]
        await stage_of(lane, lambda client: said(client, "another of that name"), branch)


async def test_a_call_between_stages_counts_as_late_and_its_failure_fails_the_next(server: Server) -> None:
    async with (
        front(server, Script(steps=(Step(), REFUSED))) as there,
        asking(lane := there.lane()) as client,
    ):
        async with lane.stage(lane.lane, "ingest", segment=0) as stage:
            pass
        await said(client, "late")
        await refused(client, "too late")
        assert stage.usage.calls == 0
        # nothing is paid for what goes on with rubbish
        assert "400 Bad Request: no" in str(await failure(lane, lambda client: said(client, "not asked")))
        assert len(await server.asked()) == 2
        await stage_of(lane, lambda client: said(client, "now"))  # once is enough
        late = there.gateway.accounts()[-1]
        assert (late.operation, late.calls, late.failed) == ("late", 1, 1)


async def test_a_late_call_that_fails_while_the_next_stage_is_open_fails_that(server: Server) -> None:
    held = Step(does="refuse", status=400, held=True)
    async with front(server, Script(steps=(held,))) as there, create_task_group() as tasks:
        lane, told = there.lane(), anyio.Event()

        async def late() -> None:
            async with asking(lane) as client:
                await refused(client, "late")
            told.set()

        async def until_told(_: openai.AsyncOpenAI) -> None:
            await server.release()
            await told.wait()

        tasks.start_soon(late)
        await until_asked(server)
        assert "400 Bad Request" in str(await failure(lane, until_told))


async def test_a_stage_waits_for_the_calls_that_its_system_left_under_way(server: Server) -> None:
    async with (
        front(server, Script(steps=(Step(held=True, delay_s=0.2),))) as there,
        asking(lane := there.lane()) as client,
        create_task_group() as background,
    ):
        async with lane.stage(lane.lane, "ingest") as stage:
            background.start_soon(said, client, "in a thread")
            await until_asked(server)
            assert stage.usage.calls == 0
            await server.release()
        assert stage.usage.calls == 1


async def test_what_a_system_goes_on_with_once_a_stage_was_broken_off_is_not_the_next_one_s(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.gateway.lanes.SETTLE_S", 60.0)
    async with (
        front(server, Script(steps=(Step(held=True), Step(held=True)))) as there,
        asking(lane := there.lane()) as client,
        create_task_group() as background,
    ):

        async def follow() -> None:
            await anyio.sleep(0.2)  # by then it is waited for the first
            background.start_soon(said, client, "and in another")
            await until_asked(server, 2)
            await server.release()

        with contextlib.suppress(ValueError):
            async with lane.stage(lane.lane, "answer") as broken:
                background.start_soon(said, client, "in a thread")
                await until_asked(server)
                background.start_soon(follow)
                raise ValueError("the system failed")
        async with lane.stage(lane.lane, "answer") as following:
            pass
        assert (broken.usage.calls, following.usage.calls) == (2, 0)
        assert [(account.operation, account.calls) for account in there.gateway.accounts()] == [("answer", 2)]


async def test_a_stage_that_was_broken_off_does_not_wait_for_ever(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.gateway.lanes.SETTLE_S", 0.2)
    async with (
        front(server, Script(steps=(Step(does="hang"),))) as there,
        asking(lane := there.lane()) as client,
        create_task_group() as background,
    ):
        with anyio.fail_after(60):
            with anyio.CancelScope() as cut:
                async with lane.stage(lane.lane, "answer"):
                    background.start_soon(said, client, "to nobody")
                    await until_asked(server)
                    cut.cancel()
                    await anyio.sleep_forever()
            assert cut.cancelled_caught
            following = await stage_of(lane, lambda client: said(client, "next"))
        assert following.usage.calls == 1
        background.cancel_scope.cancel()


async def test_a_memory_has_one_stage_at_a_time(server: Server) -> None:
    order: list[str] = []
    async with front(server) as there:
        lane = there.lane()

        async def one(name: str) -> None:
            async with lane.stage(lane.lane, name):
                order.append(f"{name} begins")
                await anyio.sleep(0.01)
                order.append(f"{name} ends")

        async with create_task_group() as tasks:
            for name in ("a", "b", "c"):
                tasks.start_soon(one, name)
    assert order == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]


@pytest.mark.parametrize(
    ("broken", "says", "status"),
    [
        (ModelError("m", "offline", "the cache has no answer"), "the cache has no answer", 424),
        (ConfigError("the cache c.db can't be used"), "the cache c.db can't be used", 424),
        (KeyError("a bug"), "KeyError: 'a bug'", 500),
    ],
)
async def test_a_part_of_ours_that_is_broken_fails_the_stage_too(
    server: Server, monkeypatch: pytest.MonkeyPatch, broken: Exception, says: str, status: int
) -> None:
    async def ask(ask: Ask) -> None:
        raise broken

    async def swallow(client: openai.AsyncOpenAI) -> None:
        assert (await refused(client.with_options(max_retries=3), "hello")).status_code == status

    async with front(server) as there:
        lane = there.lane()
        monkeypatch.setattr(lane.model, "ask", ask)
        assert says in str(await failure(lane, swallow))
        assert there.gateway.accounts()[0].failed == 1


def test_an_address_holds_any_name() -> None:
    gateway = Gateway("http://127.0.0.1:1/x")
    assert gateway.lane("a@A1").url_of("a/b c") == "http://127.0.0.1:1/x/m/a%2Fb%20c/v1"
    assert gateway.accounts() == []
