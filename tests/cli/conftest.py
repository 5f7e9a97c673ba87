"""Small datasets and a finished run, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from producers.datasets import read_dataset, write_release
from tests.cli.helpers import Ran, egostream

SYSTEMS = ("null", "oracle", "bm25=rag_raw:retrieval=bm25")


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two made-up wearers in the StreamMemBench layout: 12 segments of 20 observations, and 6 anchors."""
    path = tmp_path_factory.mktemp("data") / "made_up_v1_en"
    options = "wearers=2,segments_per_day=6,observations_per_segment=20,anchors_per_day=3"
    write_release(read_dataset(f"synthetic:seed=3,{options}"), path)
    return path


@pytest.fixture(scope="session")
def finished(release: Path) -> tuple[Path, Ran]:
    """A finished run of three systems on the release: its folder, and what `run` said."""
    folder = release.parent / "run"
    systems = [word for system in SYSTEMS for word in ("--system", system)]
    return folder, egostream("run", "--data", release, *systems, "--out", folder)


@pytest.fixture(scope="session")
def run_folder(finished: tuple[Path, Ran]) -> Path:
    folder, ran = finished
    assert ran.code == 0, ran.err
    return folder
