"""Folders that go with their process, however it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from simulator.errors import ConfigError
from simulator.scratch import scratch_folder, user_base
from tests.workers.fleet import environment

HOLD = """
import anyio, pathlib, sys
from simulator.scratch import scratch_folder

async def main():
    async with scratch_folder(pathlib.Path(sys.argv[1])) as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "file").write_text("kept")
        print(folder, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


def hold(base: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process with a folder in `base`."""
    command = [sys.executable, "-c", HOLD, str(base)]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_left_is_swept_out_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    base = tmp_path / "run" / "memories"
    dead, left = hold(base)
    alive, held = hold(base)
    third = None
    try:
        assert left.parent == held.parent == base
        dead.kill()
        dead.wait()
        assert (left / "deep" / "file").exists()
        third, _ = hold(base)
        assert not left.exists()
        assert (held / "deep" / "file").read_text() == "kept"
    finally:
        for process in (dead, alive, third):
            if process is not None:
                process.kill()
                process.wait()
                assert process.stdout is not None
                process.stdout.close()


async def test_nothing_is_left_at_the_end(tmp_path: Path) -> None:
    base = tmp_path / "new" / "run" / "memories"
    async with scratch_folder(base) as first:
        (first / "file").touch()
        async with scratch_folder(base) as second:
            assert first != second
        assert (first / "file").exists()
        assert not second.exists()
    assert not (tmp_path / "new").exists()

    base.parent.mkdir(parents=True)
    async with scratch_folder(base):
        (base.parent / "log.db").touch()
    assert [path.name for path in base.parent.iterdir()] == ["log.db"]


async def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    async with scratch_folder(tmp_path):
        pass
    assert (tmp_path / "theirs").exists()


async def test_folder_that_can_t_be_made_is_an_error_of_the_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="can't be used for folders of memories: Not a directory"):
        async with scratch_folder(tmp_path / "file" / "memories"):
            pass


def test_base_that_somebody_else_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    base = user_base()
    assert base.parent == tmp_path
    base.symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="belongs to somebody else"):
        user_base()
