"""Construction over a stream, against a scripted server: what is kept, kills, failures, and what stays undone."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from producers.anchors.building import CANDIDATES_NAME, RECORD_NAME
from producers.anchors.candidates import Prompts
from producers.anchors.criteria import CRITERIA
from producers.anchors.state import FILE_NAME
from producers.datasets import read_dataset
from tests.anchors.rules import CHECKED, kind_of
from tests.cli.helpers import DEADLINE_S, Ran, egostream, one_line, started
from tests.models.server import Script, Server, Step, scripted_server

STREAM = "synthetic:seed=4,wearers=2,segments_per_day=20,observations_per_segment=20,anchors_per_day=0"
SEGMENTS = 40
RULE = "tests.anchors.rules:answer"


class Builder:
    """Calls `egostream anchors build` with a model that the server plays."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder
        self.server = server
        config = folder / "models.toml"
        config.write_text(f'[models.scripted]\nbase_url = "{server.url}"\nmodel = "scripted"\n')
        self._config = config

    def arguments(
        self, out: str, *more: object, cache: str = "cache.db", data: object = STREAM
    ) -> list[object]:
        fixed = ("--models", self._config, "--model", "scripted", "--cache", self.folder / cache)
        return ["anchors", "build", "--data", data, *fixed, "--out", self.folder / out, *more]

    async def build(self, out: str, *more: object, **options: Any) -> Ran:
        command = partial(egostream, *self.arguments(out, *more, **options))
        return await anyio.to_thread.run_sync(command)

    def finished(self, out: str) -> int:
        """Segments that a construction has finished so far."""
        path = self.folder / f"{out}.partial" / FILE_NAME
        return max(path.read_bytes().count(b"\n") - 1, 0) if path.exists() else 0


@asynccontextmanager
async def builder(folder: Path, script: Script) -> AsyncIterator[Builder]:
    async with scripted_server(script) as server:
        yield Builder(folder, server)


def anchors_in(release: Path) -> dict[str, bytes]:
    """The release's own files, those with what asking took left out."""
    files = [path for part in ("segments", "evidence_tasks") for path in (release / part).rglob("*.json")]
    return {path.relative_to(release).as_posix(): path.read_bytes() for path in files}


async def test_what_is_good_is_kept_and_what_is_bad_falls_by_what_is_wrong_with_it(tmp_path: Path) -> None:
    async with builder(tmp_path, Script(rule=RULE)) as make:
        ran = await make.build("made", "--json", "-q")
        assert (ran.code, ran.err) == (0, "")
        account = ran.json["account"]
        asked = len(await make.server.asked())
        left = tmp_path / "made.partial"  # by a kill just after the release appeared
        left.mkdir()
        (left / FILE_NAME).write_bytes((tmp_path / "made" / CANDIDATES_NAME).read_bytes())
        again = await make.build("made", "--json")
        assert again.json["already_there"]
        assert again.json["account"] == account
        assert len(await make.server.asked()) == asked == account["spent"]["calls"]

    release = tmp_path / "made"
    assert not (tmp_path / "made.partial").exists()
    record = json.loads((release / RECORD_NAME).read_bytes())
    assert record["account"] == account
    prompts = Prompts.load("en")
    assert record["identity"]["anchor_prompt"] == str(prompts.anchor)
    assert prompts.review.digest in record["identity"]["review_prompt"]
    assert "scripted at http://127.0.0.1" in record["identity"]["anchor_model"]

    header, *segments = map(json.loads, (release / CANDIDATES_NAME).read_bytes().splitlines())
    assert header["identity"] == record["identity"]
    assert len(segments) == SEGMENTS == account["segments"]
    fell: Counter[str] = Counter()
    for segment in segments:
        assert {kind_of(kept["evidence_statement"]) for kept in segment["kept"]} <= {"good"}
        for fallen in segment["fallen"]:
            kind = kind_of(fallen["candidate"]["evidence_statement"])
            assert set(fallen["reasons"]) == {kind}
            assert fallen["stage"] == ("checks" if kind in CHECKED else "review")
            fell[f"{fallen['stage']}.{kind}"] += 1
    assert account["reasons"] == dict(fell.most_common())
    assert account["candidates"] == account["kept"] + fell.total()
    assert min(account["fell_by_checks"], account["fell_by_review"], account["kept"]) > 3
    assert all(len(examples) <= 3 for examples in account["examples"].values())
    reviewed = account["kept"] + account["fell_by_review"]
    assert account["spent"]["calls"] == SEGMENTS + reviewed

    checked = egostream("anchors", "check", release, "--json")
    assert checked.code == 0, checked.out
    assert (checked.json["anchors"], checked.json["errors"]) == (account["kept"], 0)
    dataset, original = read_dataset(release), read_dataset(STREAM)
    assert len(dataset.anchors) == account["kept"]
    assert dataset.report.oddities == {}
    assert [len(log.observations) for log in dataset.lifelogs.values()] == [
        len(log.observations) for log in original.lifelogs.values()
    ]


