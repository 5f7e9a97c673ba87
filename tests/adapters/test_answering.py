"""Answers by a model: the prompt, its budget, and which systems they are for."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from adapters.answering import ANSWER_PROMPT, ModelResponder
from adapters.memory import Capabilities, LaneContext, Request
from adapters.metering import estimated_tokens, metered
from adapters.prompt import ADAPTER_PROMPTS, PromptLanguage, load_prompt
from adapters.registry import available, capabilities, open_system
from simulator.errors import ModelError
from simulator.events import RetrievedRecord, Turn, Usage
from tests.adapters.helpers import HashEmbedder, anchor, context, segment
from tests.models.fakes import FakeModel, down

RECORDS = tuple(
    RetrievedRecord(id=f"r{i}", text=text, event_time_us=1_755_342_300_000_000, score=1.0 - i / 10)
    for i, text in enumerate(("the first memory", "the second memory", "the third memory"))
)


def responder(model: FakeModel, tokens: int = 100, language: PromptLanguage = "en") -> ModelResponder:
    return ModelResponder(model, token_budget=tokens, seed=7, language=language)


async def test_the_model_gets_records_request_and_time_and_its_words_are_the_answer() -> None:
    model = FakeModel(says=lambda ask: "  the answer\n")
    with metered() as meter:
        answer = await responder(model).respond(
            Request(text="what now?", phase="R1", event_time_us=1_755_342_600_000_000), RECORDS
        )
    assert answer.text == "the answer"
    assert answer.retrieved == RECORDS
    assert answer.usage == Usage(prompt_tokens=10, completion_tokens=2, calls=1)
    assert meter.headers() == {"model_us": 500_000, "model_cached": 0}
    (ask,) = model.asks
    assert (ask.temperature, ask.seed, ask.vote, ask.schema) == (0.0, 7, 0, None)
    system, user = ask.messages
    assert (system.role, user.role) == ("system", "user")
    assert user.content == (
        "<memories>\n[DAY1 11:05:00] the first memory\n[DAY1 11:05:00] the second memory\n"
        "[DAY1 11:05:00] the third memory\n</memories>\n\n<now>DAY1 11:10:00</now>\n\nwhat now?"
    )


async def test_r_f_is_asked_with_the_conversation_so_far() -> None:
    model = FakeModel()
    turns = (("user", "what now?"), ("assistant", "no idea"), ("user", "I like tea. Again, please."))
    history = tuple(Turn(role=role, text=text) for role, text in turns)
    await responder(model).respond(Request(text="what now?", phase="R_F", history=history), ())
    (ask,) = model.asks
    assert [message.role for message in ask.messages] == ["system", "user", "assistant", "user"]
    assert ask.messages[1].content.endswith(
        "(none)\n</memories>\n\n<now>1970-01-01 00:00:00</now>\n\nwhat now?"
    )
    assert [message.content for message in ask.messages[2:]] == [text for _, text in turns[1:]]


@given(st.lists(st.text(max_size=60), max_size=8), st.integers(1, 60))
async def test_records_never_exceed_the_budget_and_are_used_in_order(texts: list[str], tokens: int) -> None:
    records = [RetrievedRecord(id=str(i), text=text, event_time_us=0) for i, text in enumerate(texts)]
    shown, used = responder(FakeModel(), tokens)._within_budget(records)
    assert sum(len(text.encode()) for text in shown) <= 4 * tokens
    assert used == records[: len(used)]
    whole = [f"[1970-01-01 00:00:00] {record.text}" for record in used]
    assert shown[:-1] == whole[:-1]
    assert not shown or whole[-1].startswith(shown[-1])
    left = tokens - sum(map(estimated_tokens, whole))
    assert len(used) == len(records) or left <= 0, "it stopped while there was room"


async def test_the_budget_is_the_same_for_all_systems() -> None:
    lines = [f"line {i} about tea and the blue cup" for i in range(40)]
    longest = {}
    for name in ("rag_raw:retrieval=bm25", "full_context"):
        model = FakeModel()
        memory = open_system(name, replace(context(), responder=responder(model, 50)))
        await memory.ingest(segment(0, *lines))
        await memory.answer(Request(text="the blue cup", phase="R1"))
        memories = model.prompts()[0].partition("<memories>\n")[2].partition("\n</memories>")[0]
        longest[name] = len(memories.encode())
    assert all(150 < size <= 200 + 10 for size in longest.values()), longest


async def test_what_a_model_can_t_answer_is_an_error_and_no_answer() -> None:
    with pytest.raises(ModelError, match="can't connect"):
        await responder(FakeModel(says=lambda ask: down())).respond(Request(text="?", phase="R1"), RECORDS)


def given_to(model: FakeModel) -> LaneContext:
    anchors = (anchor(0, 0, "the blue cup is Jake's", "whose cup?", "wash it?"),)
    return replace(
        context(anchors=anchors),
        responder=responder(model),
        model_of=FakeModel,
        embedder_of=lambda name: HashEmbedder(),
    )


@pytest.mark.parametrize("name", [name for name in available() if name != "http"])
async def test_every_system_that_extracts_answers_by_the_model_instead(name: str) -> None:
    model = FakeModel()
    needed = {
        "rag_ext": "rag_ext:model=fake,retrieval=bm25",
        "rag_raw": "rag_raw:retrieval=bm25",
        "graph": "graph:model=fake,embedder=fake",
        "dense": "dense:embedder=fake",
        "hybrid": "hybrid:embedder=fake",
    }
    spec = needed.get(name, name)
    assert capabilities(spec).answers == "run"
    memory = open_system(spec, given_to(model))
    answer = await memory.answer(Request(text="whose cup?", phase="R1"))
    assert answer.text == "said"
    assert len(model.asks) == 1


def test_a_system_that_answers_by_itself_says_so_by_saying_nothing() -> None:
    assert capabilities("http:url=http://127.0.0.1:1").answers == "own"
    assert Capabilities().answers == "own"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_name_holds_all_that_changes_an_answer(language: PromptLanguage) -> None:
    prompt = load_prompt(ADAPTER_PROMPTS, ANSWER_PROMPT, language)
    assert prompt.places == {"memories", "now", "request"}
    name = responder(FakeModel("the model"), language=language).name
    assert all(part in name for part in ("the model", prompt.digest, language, "temperature=0"))
    assert HashEmbedder.name not in name


def test_what_is_filled_in_is_not_filled_in_again() -> None:
    prompt = load_prompt(ADAPTER_PROMPTS, ANSWER_PROMPT, "en")
    user = prompt.messages(memories="{{request}}", now="{{now}}", request="r")[1].content
    assert "{{request}}" in user
    assert "<now>{{now}}</now>" in user
    with pytest.raises(ValueError, match="has the places"):
        prompt.messages(memories="m")


@given(st.text(), st.text())
def test_estimated_tokens_grow_with_the_text(text: str, more: str) -> None:
    sizes = [estimated_tokens(t) for t in ("", text, text + more)]
    assert sizes[0] == 0
    assert all(a <= b for a, b in pairwise(sizes))
