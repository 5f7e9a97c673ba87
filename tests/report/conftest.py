"""Small runs of each benchmark by the real command, and their page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.helpers import egostream
from tests.conftest import ROOT
from tests.datasets.test_realmem import assistant, query, session, used, user, write

SYNTHETIC = "synthetic:wearers=1,segments_per_day=6,observations_per_segment=6,anchors_per_day=4"
FLAKY = "shaky=tests.roles.systems:Flaky:share=0.2"


class Runs(NamedTuple):
    """Folders by benchmark, in the page's order; the page; and what --json printed."""

    folders: dict[str, Path]
    page: Path
    shown: dict[str, object]


def evaluate(out: Path, *arguments: object, code: int = 0) -> Path:
    ran = egostream("run", "-q", "--log-level", "error", "--out", out, *arguments, cwd=ROOT)
    assert ran.code == code, ran.err
    return out


def realmem(folder: Path) -> Path:
    """One user who says something new in each session and is asked about two earlier ones."""
    things = ("tea", "chess", "Lisbon", "the piano", "running", "a red bicycle")
    sessions = []
    for number, thing in enumerate(things):
        turns = [user(f"Today I thought of {thing}."), assistant("Noted.")]
        for back in range(1, min(number, 2) + 1):
            about = things[number - back]
            turns += [
                query(f"What did I say of {about}?", f"Q-{number}-{back}"),
                assistant(
                    f"You thought of {about}.", **used([f"u{number - back}"], ("", f"thought of {about}"))
                ),
            ]
        sessions.append(session(number, f"2025-12-{15 + number} (Monday)", *turns))
    return write(folder, *sessions)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    place = tmp_path_factory.mktemp("runs")
    folders = {
        "streammembench": evaluate(
            place / "smb", "--data", SYNTHETIC, "--system", "oracle", "--system", "bm25", "--system", FLAKY, code=4
        ),
        "lifedialbench": evaluate(
            place / "ldb", "--benchmark", "lifedialbench", "--data", "synthetic:seed=1,histories=1,days=4",
            "--asked", "both", "--system", "bm25", "--system", "recency",
        ),
        "realmem": evaluate(
            place / "realmem", "--benchmark", "realmem", "--data", realmem(place), "--system", "recency", "--system",
            "null",
        ),
        "apm": evaluate(
            place / "apm", "--benchmark", "apm", "--data", "examples/apm_tasks.json", "--system", "bm25",
        ),
    }  # fmt: skip
    page = place / "pages" / "all.html"
    ran = egostream("report", *folders.values(), "--out", page, "--json")
    assert ran.code == 0, ran.err
    return Runs(folders, page, ran.json)


def scores_of(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "scores.json").read_text())
    return found