async def test_killed_in_the_middle_it_goes_on_and_comes_to_the_same(tmp_path: Path) -> None:
    async with builder(tmp_path, Script(rule=RULE)) as make:
        assert (await make.build("whole", cache="one.db")).code == 0
        await make.server.play(Script(rule=RULE, delay_s=0.25))  # so that the kill comes long before the end
        arguments = make.arguments("killed", "--concurrency", 2, cache="two.db")
        kills = 0
        with started(*arguments, cwd=tmp_path) as process:
            while make.finished("killed") < SEGMENTS // 3:
                assert process.poll() is None
                await anyio.sleep(0.02)
            process.send_signal(signal.SIGKILL)
            await anyio.to_thread.run_sync(partial(process.wait, DEADLINE_S))
            kills += 1
        kept = make.finished("killed")
        assert SEGMENTS // 3 <= kept < SEGMENTS
        assert not (tmp_path / "killed").exists()
        state = tmp_path / "killed.partial" / FILE_NAME
        with state.open("ab") as file:
            file.write(b'{"stream":"W01_ADA","segm')  # as a kill in the middle of an append leaves it
        await make.server.play(Script(rule=RULE))
        # another cache: what is finished needs none
        ran = await make.build("killed", "--json", cache="three.db")
        assert ran.code == 0, ran.err
        asked = [a for a in await make.server.asked() if "You write" in a.body["messages"][0]["content"]]
        assert len(asked) == SEGMENTS - kept
    assert anchors_in(tmp_path / "killed") == anchors_in(tmp_path / "whole")
    assert ran.json["account"]["kept"] == len(read_dataset(tmp_path / "whole").anchors)
    assert kills == 1


async def test_a_repeat_is_answered_from_the_cache(tmp_path: Path) -> None:
    async with builder(tmp_path, Script(rule=RULE)) as make:
        first = await make.build("first", "--json")
        asked = len(await make.server.asked())
        second = await make.build("second", "--json", "--offline")
        assert second.code == 0
        assert len(await make.server.asked()) == asked
        assert second.json["account"]["kept"] == first.json["account"]["kept"]
    assert anchors_in(tmp_path / "first") == anchors_in(tmp_path / "second")
    lacking = await Builder(tmp_path, make.server).build("third", "--offline", cache="empty.db")
    assert lacking.code == 4
    assert "the cache has no answer" in lacking.out


FAULTS = (
    Step(does="refuse", status=500),
    Step(does="refuse", status=429, retry_after="0.1"),
    Step(does="cut"),
    Step(does="not_json"),
    Step(does="wrong_shape"),
    Step(does="empty"),
    Step(say="I think that there is nothing of the kind."),
    Step(say='{"anchors": "none"}'),
)


