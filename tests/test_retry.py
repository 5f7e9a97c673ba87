"""Running again what stayed unjudged: after an outage, from another place, cut short, and when it can't be."""

from __future__ import annotations

import csv
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from producers.datasets import read_dataset, write_release
from tests.cli.helpers import Ran, egostream, has, one_line, started, wait_for

SYSTEMS = ("shaky=shaky:Shaky", "null")
SHAKY = """
import asyncio
import os

from egostream import Answer, Delta, Request, Segment, Usage


class Shaky:
    \"\"\"Keeps everything. Its model is down for the requests and segments that the environment says.\"\"\"

    def __init__(self, context):
        self.texts = ()

    async def ingest(self, segment: Segment) -> Delta:
        if str(segment.segment) in os.environ.get("NO_INGEST", "").split():
            raise RuntimeError("the model is down")
        if segment.segment == int(os.environ.get("HANGS_AT", "-1")):
            await asyncio.Event().wait()
        self.texts += (segment.text,)
        asked = Usage(prompt_tokens=100 + len(self.texts), completion_tokens=7, calls=1)
        return Delta(stored_bytes=len(segment.text), usage=asked)

    async def answer(self, request: Request) -> Answer:
        down = request.phase in os.environ.get("NO_ANSWER", "").split()
        if down or len(self.texts) <= int(os.environ.get("NO_ANSWER_UNTIL", "0")):
            raise RuntimeError("the model is down")
        return Answer(text=self.texts[-1], usage=Usage(prompt_tokens=1000, completion_tokens=9, calls=2))

    async def commit(self, interaction) -> Delta:
        self.texts += (interaction.turns[-1].text,)
        return Delta()

    def fork(self):
        other = Shaky(None)
        other.texts = self.texts
        return other

    async def aclose(self):
        pass
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the memory system and a dataset of two wearers."""
    path = tmp_path_factory.mktemp("retry")
    (path / "shaky.py").write_text(SHAKY)
    options = "wearers=2,segments_per_day=6,observations_per_segment=6,anchors_per_day=3"
    write_release(read_dataset(f"synthetic:seed=3,{options}"), path / "data")
    return path


def run(place: Path, out: Path, *more: object, **env: str) -> Ran:
    systems = [word for system in SYSTEMS for word in ("--system", system)]
    return egostream(
        "run", "-q", "--log-level", "error", "--data", place / "data", *systems, "--out", out, *more,
        env={"PYTHONPATH": with_place(place), **env},
    )  # fmt: skip


def retry(place: Path, out: Path, *more: object, **env: str) -> Ran:
    return egostream(
        "retry", out, "--log-level", "error", *more, env={"PYTHONPATH": with_place(place), **env}
    )


def is_sound(row: dict[str, Any]) -> bool:
    """All of it is judged, on a memory that lacks nothing."""
    return not row["missed"] and all(mark["outcome"] != "unjudged" for mark in row["marks"].values())


def with_place(place: Path) -> str:
    return os.pathsep.join([str(place), *filter(None, [os.environ.get("PYTHONPATH")])])


