"""An endpoint against the scripted server: what it asks, how it tries again, and when it gives up."""

from __future__ import annotations

import msgspec
import pytest

from adapters.endpoints.settings import Price
from adapters.model import ModelUsage
from simulator.errors import ModelError
from tests.models.helpers import FAULTS, VERDICTS, Verdict, asking, endpoint
from tests.models.server import Script, Server, Step


def timeout_s(fault: str) -> float:
    """Time enough for a busy machine, but where the server lets it pass."""
    return 1.5 if fault == "hang" else 60.0


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


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
async def test_what_passes_is_waited_out(server: Server, fault: str, stream: bool) -> None:
    script = Script(rule=VERDICTS, steps=(FAULTS[fault], FAULTS[fault]))
    async with endpoint(server, script, stream=stream, timeout_s=timeout_s(fault)) as (model, models):
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
        ("hang", "unavailable", "no answer within 1.5 s"),
        ("not_json", "unavailable", "can't be read"),
        ("wrong_shape", "unavailable", "no completion"),
        ("empty", "nonsense", r"m: an empty answer \(3 times\)"),
    ],
)
async def test_what_does_not_pass_is_given_up_with_a_reason(
    server: Server, fault: str, failure: str, says: str
) -> None:
    script = Script(faults=(FAULTS[fault],), fault_share=1)
    async with endpoint(server, script, timeout_s=timeout_s(fault), attempts=3) as (model, models):
        with pytest.raises(ModelError, match=says) as raised:
            await model.ask(asking("hello"))
        assert len(await server.asked()) == 3
    assert (raised.value.model, raised.value.failure) == ("m", failure)
    assert (models.tallies()[0].failed, models.tallies()[0].tries) == (1, 3)


async def test_a_429_uses_up_the_deadline_and_no_attempt(server: Server) -> None:
    script = Script(faults=(FAULTS["429"],), fault_share=1)
    async with endpoint(server, script, attempts=1, deadline_s=3.0) as (model, _):
        with pytest.raises(ModelError, match=r"429 Too Many Requests: try later \(\d+ tries\)") as raised:
            await model.ask(asking("hello"))
        assert len(await server.asked()) > 3
    assert raised.value.failure == "unavailable"


async def test_what_the_deadline_cuts_short_is_given_up_with_what_failed_before(server: Server) -> None:
    script = Script(steps=(FAULTS["503"],), faults=(FAULTS["hang"],), fault_share=1)
    async with endpoint(server, script, deadline_s=2.0) as (model, _):
        with pytest.raises(
            ModelError, match=r"no answer within \S+ s, and before that 503 .*: try later \(2 tries\)"
        ):
            await model.ask(asking("hello"))


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