async def test_with_a_third_of_the_calls_failing_it_comes_to_the_same(tmp_path: Path) -> None:
    async with builder(tmp_path, Script(rule=RULE)) as make:
        assert (await make.build("clean", cache="one.db")).code == 0
        await make.server.play(Script(rule=RULE, faults=FAULTS, fault_share=0.3))
        ran = await make.build("faulty", "--json", cache="two.db")
        did = Counter(asked.did for asked in await make.server.asked())
        for _ in range(3):  # a model that says nonsense three times running has no usable answer
            if ran.code == 0:
                break
            assert ran.json["release"] is None
            assert ran.json["account"]["undone"]
            ran = await make.build("faulty", "--json", cache="two.db")
        assert ran.code == 0, ran.out
    assert did["500"] > 0
    assert did["cut"] > 0
    assert anchors_in(tmp_path / "faulty") == anchors_in(tmp_path / "clean")


async def test_a_segment_without_an_answer_is_undone_and_named_and_asked_again(tmp_path: Path) -> None:
    lifelogs = read_dataset(STREAM).lifelogs
    silent = {
        f"{name}/s{number}"
        for name, log in lifelogs.items()
        for number, span in enumerate(log.segments)
        if any("kettle" in o.text for o in log.observations[span.first_seq : span.last_seq + 1])
    }
    assert 0 < len(silent) < SEGMENTS
    async with builder(tmp_path, Script(rule="tests.anchors.rules:stubborn")) as make:
        ran = await make.build("made", "--json")
        assert ran.code == 4
        assert ran.json["release"] is None
        assert set(ran.json["account"]["undone"]) == silent
        assert not (tmp_path / "made").exists()
        pretty = await make.build("made")
        assert pretty.code == 4
        assert f"{len(silent)} of {SEGMENTS} segments are undone, and no release was written" in pretty.out
        assert "I'd rather not" in pretty.out

        partly = await make.build("made", "--allow-undone", "--json")
        assert partly.code == 4
        record = json.loads((tmp_path / "made" / RECORD_NAME).read_bytes())
        assert set(record["account"]["undone"]) == silent
        assert egostream("anchors", "check", tmp_path / "made", "-q").code == 0

        await make.server.play(Script(rule=RULE))
        whole = await make.build("made", "--json")
        assert whole.code == 0
        assert whole.json["account"]["undone"] == {}
        asked = [a for a in await make.server.asked() if "You write" in a.body["messages"][0]["content"]]
        assert len(asked) == len(silent)
        assert (await make.build("at_once", cache="other.db")).code == 0
    assert anchors_in(tmp_path / "made") == anchors_in(tmp_path / "at_once")


async def test_chinese_streams_are_asked_about_in_chinese(tmp_path: Path) -> None:
    said = ["我明天要去潭柘寺还愿", "冰箱里的酸奶不能放蜂蜜", "周末请把工作室钥匙留给我", "我怕切菜的声音"]
    observations = [
        {
            "timestamp": f"stream_index:{i}",
            "source": "dialog",
            "text": f"小雨: {text}",
            "metadata": {"stream_index": i},
        }
        for i, text in enumerate(said * 6)
    ]
    segments = [
        {
            "segment_id": number,
            "time_range": f"09:{5 * number:02d}:00 - 09:{5 * number + 5:02d}:00",
            "stream_segment": {"text": "", "observations": observations[4 * number : 4 * number + 4]},
        }
        for number in range(6)
    ]
    path = tmp_path / "made_zh" / "segments" / "A1_XIAOYU" / "DAY1.json"
    path.parent.mkdir(parents=True)
    head = {"participant": "A1_XIAOYU", "day": "DAY1", "num_segments": 6}
    path.write_text(json.dumps({**head, "segments": segments}, ensure_ascii=False))
    async with builder(tmp_path, Script(rule=RULE)) as make:
        ran = await make.build("out_zh", "--language", "zh", "--json", data=tmp_path / "made_zh")
        assert ran.code == 0, ran.err
        assert all(ord(a.body["messages"][0]["content"][0]) > 0x4E00 for a in await make.server.asked())
    assert ran.json["account"]["kept"] > 0
    assert ".zh" in json.loads((tmp_path / "out_zh" / RECORD_NAME).read_bytes())["identity"]["anchor_prompt"]
    assert egostream("anchors", "check", tmp_path / "out_zh").code == 0


