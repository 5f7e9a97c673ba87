"""The conformance suite passes what is whole, and fails each broken system by the case that is meant for it alone."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.conformance import CASES, Result, check, failing, passed
from adapters.memory import Capabilities, Delta, LaneContext, Segment
from adapters.registry import capabilities, open_system, parse_spec
from simulator.errors import ConfigError
from tests.adapters.http_servers import server
from tests.conformance.stand_ins import BROKEN, WHOLE
from tests.conformance.stand_ins.failing import clear
from tests.conformance.stand_ins.finding import Generous
from tests.conformance.stand_ins.whole import NeverAsks, Server, Whole

NO_PROCESS = "a memory starts no process of its own here"
NO_MODEL = "it declares no model"


@pytest.fixture
def cleared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(failing, "_GRACE_S", 0.3)
    gc.collect()  # a file of an earlier test that goes meanwhile would hide one that is left
    yield
    clear()


async def check_named(text: str, folder: Path, **more: Any) -> list[Result]:
    spec = parse_spec(text)
    return await check(lambda context: open_system(spec, context), capabilities(spec), folder=folder, **more)


def failed(results: list[Result]) -> list[str]:
    return [result.case for result in results if result.outcome == "fail"]


def left_out(results: list[Result]) -> dict[str, str]:
    return {result.case: result.said for result in results if result.outcome == "not applicable"}


@pytest.mark.parametrize("kind", WHOLE)
async def test_whole_memory_passes_all_that_applies(tmp_path: Path, kind: type[Whole]) -> None:
    results = await check(kind, kind.capabilities, folder=tmp_path)
    assert [result.case for result in results] == list(CASES)
    assert failed(results) == []
    assert passed(results)
    has_process, has_model = kind is Server, kind.capabilities.asks
    assert left_out(results) == {
        **({} if has_process else {"kill": NO_PROCESS}),
        **({} if has_model else {"outage": NO_MODEL}),
    }
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("cleared")
@pytest.mark.parametrize(("kind", "case"), BROKEN.items())
async def test_broken_memory_fails_the_case_that_is_meant_for_it(
    tmp_path: Path, kind: type[Whole], case: str
) -> None:
    results = await check(kind, kind.capabilities, folder=tmp_path)
    assert failed(results) == [case]
    assert not passed(results)


def test_each_case_fails_some_memory() -> None:
    assert set(BROKEN.values()) == CASES.keys()


@pytest.mark.parametrize(
    ("system", "not_applicable"),
    [
        (
            "null",
            set(CASES) - {"nothing", "answers", "rebuild", "close", "capabilities"},
        ),
        ("oracle", {"top_k", "commit", "kill", "outage"}),
        ("full_context", {"top_k", "kill", "outage"}),
        ("recency", {"retrieval", "kill", "outage"}),
        ("bm25", {"chinese", "kill", "outage"}),
        ("dense:embedder=any", {"kill"}),
        ("hybrid:embedder=any", {"kill"}),
        ("rag_raw:retrieval=bm25", {"kill", "outage"}),
        ("rag_raw:embedder=any,retrieval=dense", {"kill"}),
        ("rag_raw:embedder=any,chunk_observations=1", {"kill"}),
        ("rag_ext:model=any,retrieval=bm25", {"kill"}),
        ("rag_ext:model=any,embedder=any,observations=2", {"kill"}),
        ("examples.own_memory:LongestLines", {"kill", "outage"}),
        ("disk=examples.directory_memory:NotesOnDisk", {"kill", "outage"}),
    ],
)
async def test_systems_of_ours_pass(tmp_path: Path, system: str, not_applicable: set[str]) -> None:
    results = await check_named(system, tmp_path)
    assert failed(results) == []
    assert left_out(results).keys() == not_applicable


async def test_default_encoder_passes_and_is_no_process_of_one_memory(tmp_path: Path) -> None:
    results = await check_named("rag_raw", tmp_path)
    assert failed(results) == []
    assert left_out(results)["kill"] == NO_PROCESS


@pytest.mark.parametrize("fork", ["cheap", "replay", "none"])
async def test_memory_behind_http_passes_in_each_way(tmp_path: Path, fork: str) -> None:
    with server("example") as url:
        results = await check_named(f"http:url={url},fork={fork}", tmp_path)
    assert failed(results) == []
    assert left_out(results).keys() == {"kill", "outage", *({"fork"} if fork == "none" else ())}


async def test_outage_is_not_tried_on_a_memory_that_never_asks_as_it_ingests(tmp_path: Path) -> None:
    kind = NeverAsks
    results = await check(kind, kind.capabilities, folder=tmp_path, only=["outage"])
    assert left_out(results) == {"outage": "it declares a model, and asked none for 30 segments"}


class Hangs(Whole):
    async def ingest(self, segment: Segment) -> Delta:
        await anyio.sleep_forever()
        raise AssertionError


async def test_call_that_hangs_fails_by_its_deadline(tmp_path: Path) -> None:
    results = await check(Hangs, Capabilities(), folder=tmp_path, timeout_s=0.05, only=["retrieval"])
    assert [r.said for r in results] == ["ingest of segment 0: TimeoutError: nothing after 0.05 s"]


class Unmade(Whole):
    def __init__(self, context: LaneContext) -> None:
        raise OSError("no server")


async def test_memory_that_can_t_be_made_fails(tmp_path: Path) -> None:
    results = await check(Unmade, Capabilities(), folder=tmp_path, only=["nothing"])
    assert [r.said for r in results] == ["it could not be made: OSError: no server"]


async def test_refused_options_are_an_error_of_whoever_gave_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs the server's address"):
        await check_named("http", tmp_path)


async def test_exemption_is_shown_with_its_reason_and_names_a_case(tmp_path: Path) -> None:
    declared = Capabilities(exempt={"top_k": "it is generous"})
    results = await check(Generous, declared, folder=tmp_path, only=["top_k", "nothing"])
    assert left_out(results) == {"top_k": "declared: it is generous"}
    with pytest.raises(
        ConfigError, match=r"Capabilities.exempt: there is no case topk: there are retrieval, "
    ):
        await check(Whole, Capabilities(exempt={"topk": ""}), folder=tmp_path)
    with pytest.raises(ConfigError, match=r"^there is no case x: "):
        await check(Whole, Capabilities(), folder=tmp_path, only=["x"])


async def test_progress_names_each_case_before_it_runs(tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    await check(
        Whole,
        Capabilities(),
        folder=tmp_path,
        only=["close", "retrieval"],
        on_case=lambda *at: seen.append(at),
    )
    assert seen == [(0, 2, "retrieval"), (1, 2, "close")]


def test_each_demand_is_one_sentence() -> None:
    for case in CASES.values():
        assert case.demand.endswith(".")
        assert ". " not in case.demand
