"""Whole runs that ask models over HTTP, by the command line: what fails, what is paid for, and what is said of it."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from simulator.events import ResponseEvent
from simulator.intake import read_events
from simulator.plan import RunOptions, plan_run
from simulator.runfolder import open_run
from simulator.topics import Topics
from tests.cli.helpers import Ran, egostream, one_line, started, wait_for
from tests.models.roles import role_of
from tests.models.server import Asked, Script, Server, Step, scripted_server

DATA = "synthetic:seed=3,wearers=1,days=1,segments_per_day=4,observations_per_segment=10,anchors_per_day=4"
RULE = "tests.models.roles:says"
SYSTEMS = ("--system", "null", "--system", "raw=rag_raw:retrieval=bm25")
DOWN = Script(rule=RULE, faults=(Step(does="refuse", status=503),), fault_share=1.0)
BROKEN = (
    Step(does="refuse", status=429, retry_after="0"),
    Step(does="refuse", status=500),
    Step(does="hang"),
    Step(does="cut"),
    Step(does="not_json"),
    Step(does="wrong_shape"),
    Step(does="refuse", status=429, retry_after="0"),
    Step(does="refuse", status=503, retry_after="0"),
)
NONSENSE = (
    Step(say="I'd rather not say."),
    Step(say=json.dumps({"findings": "many", "type": "shrug", "facts": 3})),
    Step(does="empty"),
    Step(does="cut_off"),
)


def configured(folder: Path, judge: Server, other: Server | None = None, **settings: object) -> Path:
    """`judge` at one server, `small` at another or the same."""
    more = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    tables = [
        f'[models.{name}]\nbase_url = "{server.url}"\nmodel = "{name}"\n'
        f"price_per_million = {{prompt = {price}, completion = {4 * price}}}\n{more}"
        for name, server, price in (("judge", judge, 2.0), ("small", other or judge, 0.5))
    ]
    path = folder / "models.toml"
    path.write_text("\n".join(tables))
    return path


def arguments(folder: Path, *more: str, systems: Iterable[str] = SYSTEMS, out: str = "run") -> list[object]:
    where = ["--models", folder / "models.toml", "--cache", folder / "cache.db", "--out", folder / out]
    return ["run", "--data", DATA, *systems, *where, *more]


async def ran(*args: object) -> Ran:
    return await anyio.to_thread.run_sync(partial(egostream, *args))


def asked_of(calls: Iterable[Asked], *, answered: bool | None = None) -> Counter[str]:
    """What was asked, each with how often: the messages, the seed and the model."""
    return Counter(
        json.dumps([call.body["model"], call.body["messages"], call.body.get("seed")])
        for call in calls
        if answered is None or (call.did == "answer") == answered
    )


def verdicts(folder: Path, out: str = "run") -> dict[str, Any]:
    lines = (folder / out / "verdicts.jsonl").read_text().splitlines()
    return {verdict["id"]: verdict for verdict in map(json.loads, lines)}


async def test_with_a_third_of_calls_failing_every_trajectory_is_judged(tmp_path: Path) -> None:
    # Of three votes one may come to nothing; an answer may not: its server fails, but talks no nonsense
    judge = Script(rule=RULE, faults=(*BROKEN, *NONSENSE), fault_share=0.3)
    small = Script(rule=RULE, faults=BROKEN, fault_share=0.3, seed=1)
    async with scripted_server(judge) as judging, scripted_server(small) as answering:
        configured(tmp_path, judging, answering, timeout_s=2.0, attempts=12)
        done = await ran(*arguments(tmp_path, "--judge", "judge", "--answers", "small", "-q"))
        assert done.code == 0, done.err + done.out
        assert done.out.splitlines()[0] == "2 systems, 4 anchors, 8 trajectories: every metric judged."
        for server in (judging, answering):
            did = Counter(call.did for call in await server.asked())
            assert did["answer"] >= 12
            assert sum(did.values()) - did["answer"] >= 3, did
    found = verdicts(tmp_path)
    assert all(verdict["outcome"] in ("pass", "fail") for verdict in found.values())
    assert all(len(verdict["votes"]) == 3 for verdict in found.values())


async def test_votes_of_a_judge_that_agrees_with_the_official_one_come_to_its_verdicts(
    tmp_path: Path,
) -> None:
    async with scripted_server(Script(rule=RULE)) as server:
        configured(tmp_path, server)
        systems = (*SYSTEMS, "--system", "ext=rag_ext:model=small,retrieval=bm25", "--system", "oracle")
        runs: dict[str, tuple[str, ...]] = {
            "official": (),
            "alone": ("--judge", "judge"),
            "panel": ("--judge", "official", "--judge", "judge", "--judge", "small", "--votes", "1"),
        }
        for out, judges in runs.items():
            done = await ran(*arguments(tmp_path, *judges, "-q", systems=systems, out=out))
            assert done.code == 0, done.err + done.out
    official, alone, panel = (verdicts(tmp_path, out) for out in runs)
    assert {v["outcome"] for v in official.values()} == {"pass", "fail"}
    for other in (alone, panel):
        assert {i: v["outcome"] for i, v in other.items()} == {i: v["outcome"] for i, v in official.items()}
        assert {i: v.get("feedback") for i, v in other.items()} == {
            i: v.get("feedback") for i, v in official.items()
        }
    assert [len(vote.get("votes", ())) for vote in next(iter(panel.values()))["votes"]] == [0, 1, 1]


async def test_a_judge_that_is_down_is_said_first_and_a_retry_pays_only_for_what_it_owed(
    tmp_path: Path,
) -> None:
    async with scripted_server(DOWN) as judging, scripted_server(Script(rule=RULE)) as answering:
        configured(tmp_path, judging, answering, attempts=2)
        command = arguments(tmp_path, "--judge", "judge", "--answers", "small", "-q")
        done = await ran(*command)
        assert done.code == 4, done.err
        first = done.out.splitlines()[0]
        said = "2 systems, 4 anchors, 8 trajectories: 8 of 8 trajectories unjudged (100.0%; null 4; raw 4): "
        assert first.startswith(f"{said}judge gave no vote (unavailable: ")
        assert "503 Service Unavailable" in first
        assert {v["outcome"] for v in verdicts(tmp_path).values()} == {"unjudged"}
        shown = await ran("scores", tmp_path / "run", "--json")
        assert shown.code == 4
        assert all(rate["judged"] == 0 and rate["rate"] is None for rate in shown.json["scores"])

        before = asked_of(await answering.asked())
        await judging.play(Script(rule=RULE))
        again = await ran("retry", tmp_path / "run", "-q")
        assert again.code == 0, again.err
        assert "every metric judged" in again.out.splitlines()[0]
        calls = asked_of(await judging.asked())
        assert max(calls.values()) == 1
        # R1 was asked before; what comes after it had not been asked of anybody
        assert max((asked_of(await answering.asked())).values()) == 1
        assert asked_of(await answering.asked()) > before


async def test_a_judge_that_goes_down_half_way_is_paid_once_for_what_it_said(tmp_path: Path) -> None:
    answers = 40
    script = Script(rule=RULE, steps=(Step(),) * answers, faults=DOWN.faults, fault_share=1.0)
    async with scripted_server(script) as judging:
        configured(tmp_path, judging, attempts=1)
        done = await ran(*arguments(tmp_path, "--judge", "judge", "-q"))
        assert done.code == 4
        found = verdicts(tmp_path).values()
        unjudged = {verdict["trajectory"] for verdict in found if verdict["outcome"] == "unjudged"}
        assert unjudged
        assert any(verdict["outcome"] != "unjudged" for verdict in found)
        paid = asked_of(await judging.asked(), answered=True)
        assert sum(paid.values()) == answers

        await judging.play(Script(rule=RULE))
        again = await ran("retry", tmp_path / "run", "-q")
        assert again.code == 0, again.err
        calls = asked_of(await judging.asked())
        assert not calls.keys() & paid.keys(), "what had been answered was paid for again"
        assert max(calls.values()) == 1
        shown = (await ran("scores", tmp_path / "run", "--json")).json
        retried = {row["trajectory"] for row in shown["rows"] if row["attempt"] == 2}
        assert retried == unjudged
    assert not {v["trajectory"] for v in verdicts(tmp_path).values() if v["outcome"] == "unjudged"}


@pytest.mark.parametrize("said", ["no idea", '{"findings": [], "type": "maybe", "reason": ""}', ""])
async def test_a_judge_that_talks_nonsense_leaves_everything_unjudged(tmp_path: Path, said: str) -> None:
    async with scripted_server(Script(rule=RULE, faults=(Step(say=said),), fault_share=1.0)) as server:
        configured(tmp_path, server)
        done = await ran(*arguments(tmp_path, "--judge", "judge", "-q", systems=("--system", "null")))
    assert done.code == 4
    assert "4 of 4 trajectories unjudged" in done.out.splitlines()[0]
    assert "judge gave no vote (nonsense: its answers don't fit" in done.out
    assert "invariants 1-7 hold" in done.out


async def test_a_model_that_can_t_answer_makes_its_answers_unjudged_and_never_wrong(tmp_path: Path) -> None:
    async with scripted_server(Script(rule=RULE)) as judging, scripted_server(DOWN) as answering:
        configured(tmp_path, judging, answering, attempts=1)
        done = await ran(*arguments(tmp_path, "--answers", "small", "--judge", "judge", "-q"))
    assert done.code == 4
    assert "R1 failed: ModelError: small: 503" in done.out.splitlines()[0]
    found = verdicts(tmp_path)
    assert {v["outcome"] for v in found.values() if v["metric"] != "fidelity"} == {"unjudged"}
    assert {v["outcome"] for v in found.values() if v["metric"] == "fidelity"} == {"pass", "fail"}


async def test_extraction_that_fails_is_a_failed_delta_and_no_memory(tmp_path: Path) -> None:
    async with scripted_server(Script(rule=RULE)) as judging, scripted_server(DOWN) as extracting:
        configured(tmp_path, judging, extracting, attempts=1)
        systems = ("--system", "ext=rag_ext:model=small,retrieval=bm25")
        done = await ran(*arguments(tmp_path, "-q", systems=systems))
        assert done.code == 4
        assert "ext failed to ingest 4 segments: ModelError: small: 503" in done.out
        await extracting.play(Script(rule=RULE))
        again = await ran("retry", tmp_path / "run", "-q")
        assert again.code == 0, again.err
        assert "Before the retry ext failed to ingest 4 segments" in again.out


async def test_killed_half_way_and_begun_again_nothing_is_paid_twice(tmp_path: Path) -> None:
    in_flight, answers = 4, 50
    stuck = Script(rule=RULE, steps=(Step(),) * answers, faults=(Step(does="hang"),), fault_share=1.0)
    systems = ("--system", "ext=rag_ext:model=small,retrieval=bm25", "--system", "null")
    options = ("--judge", "judge", "--answers", "small", "-q")
    async with scripted_server(stuck) as server:
        configured(tmp_path, server, max_in_flight=in_flight)
        command = arguments(tmp_path, *options, systems=systems)
        with started(*command, cwd=tmp_path) as process:
            await anyio.to_thread.run_sync(wait_for, lambda: _answers_kept(tmp_path) == answers, process)
            process.send_signal(signal.SIGKILL)
            await anyio.to_thread.run_sync(process.wait)
        first = await server.asked()
        await server.play(Script(rule=RULE))
        done = await ran(*command)
        assert done.code == 0, done.err
        second = await server.asked()
        calls = [*first, *second]
        asked, before = asked_of(calls), asked_of(first)
        assert asked.keys() > before.keys(), "the kill came too late to show anything"
        twice = {call: count for call, count in asked.items() if count > 1}
        # what was under way when it was killed had no one to hear the answer: at most so many of each model
        assert sum(count - 1 for count in twice.values()) <= 2 * in_flight
        assert {role_of(call.body) for call in calls} == {"fidelity", "user", "extract", "answer"}

        again = await ran(*arguments(tmp_path, *options, "--json", systems=systems, out="again"))
        assert again.code == 0, again.err
        assert len(await server.asked()) == len(second), "all of it is in the cache"
        assert (tmp_path / "again" / "verdicts.jsonl").read_bytes() == (
            tmp_path / "run" / "verdicts.jsonl"
        ).read_bytes()
        spending = again.json["spending"]
        assert all(spent["cached"] == spent["calls"] > 0 for spent in spending)
        assert all(spent["seconds"] is None for spent in spending), "the cache's time is no model's"
        assert (await ran("audit", tmp_path / "run")).out.split()[-1] == (
            await ran("audit", tmp_path / "again")
        ).out.split()[-1]


def _answers_kept(folder: Path) -> int:
    if not (folder / "cache.db").exists():
        return 0
    try:
        with sqlite3.connect(f"file:{folder / 'cache.db'}?mode=ro", uri=True) as db:
            kept: int = db.execute("SELECT count(*) FROM answers").fetchone()[0]
            return kept
    except sqlite3.OperationalError:  # its table is being made
        return 0


async def test_a_dry_run_says_what_it_would_take_and_does_nothing(tmp_path: Path) -> None:
    systems = ("--system", "ext=rag_ext:model=small,retrieval=bm25", "--system", "null")
    options = ("--judge", "judge", "--answers", "small", "--json", "-q")
    async with scripted_server(Script(rule=RULE)) as server:
        configured(tmp_path, server)
        dry = await ran(*arguments(tmp_path, *options, "--dry-run", systems=systems))
        assert dry.code == 0, dry.err
        assert await server.asked() == []
        assert not (tmp_path / "run").exists()
        assert not (tmp_path / "cache.db").exists()
        done = await ran(*arguments(tmp_path, *options, systems=systems))
        assert done.code == 0, done.err
    rows = {(row["system"], row["role"]): row for row in dry.json["rows"]}
    spent = {(row["system"], row["role"]): row for row in done.json["spending"]}
    assert rows.keys() == spent.keys()
    for role, row in rows.items():
        assert row["calls"] >= spent[role]["calls"] > 0
        assert row["money"] > 0
        price = {"small": 0.5, "judge": 2.0}[row["model"]]
        by_hand = (spent[role]["prompt_tokens"] + 4 * spent[role]["completion_tokens"]) * price / 1e6
        assert spent[role]["money"]["total"] == pytest.approx(by_hand, abs=1e-9)
    assert rows["ext", "ingest"]["calls"] == spent["ext", "ingest"]["calls"] == 4
    assert rows["ext", "commit"]["calls"] == spent["ext", "commit"]["calls"] == 4
    assert rows["null", "judge"]["calls"] == 4 * 4 * 3
    assert dry.json["calls"] == sum(row["calls"] for row in rows.values())
    assert len(dry.json["assumptions"]) > 3


async def test_a_worker_with_other_judges_or_answers_than_the_run_is_refused(tmp_path: Path) -> None:
    async with scripted_server(Script(rule=RULE)) as server:
        configured(tmp_path, server)
        done = await ran(*arguments(tmp_path, "--judge", "judge", "--answers", "small", "-q"))
        assert done.code == 0, done.err
    where = ("--log", tmp_path / "run" / "log.db", "--run", "any", "--models", tmp_path / "models.toml")
    for role, says in (
        (("judge", "--votes", "5"), "has judge."),
        (("agent", "--system", "null"), "has answers"),
    ):
        refused = await ran("worker", *role, *where)
        assert refused.code == 2
        assert says in one_line(refused)


def test_what_models_are_asked_is_part_of_what_a_run_is(tmp_path: Path) -> None:
    def identity(**changed: Any) -> dict[str, str]:
        (tmp_path / "models.toml").write_text(
            "\n".join(
                f'[models.{name}]\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "{name}-1"\nmax_in_flight = {most}'
                for name in ("judge", "small")
                for most in [changed.pop(f"{name}_most", 3)]
            )
        )
        options: dict[str, Any] = {
            "systems": ("null", "ext=rag_ext:model=small"),
            "models": tmp_path / "models.toml",
            "judges": ("judge",),
            "answers": "small",
            **changed,
        }
        return plan_run(RunOptions(data=DATA, out=tmp_path / "run", **options)).started.identity

    usual = identity()
    assert "small-1" in usual["answers"]
    assert "small-1" in usual["memory.ext"]
    assert "extract_v1.en" in usual["memory.ext"]
    changes: dict[str, dict[str, Any]] = {
        "judges": {"judges": ("small",)},
        "panel": {"judges": ("judge", "official")},
        "votes": {"votes": 5},
        "answers": {"answers": "judge"},
        "extraction": {"answers": None},
        "budget": {"answer_tokens": 9},
        "prompts": {"language": "zh"},
        "memory": {"systems": ("null", "ext=rag_ext:model=judge")},
    }
    for name, changed in changes.items():
        assert identity(**changed) != usual, name
    same: dict[str, dict[str, Any]] = {
        "limits": {"judge_most": 9},
        "cache": {"cache": tmp_path / "c.db"},
        "offline": {"offline": True},
    }
    for name, changed in same.items():
        assert identity(**changed) == usual, name
    assert "answers" not in identity(answers=None)


async def test_who_answers_by_itself_is_left_alone_and_named(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from adapters.memory import Answer\n"
        "from adapters.systems.null import NullMemory\n"
        "from adapters.memory import Capabilities\n\n\n"
        "class Own(NullMemory):\n"
        "    capabilities = Capabilities()\n\n"
        "    async def answer(self, request):\n"
        "        return Answer(text='my own words')\n"
    )
    async with scripted_server(Script(rule=RULE)) as server:
        configured(tmp_path, server)
        systems = ("--system", "null", "--system", "own=own:Own")
        command = arguments(tmp_path, "--answers", "small", "-q", systems=systems)
        done = await anyio.to_thread.run_sync(partial(egostream, *command, cwd=tmp_path))
        assert done.code == 0, done.err
        assert "Answers by small; own: by itself." in done.out
        calls = await server.asked()
    shown = egostream("scores", tmp_path / "run", "--json").json
    assert (shown["answered_by"], shown["answered_apart"]) == ("small", ["own"])
    own = [
        text
        for row in shown["rows"]
        if row["system"] == "own"
        for n, text in row["texts"].items()
        if n[0] == "R"
    ]
    assert set(own) == {"my own words"}
    assert {role_of(call.body) for call in calls} == {"answer"}


async def test_offline_a_run_says_what_the_cache_lacks_and_asks_nobody(tmp_path: Path) -> None:
    async with scripted_server(Script(rule=RULE)) as server:
        configured(tmp_path, server)
        done = await ran(*arguments(tmp_path, "--judge", "judge", "--offline", "-q"))
        assert await server.asked() == []
    assert done.code == 4
    assert "judge gave no vote (offline: " in done.out.splitlines()[0]


async def test_an_answer_that_is_streamed_says_when_its_first_token_was_there(tmp_path: Path) -> None:
    async with scripted_server(Script(rule=RULE, token_s=0.002)) as server:
        configured(tmp_path, server, stream=True)
        done = await ran(*arguments(tmp_path, "--answers", "small", "-q"))
        assert done.code == 0, done.err
    seen = 0
    async with open_run(tmp_path / "run") as (log, begun):
        async for event, record in read_events(log, begun.run, [Topics.of(begun.run).responses]):
            assert isinstance(event, ResponseEvent)
            times = {name: int(value) for name, value in record.headers if value.isdigit()}
            if not times["model_cached"]:
                seen += 1
                assert times["began_us"] <= times["first_token_us"] <= times["ended_us"]
    assert seen


async def test_a_key_that_is_missing_is_said_before_anything_begins(tmp_path: Path) -> None:
    table = (
        '[models.judge]\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\napi_key_env = "NO_SUCH_KEY_HERE"\n'
    )
    (tmp_path / "models.toml").write_text(table)
    refused = await ran(*arguments(tmp_path, "--judge", "judge", "-q"))
    assert refused.code == 2
    assert "NO_SUCH_KEY_HERE" in one_line(refused)
    assert not (tmp_path / "run").exists()
    assert (await ran(*arguments(tmp_path, "--judge", "judge", "-q", "--dry-run"))).code == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--judge", "nobody"), "no model is called 'nobody'"),
        (("--judge", "judge", "--judge", "judge"), "the judge judge is named twice"),
        (("--answers", "nobody"), "no model is called 'nobody'"),
    ],
)
async def test_models_that_are_not_there_are_said_before_anything_begins(
    tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    (tmp_path / "models.toml").write_text('[models.judge]\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n')
    refused = await ran(*arguments(tmp_path, *options))
    assert refused.code == 2
    assert says in one_line(refused)
    assert not (tmp_path / "run").exists()