def verdicts(out: Path) -> list[dict[str, Any]]:
    """Without the run's id: a retry's is its own."""
    lines = (out / "verdicts.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "run"} for line in lines]


def costs(scores: dict[str, Any]) -> list[dict[str, Any]]:
    """All but how long it took; of that, how many times were measured."""
    return [
        {k: v["n"] if isinstance(v, dict) and k.endswith("seconds") else v for k, v in cost.items()}
        for cost in (*scores["costs"], *scores["spending"])
    ]


@pytest.fixture(scope="module")
def undisturbed(place: Path) -> list[dict[str, Any]]:
    ran = run(place, place / "undisturbed")
    assert ran.code == 0, ran.err
    return verdicts(place / "undisturbed")


@pytest.fixture(scope="module")
def undisturbed_costs(place: Path, undisturbed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return costs(egostream("scores", place / "undisturbed", "--json").json)


@pytest.mark.parametrize(
    "outage",
    [{"NO_ANSWER": "R1"}, {"NO_ANSWER": "R2"}, {"NO_INGEST": "2 3"}],
    ids=lambda outage: " ".join(map(" ".join, outage.items())),
)
def test_after_an_outage_a_retry_gives_what_would_have_been_without(
    place: Path,
    undisturbed: list[dict[str, Any]],
    undisturbed_costs: list[dict[str, Any]],
    tmp_path: Path,
    outage: dict[str, str],
) -> None:
    out = tmp_path / "run"
    assert run(place, out, **outage).code == 4
    log = (out / "log.db").stat().st_size
    before = egostream("scores", out, "--json").json
    ran = retry(place, out)
    assert ran.code == 0, ran.err
    assert (out / "log.db").stat().st_size == log
    again = len(before["rows"]) - sum(map(is_sound, before["rows"]))
    assert f"Taken from a retry, with its costs: {again} trajectories." in ran.out
    assert costs(before) != undisturbed_costs
    assert "invariants 1-7 hold" in ran.out
    assert verdicts(out) == undisturbed
    after = egostream("scores", out, "--json").json
    assert after["unjudged"]["trajectories"] == 0
    assert costs(after) == undisturbed_costs
    retried = [row for row in after["rows"] if row["attempt"] == 2]
    assert len(retried) == again
    assert {row["system"] for row in retried} == {"shaky"}
    kept = {row["trajectory"]: row for row in before["rows"]}
    assert all(row == kept[row["trajectory"]] for row in after["rows"] if row["attempt"] == 1)
    with (out / "trajectories.csv").open() as lines:
        assert sorted(row["attempt"] for row in csv.DictReader(lines)).count("2") == again
    # the run's own command finds it finished, and leaves the retry's results where they are
    assert run(place, out).code == 0
    assert verdicts(out) == undisturbed


def test_what_ran_on_a_memory_with_a_gap_is_retried_though_it_was_judged(
    place: Path, undisturbed: list[dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    ran = run(place, out, NO_INGEST="0 1 2 3")
    assert ran.code == 4
    rows = egostream("scores", out, "--json").json["rows"]
    shaky = {row["trajectory"]: row for row in rows if row["system"] == "shaky"}
    gapped = [name for name, row in shaky.items() if row["segment"] > 3]
    assert gapped
    assert all(shaky[name]["missed"] == 4 for name in gapped)
    assert all(mark["outcome"] != "unjudged" for name in gapped for mark in shaky[name]["marks"].values())
    assert all(row["missed"] == 0 for row in rows if row["system"] == "null")
    assert "on a memory that lacks a segment, whose ingest failed: a retry runs them again." in ran.out
    ran = retry(place, out, "--json")
    assert ran.code == 0, ran.err
    after = {row["trajectory"]: row for row in ran.json["rows"]}
    assert all((after[name]["attempt"], after[name]["missed"]) == (2, 0) for name in gapped)
    assert verdicts(out) == undisturbed


def test_what_stays_unjudged_is_retried_again(
    place: Path,
    undisturbed: list[dict[str, Any]],
    undisturbed_costs: list[dict[str, Any]],
    tmp_path: Path,
) -> None:
    out = tmp_path / "run"
    assert run(place, out, NO_ANSWER="R1").code == 4
    assert retry(place, out, NO_ANSWER="R2").code == 4
    ran = retry(place, out, "--json")
    assert ran.code == 0, ran.err
    assert {row["attempt"] for row in ran.json["rows"] if row["system"] == "shaky"} == {3}
    assert costs(ran.json) == undisturbed_costs
    assert verdicts(out) == undisturbed
    ran = retry(place, out)
    assert ran.code == 0
    assert "nothing to retry" in ran.err
    assert sorted(path.name for path in out.glob("retry-*")) == ["retry-1", "retry-2"]
    assert run(place, out, "--overwrite").code == 0
    assert not list(out.glob("retry-*"))


def test_a_retry_that_was_killed_goes_on(
    place: Path, undisturbed: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    assert run(place, out, NO_ANSWER="R2").code == 4
    unjudged = egostream("scores", out, "--json").json["unjudged"]
    monkeypatch.setenv("PYTHONPATH", with_place(place))
    monkeypatch.setenv("HANGS_AT", "1")
    with started("retry", out, cwd=tmp_path) as process:
        wait_for(lambda: has(out / "retry-1", "deltas"), process)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    monkeypatch.delenv("HANGS_AT")
    assert egostream("scores", out, "--json").json["unjudged"] == unjudged
    ran = retry(place, out)
    assert ran.code == 0, ran.err
    assert verdicts(out) == undisturbed
    assert [path.name for path in out.glob("retry-*")] == ["retry-1"]


def test_what_can_not_be_retried_says_why(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run(place, out, NO_ANSWER="R2").code == 4
    other = tmp_path / "other"
    write_release(read_dataset("synthetic:seed=4,wearers=2,segments_per_day=6,anchors_per_day=3"), other)
    ran = retry(place, out, "--data", other)
    assert ran.code == 2
    assert "another run than that in" in ran.err
    assert "dataset '" in ran.err
    assert retry(place, out, NO_ANSWER="R2").code == 4
    ran = retry(place, out / "retry-1")
    assert (ran.code, "is a retry itself" in one_line(ran)) == (2, True)
    shared = tmp_path / "shared"
    assert run(place, shared, "--isolation", "shared", NO_ANSWER="R2").code == 4
    ran = retry(place, shared)
    assert (ran.code, "isolation shared" in one_line(ran)) == (2, True)


def test_a_run_that_has_not_ended_is_gone_on_with_first(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with started(
        "run", "--data", "synthetic:", "--system", "null", "--rate", "60", "--out", out, cwd=tmp_path
    ) as process:
        wait_for(lambda: has(out, "observations"), process)
    ran = egostream("retry", out)
    assert (ran.code, "has not ended: go on with it first" in one_line(ran)) == (2, True)


def test_a_run_of_which_nobody_noted_how_it_was_begun_is_not_retried(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run(place, out, NO_ANSWER="R1").code == 4
    log = retry(place, out / "log.db")
    (out / "run.json").unlink()
    folder = retry(place, out)
    for ran in (log, folder):
        assert ran.code == 2
        assert "retry the folder that `egostream run` made" in one_line(ran)


def test_a_retry_holds_the_canaries_that_lie_in_what_it_replays(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run(place, out, "--canaries", 60, NO_ANSWER_UNTIL="4").code == 4
    ran = retry(place, out)
    assert ran.code == 0, ran.err
    published = egostream("tap", out / "retry-1", "observations", "--json", "-q").json_lines
    marked = sum("canary" in event.get("text", "") for event in published)
    assert 0 < marked < 60
    assert egostream("audit", out / "retry-1", "--json").json["canaries"] == marked
