from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from consumers import directories
from consumers.directories import CopyError, copy_directory


async def test_copy_and_original_share_nothing(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "a" / "b").mkdir(parents=True)
    (source / "empty").mkdir()
    (source / "a" / "b" / "file").write_text("one")
    (source / "link").symlink_to(source / "a" / "b" / "file")
    (source / "folder").symlink_to(source / "a")
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(source / "socket"))
    await copy_directory(source, target)
    assert sorted(p.name for p in target.iterdir()) == ["a", "empty", "folder", "link"]

    for name in ("a/b/file", "link", "folder/b/file"):
        assert (target / name).read_text() == "one"
        with (target / name).open("a") as file:
            file.write(" two")
    assert (source / "a" / "b" / "file").read_text() == "one"
    with (source / "a" / "b" / "file").open("a") as file:
        file.write(" three")
    assert (target / "link").read_text() == "one two"


async def test_error_names_the_file_within_the_folder_and_why(tmp_path: Path) -> None:
    with pytest.raises(CopyError, match=r"^the folder: No such file or directory$"):
        await copy_directory(tmp_path / "nothing", tmp_path / "target")
    (tmp_path / "source" / "deep").mkdir(parents=True)
    (tmp_path / "source" / "deep" / "link").symlink_to("nowhere")
    with pytest.raises(CopyError, match=r"^deep/link: No such file or directory$"):
        await copy_directory(tmp_path / "source", tmp_path / "second")
    (tmp_path / "source" / "deep" / "link").unlink()
    (tmp_path / "source" / "deep" / "link").symlink_to(".")
    with pytest.raises(CopyError, match="Too many levels of symbolic links"):
        await copy_directory(tmp_path / "source", tmp_path / "third")


async def test_cancelled_copy_stops_at_the_file_it_is_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(20):
        (source / str(number)).write_text("x")
    copied: list[Path] = []
    began, copying, done = threading.Event(), threading.Event(), threading.Event()
    whole = directories._copy

    def slow(source: Path, target: Path) -> None:
        copied.append(source)
        began.set()
        assert copying.wait(60)

    def watched(*arguments: Any) -> None:
        whole(*arguments)
        done.set()

    monkeypatch.setattr(directories.shutil, "copy2", slow)
    monkeypatch.setattr(directories, "_copy", watched)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(copy_directory, source, tmp_path / "target")
        assert await anyio.to_thread.run_sync(began.wait, 60)
        tasks.cancel_scope.cancel()
    copying.set()
    assert await anyio.to_thread.run_sync(done.wait, 60)
    assert len(copied) == 1
