"""Chats by OpenAI's own client, through the gateway, to a scripted server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import httpx
import openai
import pytest

from simulator.events import Usage
from tests.gateway.helpers import SEED, ask, asking, failure, front, refused, said, stage_of
from tests.models.server import Script, Server, Step

REFUSED = Step(does="refuse", status=503)
FACTS = {"type": "object", "properties": {"facts": {"type": "array"}}, "required": ["facts"]}
STRICT = {"type": "json_schema", "json_schema": {"name": "response", "schema": FACTS, "strict": True}}
OBJECT = {"type": "json_object"}


async def test_what_the_client_says_reaches_the_server_and_the_answer_the_client(server: Server) -> None:
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    async with front(server) as there, asking(lane := there.lane()) as client:
        async with lane.stage(lane.lane, "ingest", segment=0):
            completion = await ask(
                client,
                "two words",
                tools=tools,
                top_p=0.1,
                stop=["END"],
                max_tokens=2000,
                response_format=None,
                extra_body={"top_k": 5, "provider": None},
            )
        [asked] = await server.asked()
    assert asked.body == {
        "model": "scripted",
        "messages": [{"role": "user", "content": "two words"}],
        "temperature": 0.0,
        "seed": SEED,
        "max_tokens": 2000,
        "tools": tools,
        "top_p": 0.1,
        "stop": ["END"],
        "top_k": 5,
    }
    assert completion.model == "gpt-4o-mini"
    assert completion.choices[0].message.content == "two words"
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (2, 2)


async def test_a_call_of_a_tool_comes_through_whole_and_from_the_cache(
    server: Server, tmp_path: Path
) -> None:
    calls = ({"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"fact": "x"}'}},)
    script = Script(steps=(Step(say="", tool_calls=calls),))
    async with front(server, script, cache=tmp_path / "c.db") as there:
        lane = there.lane()
        for _ in range(2):
            async with lane.stage(lane.lane, "ingest"), asking(lane) as client:
                message = (await ask(client, "remember", tools=[{"type": "function"}])).choices[0].message
                assert message.content is None
                assert message.tool_calls is not None
                assert [call.model_dump(exclude_none=True) for call in message.tool_calls] == list(calls)
        assert len(await server.asked()) == 1


@pytest.mark.parametrize("upstream", [False, True])
async def test_a_stream_is_the_answer_in_pieces(server: Server, upstream: bool) -> None:
    async with front(server, stream=upstream) as there, asking(lane := there.lane()) as client:
        async with lane.stage(lane.lane, "ingest") as stage:
            whole = await ask(client, "one two three")
            messages: Any = [{"role": "user", "content": "one two three"}]
            for options in ({"include_usage": True}, None):
                pieces = [
                    piece
                    async for piece in await client.chat.completions.create(
                        model="m",
                        messages=messages,
                        stream=True,
                        stream_options=options,  # type: ignore[arg-type]
                    )
                ]
                choices = [choice for piece in pieces for choice in piece.choices]
                assert "".join(choice.delta.content or "" for choice in choices) == "one two three"
                assert [choice.finish_reason for choice in choices][-1] == "stop"
                assert (pieces[-1].usage == whole.usage) == (options is not None)
            async with httpx.AsyncClient(timeout=60) as plain:
                response = await plain.post(
                    lane.url_of(lane.lane) + "/chat/completions", json={"messages": messages, "stream": True}
                )
            assert response.headers["content-type"].startswith("text/event-stream")
            assert response.text.endswith("data: [DONE]\n\n")
        assert stage.usage.calls == 4


async def test_several_answers_are_several_votes(server: Server) -> None:
    script = Script(rule="tests.models.rules:drawn")
    async with front(server, script) as there, asking(lane := there.lane()) as client:
        async with lane.stage(lane.lane, "ingest") as stage:
            completion = await ask(client, "draw", n=3, temperature=0.9)
        assert len({choice.message.content for choice in completion.choices}) == 3
        assert sorted(asked.body["seed"] for asked in await server.asked()) == [SEED, SEED + 1, SEED + 2]
        assert stage.usage.calls == 3


# --- what a system asks again -----------------------------------------------------------------------------


async def test_a_system_that_asks_again_gets_another_answer_the_same_in_each_run(
    server: Server, tmp_path: Path
) -> None:
    """Its own retry is vain where the cache says the same nonsense each time; a lane that is built again has to be
    what it was."""
    drawn: list[list[str | None]] = []
    async with front(server, Script(rule="tests.models.rules:drawn"), cache=tmp_path / "c.db") as there:
        lane = there.lane()
        for stage in (1, 1, 2):
            async with lane.stage(lane.lane, "ingest", segment=stage), asking(lane) as client:
                drawn.append([await said(client, "draw") for _ in range(3)])
        assert [asked.body["seed"] for asked in await server.asked()] == [SEED, SEED + 1, SEED + 2]
    assert len(set(drawn[0])) == 3
    assert drawn[0] == drawn[1] == drawn[2]


async def test_what_a_client_sends_again_is_the_same_request(server: Server, tmp_path: Path) -> None:
    """It gave up waiting for the first answer, which comes all the same."""
    script = Script(rule="tests.models.rules:drawn", delay_s=0.8)
    async with front(server, script, cache=tmp_path / "c.db") as there:
        lane = there.lane()
        async with (
            lane.stage(lane.lane, "ingest") as stage,
            asking(lane, max_retries=5, timeout=0.5) as client,
        ):
            assert (await said(client, "slow") or "").startswith("slow ")
        assert [asked.body["seed"] for asked in await server.asked()] == [SEED]
        assert stage.failures == ()


async def test_equal_requests_of_two_lanes_at_one_time_are_one_call(server: Server) -> None:
    script = Script(rule="tests.models.rules:drawn", steps=(Step(held=True),))
    async with front(server, script) as there:
        found: dict[str, tuple[str | None, Usage]] = {}

        async def one(name: str) -> None:
            lane = there.lane(name)
            async with lane.stage(name, "ingest") as stage, asking(lane) as client:
                text = await said(client, "draw")
            found[name] = text, stage.usage

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, "a@A1")
            tasks.start_soon(one, "b@A1")
            with anyio.fail_after(60):
                while sum(tally.calls for tally in there.models.tallies()) < 2:  # noqa: ASYNC110  # not told
                    await anyio.sleep(0.01)
            await server.release()
        assert len(await server.asked()) == 1
    assert found["a@A1"] == found["b@A1"]
    assert found["a@A1"][1].calls == 1
    assert [account.cached for account in there.gateway.accounts()] in ([0, 1], [1, 0])


# --- what fails ---------------------------------------------------------------------------------------------


async def test_a_flaky_server_is_no_failure(server: Server) -> None:
    steps = (
        Step(does="refuse", status=429, retry_after="0"),
        Step(does="refuse", status=500),
        Step(does="cut"),
        Step(does="not_json"),
        Step(does="empty"),
    )
    async with front(server, Script(steps=steps)) as there, asking(lane := there.lane()) as client:
        async with lane.stage(lane.lane, "ingest") as stage:
            assert await said(client, "hello") == "hello"
        assert stage.failures == ()
        assert stage.usage.calls == 1


async def test_a_failure_that_the_system_swallows_fails_the_stage_and_its_client_asks_once(
    server: Server,
) -> None:
    said_why = "m: 503 Service Unavailable: try later (2 tries)"
    async with front(server, Script(faults=(REFUSED,), fault_share=1.0), attempts=2) as there:
        lane = there.lane()
        told: list[openai.APIStatusError] = []

        async def swallow(client: openai.AsyncOpenAI) -> None:
            told.append(await refused(client.with_options(max_retries=5), "hello"))

        error = await failure(lane, swallow)
        assert (str(error), error.failure) == (said_why, "unavailable")
        assert told[0].status_code == 424
        body = {"message": said_why, "type": "model_error", "code": "unavailable", "param": None}
        assert told[0].body == body
        assert len(await server.asked()) == 2
        await server.play(Script())
        await stage_of(lane, lambda client: said(client, "hello"))  # what failed is not kept
        [account] = there.gateway.accounts()
        assert (account.calls, account.failed) == (1, 1)


async def test_what_failed_and_went_well_when_asked_again_is_no_failure(server: Server) -> None:
    async with (
        front(server, Script(steps=(REFUSED,)), attempts=1) as there,
        asking(lane := there.lane()) as client,
    ):
        async with lane.stage(lane.lane, "ingest") as stage:
            await refused(client, "hello")
            assert len(stage.failures) == 1
            assert await said(client, "hello") == "hello"
        assert stage.failures == ()
        assert [asked.body["seed"] for asked in await server.asked()] == [SEED, SEED]

        async def other(client: openai.AsyncOpenAI) -> None:
            await server.play(Script(steps=(REFUSED,)))
            await refused(client, "one")
            await said(client, "other")

        assert "503" in str(await failure(lane, other))


async def test_the_system_s_own_exception_goes_before(server: Server) -> None:
    async def trip(client: openai.AsyncOpenAI) -> None:
        await refused(client, "hello")
        raise ZeroDivisionError

    async with front(server, Script(steps=(REFUSED,)), attempts=1) as there:
        with pytest.raises(ZeroDivisionError):
            await stage_of(there.lane(), trip)
        await stage_of(there.lane(), lambda client: said(client, "hello"))  # it is over with that stage


async def test_nonsense_fails_without_quoting_what_was_said(server: Server) -> None:
    script = Script(faults=(Step(say="the secret is 42"),), fault_share=1.0)
    async with front(server, script) as there:

        async def swallow(client: openai.AsyncOpenAI) -> None:
            assert "the secret is 42" in str(await refused(client, "hello", response_format=OBJECT))

        error = await failure(there.lane(), swallow)
    assert "its answers can't be used" in str(error)
    assert "42" not in str(error)


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/chat/completions", {"messages": [{"role": "pope", "content": "x"}]}, "role is 'pope'"),
        ("/embeddings", {"input": [1, 2]}, "tokens can't be read"),
        ("/responses", {"input": "x"}, "/responses: this is not known here"),
        ("/rerank", {"query": "x"}, "/rerank: this is not known here"),
    ],
)
async def test_what_is_not_offered_is_refused_and_fails_the_stage(
    server: Server, path: str, body: dict[str, Any], says: str
) -> None:
    async with front(server) as there, httpx.AsyncClient(timeout=60) as plain:
        lane = there.lane()

        async def swallow(_: openai.AsyncOpenAI) -> None:
            response = await plain.post(lane.url_of(lane.lane) + path, json=body)
            assert response.status_code == 400
            assert response.headers["x-should-retry"] == "false"
            assert response.json()["error"]["type"] == "invalid_request_error"

        error = await failure(lane, swallow)
        assert says in str(error)
        assert error.failure == "refused"
        assert await server.asked() == []


async def test_a_look_at_what_is_not_there_is_no_failure(server: Server) -> None:
    async with front(server) as there, httpx.AsyncClient(timeout=60) as plain:
        lane = there.lane()
        async with lane.stage(lane.lane, "ingest") as stage:
            for path in ("/health", "/models/gpt-4o-mini", "/chat/completions"):
                assert (await plain.get(lane.url_of(lane.lane) + path)).status_code == 405
        assert stage.failures == ()


async def test_a_system_without_a_model_can_t_ask_one(server: Server) -> None:
    async with front(server) as there:
        lane = there.gateway.lane("none@A1")
        assert "this system has no model" in str(await failure(lane, lambda client: refused(client, "hello")))


# --- JSON, and answers that are cut off -------------------------------------------------------------------


@pytest.mark.parametrize("form", [STRICT, OBJECT])
async def test_json_is_asked_for_in_the_client_s_own_words_and_comes_bare(
    server: Server, form: dict[str, Any]
) -> None:
    text = 'Sure:\n```json\n{"facts": ["a"]}\n```'
    async with (
        front(server, Script(steps=(Step(say=text),))) as there,
        asking(lane := there.lane()) as client,
    ):
        async with lane.stage(lane.lane, "ingest"):
            assert json.loads(await said(client, "facts?", response_format=form) or "") == {"facts": ["a"]}
        [asked] = await server.asked()
        assert asked.body["response_format"] == form


@pytest.mark.parametrize(
    "bad", [Step(say="I'd rather not."), Step(say='{"fact": 1}'), Step(does="cut_off", say='{"facts": []}')]
)
async def test_an_answer_that_is_no_such_json_is_asked_for_again_and_not_kept(
    server: Server, tmp_path: Path, bad: Step
) -> None:
    text = '{"facts": ["kept as it is"]}'
    script = Script(steps=(bad, Step(say=text)))
    async with front(server, script, cache=tmp_path / "c.db") as there:
        lane = there.lane()
        for calls in (2, 2):
            async with lane.stage(lane.lane, "ingest"), asking(lane) as client:
                assert await said(client, "facts?", response_format=STRICT, max_tokens=50) == text
            assert len(await server.asked()) == calls
        first, again = await server.asked()
        assert again.body["messages"][:1] == first.body["messages"]
        assert "That can't be used" in again.body["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("formats", "form", "forms_sent"),
    [
        (("json_object",), STRICT, ["json_schema", "json_object"]),
        ((), STRICT, ["json_schema", "json_object", "json_object", None]),
        (("json_schema",), OBJECT, ["json_object", None]),
        (("json_schema",), STRICT, ["json_schema"]),
    ],
)
async def test_a_form_that_the_server_does_not_know_is_asked_for_in_words(
    server: Server, formats: tuple[str, ...], form: dict[str, Any], forms_sent: list[str | None]
) -> None:
    script = Script(formats=formats, steps=(Step(say='{"facts": []}'),) * 2)
    async with front(server, script) as there, asking(lane := there.lane()) as client:
        async with lane.stage(lane.lane, "ingest"):
            await said(client, "facts?", response_format=form)
            tried = [asked.body.get("response_format", {}).get("type") for asked in await server.asked()]
            await said(client, "more facts?", response_format=form)  # now it is known
        asked = await server.asked()
        last = asked[-1].body
        assert tried == forms_sent
        assert len(asked) == len(tried) + 1
        assert last.get("response_format", {}).get("type") == forms_sent[-1]
        in_words = "Reply with one JSON value that fits this schema" in last["messages"][-1]["content"]
        assert in_words == (forms_sent[-1] != form["type"])


async def test_what_was_cut_off_where_the_system_wanted_it_is_an_answer(
    server: Server, tmp_path: Path
) -> None:
    script = Script(faults=(Step(does="cut_off", say="half an answer"),), fault_share=1.0)
    async with (
        front(server, script, cache=tmp_path / "c.db") as there,
        asking(lane := there.lane()) as client,
    ):
        for _ in range(2):
            async with lane.stage(lane.lane, "ingest"):
                choice = (await ask(client, "long", max_tokens=3)).choices[0]
                assert (choice.finish_reason, choice.message.content) == ("length", "half an")
        await failure(lane, lambda client: refused(client, "long"))  # nobody wanted this one to end there