async def test_another_construction_is_not_mixed_in(tmp_path: Path) -> None:
    async with builder(tmp_path, Script(rule=RULE)) as make:
        assert (await make.build("made")).code == 0
        other = await make.build("made", "--most", 1)
        assert other.code == 2
        assert "most_per_segment" in one_line(other)
        assert (await make.build("made", "--most", 1, "--overwrite")).code == 0
        assert (
            json.loads((tmp_path / "made" / RECORD_NAME).read_bytes())["identity"]["most_per_segment"] == "1"
        )
        assert not (tmp_path / "made.partial").exists()

        await make.server.play(Script(rule="tests.anchors.rules:stubborn"))
        assert (await make.build("begun", cache="other.db")).code == 4
        mixed = await make.build("begun", "--language", "zh")
        assert mixed.code == 2
        assert "anchor_prompt" in one_line(mixed)

        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.txt").write_text("precious")
        for more in ((), ("--overwrite",)):
            refused = await make.build("mine", *more)
            assert refused.code == 2
            assert "was not built by this command" in one_line(refused)
        assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


async def test_two_at_once_do_not_get_into_each_others_way(tmp_path: Path) -> None:
    few = Script(rule=RULE, steps=(Step(),) * 20, faults=(Step(does="hang"),), fault_share=1.0)
    async with builder(tmp_path, few) as make:
        with started(*make.arguments("made", "--concurrency", 2), cwd=tmp_path) as process:
            while make.finished("made") < 2:
                assert process.poll() is None
                await anyio.sleep(0.02)
            second = await make.build("made")
            assert second.code == 2
            assert "another process builds" in one_line(second)
            process.send_signal(signal.SIGINT)
            _, err = await anyio.to_thread.run_sync(partial(_ended, process))
        assert process.returncode == 130
        assert "what is finished stays in" in err.splitlines()[-1]
        assert 2 <= make.finished("made") < SEGMENTS


def _ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    return process.communicate(timeout=DEADLINE_S)


def test_a_dry_run_asks_nothing(tmp_path: Path) -> None:
    nobody = "openai:x@http://127.0.0.1:9/v1"
    arguments = (
        "anchors",
        "build",
        "--data",
        STREAM,
        "--model",
        nobody,
        "--out",
        tmp_path / "x",
        "--dry-run",
    )
    anchor, review = egostream(*arguments, "--json").json["roles"]
    assert (anchor["calls"], review["calls"]) == (SEGMENTS, 3 * SEGMENTS)
    assert anchor["prompt_tokens"] > SEGMENTS * 500
    assert f"{anchor['prompt_tokens']:,}" in egostream(*arguments).out
    assert list(tmp_path.iterdir()) == []
    unknown = egostream(*arguments[:5], "nobody", *arguments[6:])
    assert unknown.code == 2
    assert "no model is called 'nobody'" in one_line(unknown)


def test_a_review_asks_for_each_criterion() -> None:
    for language in ("en", "zh"):
        prompts = Prompts.load(language)
        for criterion in CRITERIA:
            assert f'"{criterion}"' in prompts.review.system


@pytest.mark.parametrize("language", ["en", "zh"])
def test_prompts_have_the_places_that_are_filled_in(language: Any) -> None:
    prompts = Prompts.load(language)
    assert prompts.anchor.places == {"most", "wearer", "when", "lines"}
    assert prompts.review.places == {"wearer", "lines", "item"}
