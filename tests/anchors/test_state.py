"""What a construction has finished: cut off anywhere it is still whole, and never another's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.model import Ask, ModelUsage, Said
from producers.anchors.candidates import Candidate, Candidates, Prompts, Quote
from producers.anchors.construction import (
    GIVE_UP_AFTER,
    Asking,
    Progress,
    account,
    construct,
    segments_of,
)
from producers.anchors.state import FILE_NAME, Fallen, Finished, Spent, State
from producers.datasets import read_dataset
from simulator.errors import ConfigError, ModelError
from simulator.events import AnchorTask

T = TypeVar("T")
IDENTITY = {"dataset": "d", "anchor_model": "m"}


def finished(number: int) -> Finished:
    task = AnchorTask(user_request=f"做什么 {number}?\n", expected_behavior="…")
    candidate = Candidate(
        evidence_statement=f"s{number}",
        evidence_type="stated",
        subject="Ada",
        quotes=[Quote(index=number, quote="“q”")],
        initial_task=task,
        followup_task=task,
    )
    fallen = Fallen("checks", {"leak": "it says so"}, candidate)
    return Finished("A", number, (candidate,) * (number % 2), (fallen,) * (number % 3), Spent(1, 2, 3, 0.5))


def test_what_is_appended_is_there_again(tmp_path: Path) -> None:
    state = State.open(tmp_path / "new" / "folder", IDENTITY)
    for number in range(5):
        state.append(finished(number))
    state.close()
    again = State.open(tmp_path / "new" / "folder", dict(reversed(IDENTITY.items())))
    assert list(again.finished.values()) == [finished(number) for number in range(5)]
    again.delete()
    assert not (tmp_path / "new" / "folder").exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(st.data())
def test_cut_off_anywhere_it_holds_the_whole_lines_and_goes_on(tmp_path: Path, data: st.DataObject) -> None:
    folder = tmp_path / "state"
    path = folder / FILE_NAME
    path.unlink(missing_ok=True)
    state = State.open(folder, IDENTITY)
    header = path.stat().st_size
    for number in range(4):
        state.append(finished(number))
    state.close()
    content = path.read_bytes()
    length = data.draw(st.integers(header, len(content)))
    path.write_bytes(content[:length])
    whole = content[:length].count(b"\n") - 1
    state = State.open(folder, IDENTITY)
    assert list(state.finished.values()) == [finished(number) for number in range(whole)]
    state.append(finished(7))
    state.close()
    state = State.open(folder, IDENTITY)
    assert list(state.finished.values()) == [*(finished(number) for number in range(whole)), finished(7)]
    state.close()


def test_another_construction_and_what_is_none_are_refused(tmp_path: Path) -> None:
    state = State.open(tmp_path, IDENTITY)
    with pytest.raises(ConfigError, match="another process builds"):
        State.open(tmp_path, IDENTITY)
    state.close()
    with pytest.raises(ConfigError, match=r"anchor_model: m there, n asked for; seed: – there, 1 asked for"):
        State.open(tmp_path, {**IDENTITY, "anchor_model": "n", "seed": "1"})
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes() + b'{"stream": 5}\n')
    with pytest.raises(ConfigError, match=rf"{FILE_NAME}:2: no finished segment"):
        State.open(tmp_path, IDENTITY)
    path.write_bytes(b"")
    with pytest.raises(ConfigError, match="is empty"):
        State.open(tmp_path, IDENTITY)
    path.write_bytes(b'{"no": "header"}\n')
    with pytest.raises(ConfigError, match=rf"{FILE_NAME}:1"):
        State.open(tmp_path, IDENTITY)


# --- asking, without HTTP --------------------------------------------------------------------------


class Scripted:
    """A model that counts how many ask it at once."""

    name = "scripted"

    def __init__(self, say: Callable[[], object]) -> None:
        self._say = say
        self.calls = self.at_once = self.most_at_once = 0

    async def ask(self, ask: Ask) -> Said:
        raise NotImplementedError

    async def ask_for(self, ask: Ask, kind: type[T]) -> tuple[T, Said]:
        self.calls += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await anyio.lowlevel.checkpoint()
            said = self._say()
        finally:
            self.at_once -= 1
        assert isinstance(said, kind)
        return said, Said(text="", usage=ModelUsage(prompt_tokens=10, completion_tokens=2, cost=0.25))


DATASET = read_dataset("synthetic:wearers=2,segments_per_day=30,observations_per_segment=5,anchors_per_day=0")


def asking(model: Scripted, concurrency: int = 4) -> Asking:
    return Asking(model, model, Prompts.load("en"), 3, concurrency)


async def test_every_segment_is_asked_about_once_and_so_many_at_once(tmp_path: Path) -> None:
    model = Scripted(lambda: Candidates(anchors=[]))
    state = State.open(tmp_path, IDENTITY)
    told: list[Progress] = []
    assert await construct(DATASET, asking(model, 7), state, told.append) == {}
    assert (model.calls, model.most_at_once) == (60, 7)
    assert sorted(state.finished) == segments_of(DATASET)
    assert [now.finished for now in told] == sorted(now.finished for now in told)
    assert told[-1] == Progress(finished=60, segments=60, undone=0, kept=0)
    came_to = account(state, DATASET, {})
    assert (came_to.segments, came_to.candidates, came_to.segments_with_anchors) == (60, 0, 0)
    assert came_to.spent == Spent(60, 600, 120, 15.0)
    assert await construct(DATASET, asking(model), state) == {}
    assert model.calls == 60
    state.close()


@pytest.mark.parametrize("failure", ["unavailable", "refused", "nonsense", "offline"])
async def test_a_model_that_is_gone_is_not_asked_for_ever(tmp_path: Path, failure: str) -> None:
    def say() -> object:
        raise ModelError("scripted", failure, "why not")  # type: ignore[arg-type]

    model = Scripted(say)
    state = State.open(tmp_path, IDENTITY)
    undone = await construct(DATASET, asking(model), state)
    assert list(undone) == segments_of(DATASET)
    assert state.finished == {}
    if failure in ("nonsense", "offline"):
        assert model.calls == 60
        assert set(undone.values()) == {"scripted: why not"}
    else:
        assert GIVE_UP_AFTER <= model.calls < GIVE_UP_AFTER + 4
        assert sum("not tried" in reason for reason in undone.values()) == 60 - model.calls
    state.close()


async def test_a_failure_now_and_then_is_no_reason_to_give_up(tmp_path: Path) -> None:
    answers = iter(number % 3 == 0 for number in range(10**6))

    def say() -> object:
        if next(answers):
            return Candidates(anchors=[])
        raise ModelError("scripted", "unavailable", "busy")

    state = State.open(tmp_path, IDENTITY)
    undone = await construct(DATASET, asking(Scripted(say)), state)
    assert (len(undone), len(state.finished)) == (40, 20)
    assert not any("not tried" in reason for reason in undone.values())
    while undone:
        undone = await construct(DATASET, asking(Scripted(say)), state)
    state.close()
    lines = (tmp_path / FILE_NAME).read_bytes().splitlines()
    assert len({(line["stream"], line["segment"]) for line in map(json.loads, lines[1:])}) == 60
    assert len(lines) == 61
