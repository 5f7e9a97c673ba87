"""An endpoint against the scripted server: what it asks, how it tries again, and when it gives up."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from adapters.endpoints import Models, ModelSettings
from adapters.endpoints.settings import Price
from adapters.model import Ask, Message, ModelUsage, Said
from simulator.errors import ConfigError, ModelError
from tests.conftest import ROOT
from tests.models.helpers import Verdict, asking, endpoint
from tests.models.server import Script, Server, Step

VERDICTS = "tests.models.rules:verdict"


async def test_an_answer_comes_with_what_it_took(server: Server) -> None:
    price = Price(prompt=2.0, completion=10.0)
    async with endpoint(server, Script(delay_s=0.05), price_per_million=price) as (model, _):
        said = await model.ask(asking("three words here", max_tokens=7))
        [asked] = await server.asked()
    usage = msgspec.structs.replace(said.usage, seconds=0.0)
    assert said.usage.seconds >= 0.05
    assert said.text == "three words here"
    assert usage == ModelUsage(prompt_tokens=3, completion_tokens=3, cost=pytest.approx(36e-6))
    assert asked.body == {
        "model": "scripted",
        "messages": [{"role": "user", "content": "three words here"}],
        "max_tokens": 7,
    }


async def test_a_stream_has_its_tokens_and_the_time_to_the_first(server: Server) -> None:
    script = Script(delay_s=0.05, token_s=0.02)
    async with endpoint(server, script, stream=True) as (model, _):
        said = await model.ask(asking("five words, as they come"))
        [asked] = await server.asked()
    assert said.text == "five words, as they come"
    assert (said.usage.prompt_tokens, said.usage.completion_tokens, said.usage.tokens_known) == (5, 5, True)
    assert said.usage.first_token_s is not None
    assert 0.07 <= said.usage.first_token_s <= said.usage.seconds - 4 * 0.02
    assert asked.body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_that_the_server_does_not_count_are_unknown(server: Server, stream: bool) -> None:
    async with endpoint(server, Script(usage=False), stream=stream) as (model, models):
        said = await model.ask(asking("hello"))
    assert said.text == "hello"
    assert (said.usage.prompt_tokens, said.usage.tokens_known) == (0, False)
    assert models.tallies()[0].uncounted == 1


FAULTS = {
    "429": Step(does="refuse", status=429),
    "429 for a while": Step(does="refuse", status=429, retry_after="0.05"),
    "500": Step(does="refuse", status=500),
    "503": Step(does="refuse", status=503, retry_after="0"),
    "cut": Step(does="cut"),
    "hang": Step(does="hang"),
    "not_json": Step(does="not_json"),
    "wrong_shape": Step(does="wrong_shape"),
    "empty": Step(does="empty"),
}
WITHOUT_STREAM = {"not_json", "wrong_shape"}  # the server does not stream these


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
async def test_what_passes_is_waited_out(server: Server, fault: str, stream: bool) -> None:
    script = Script(rule=VERDICTS, steps=(FAULTS[fault], FAULTS[fault]))
    async with endpoint(server, script, stream=stream, timeout_s=0.3) as (model, models):
        verdict, said = await model.ask_for(asking("why not"), Verdict)
        asked = await server.asked()
    assert verdict == Verdict(outcome="pass", reason="why not")
    assert len(asked) == 3
    assert said.usage.attempts == 3
    assert asked[0].body == asked[2].body
    [tally] = models.tallies()
    assert (tally.calls, tally.tries, tally.failed, tally.cached) == (1, 3, 0, 0)


@pytest.mark.parametrize(
    ("fault", "failure", "says"),
    [
        ("500", "unavailable", r"m: 500 Internal Server Error: try later \(3 tries\)"),
        ("503", "unavailable", "503 Service Unavailable"),
        ("cut", "unavailable", "the connection broke"),
        ("hang", "unavailable", "no answer within 0.2 s"),
        ("not_json", "unavailable", "can't be read"),
        ("wrong_shape", "unavailable", "no completion"),
        ("empty", "nonsense", r"m: an empty answer \(3 times\)"),
    ],
)
async def test_what_does_not_pass_is_given_up_with_a_reason(
    server: Server, fault: str, failure: str, says: str
) -> None:
    script = Script(faults=(FAULTS[fault],), fault_share=1)
    async with endpoint(server, script, timeout_s=0.2, attempts=3) as (model, models):
        with pytest.raises(ModelError, match=says) as raised:
            await model.ask(asking("hello"))
        assert len(await server.asked()) == 3
    assert (raised.value.model, raised.value.failure) == ("m", failure)
    assert (models.tallies()[0].failed, models.tallies()[0].tries) == (1, 3)


async def test_a_429_uses_up_the_deadline_and_no_attempt(server: Server) -> None:
    script = Script(faults=(FAULTS["429"],), fault_share=1)
    async with endpoint(server, script, attempts=1, deadline_s=0.5) as (model, _):
        with pytest.raises(ModelError, match=r"429 Too Many Requests: try later \(\d+ tries\)") as raised:
            await model.ask(asking("hello"))
        assert len(await server.asked()) > 3
    assert raised.value.failure == "unavailable"


async def test_a_server_that_asks_for_more_than_the_deadline_is_not_waited_for(server: Server) -> None:
    script = Script(steps=(Step(does="refuse", status=429, retry_after="3600"),))
    async with endpoint(server, script, deadline_s=30) as (model, _):
        with pytest.raises(ModelError, match=r"429 .* \(it asks for 3600 s\)"):
            await model.ask(asking("hello"))
        assert len(await server.asked()) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_a_call_that_is_refused_is_not_made_again(server: Server, status: int) -> None:
    script = Script(steps=(Step(does="refuse", status=status, message="never"),))
    async with endpoint(server, script) as (model, _):
        with pytest.raises(ModelError, match=f"m: {status} .*: never$") as raised:
            await model.ask(asking("hello"))
        assert len(await server.asked()) == 1
        assert (await model.ask(asking("hello"))).text == "hello"
    assert raised.value.failure == "refused"


async def test_an_answer_that_was_stopped_says_so(server: Server) -> None:
    script = Script(steps=(Step(does="cut_off"), Step(does="filtered")))
    async with endpoint(server, script) as (model, _):
        with pytest.raises(ModelError, match="the answer was cut off: max_tokens is too low") as cut_off:
            await model.ask(asking("hello there"))
        with pytest.raises(ModelError, match="content filter stopped") as filtered:
            await model.ask(asking("hello there"))
        assert len(await server.asked()) == 2
    assert (cut_off.value.failure, filtered.value.failure) == ("nonsense", "refused")


async def test_an_answer_that_does_not_fit_goes_back_with_what_is_wrong(server: Server) -> None:
    async with endpoint(server, Script(rule="tests.models.rules:repentant")) as (model, _):
        verdict, said = await model.ask_for(asking("judge"), Verdict)
        first, second = await server.asked()
    assert verdict == Verdict(outcome="fail", reason="told")
    assert [m["role"] for m in second.body["messages"]] == ["user", "assistant", "user"]
    assert second.body["messages"][:1] == first.body["messages"]
    assert second.body["messages"][1]["content"] == '{"outcome": "perhaps"}'
    assert "Invalid enum value 'perhaps'" in second.body["messages"][2]["content"]
    assert said.usage.attempts == 2
    assert said.usage.completion_tokens == 2 + 4  # both were paid


async def test_an_answer_that_never_fits_is_nonsense_and_is_paid(server: Server) -> None:
    async with endpoint(server, Script(), price_per_million=Price(completion=1e6)) as (model, models):
        with pytest.raises(ModelError, match=r"doesn't fit: .*outcome.* \(3 times\); it says: ") as raised:
            await model.ask_for(asking('{"no": "verdict"}'), Verdict)
        assert len(await server.asked()) == 3
    assert raised.value.failure == "nonsense"
    assert models.tallies()[0].cost == models.tallies()[0].completion_tokens > 0


@pytest.mark.parametrize(
    ("formats", "sent"),
    [
        (("json_schema", "json_object"), ["json_schema"]),
        (("json_object",), ["json_schema", "json_object"]),
        ((), ["json_schema", "json_object", "json_object", "text"]),
    ],
)
async def test_the_form_that_a_server_has_is_found_once(
    server: Server, formats: tuple[str, ...], sent: list[str]
) -> None:
    script = Script(rule="tests.models.rules:chatty", formats=formats)
    async with endpoint(server, script) as (model, _):
        for number in range(3):
            verdict, said = await model.ask_for(asking(f"case {number}"), Verdict)
            assert verdict.reason.startswith(f"case {number}")
        asked = await server.asked()
    types = [a.body.get("response_format", {}).get("type", "text") for a in asked]
    assert types == [*sent, *sent[-1:] * 2]
    assert said.usage.attempts == 1


async def test_a_server_without_stream_options_streams_without(server: Server) -> None:
    async with endpoint(server, Script(stream_options=False), stream=True) as (model, _):
        assert not (await model.ask(asking("hello"))).usage.tokens_known


# --- the cache ------------------------------------------------------------------------------------------------------


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
    async with endpoint(server, Script(delay_s=0.2), tmp_path / "c.db") as (model, _):
        said: list[Said] = []

        async def first() -> None:
            with anyio.move_on_after(0.1):
                await model.ask(asking("hello"))

        async def second() -> None:
            await anyio.sleep(0.05)
            said.append(await model.ask(asking("hello")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            tasks.start_soon(second)
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
        await server.play(Script(delay_s=0.02))
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(model.ask, asking(f"number {number}"))
        asked = await server.asked()
    assert len(asked) == 10
    assert max(a.at_once for a in asked) == 4  # all places are free again
    assert models.tallies()[0].failed == 0


# --- many calls -----------------------------------------------------------------------------------------------------


async def test_calls_to_a_server_with_a_hidden_limit_are_all_answered(server: Server) -> None:
    async with endpoint(server, Script(delay_s=0.02, most_at_once=6), max_in_flight=64) as (model, models):
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
    async with endpoint(server, script, timeout_s=0.3) as (model, models):
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
    async with endpoint(server, Script(), attempts=3, timeout_s=0.3) as (model, models):
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
