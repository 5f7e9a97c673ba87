"""What can't be used is one line and exit code 2, a bug one line and 1; Ctrl-C is 130 and loses nothing."""

from __future__ import annotations

import os
import pty
import re
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import click
import pytest

from simulator.cli import common
from simulator.errors import ConfigError, StallError
from tests.cli.helpers import (
    DEADLINE_S,
    SCRIPT,
    egostream,
    environment,
    has,
    interrupt,
    one_line,
    started,
    wait_for,
)
from tests.conftest import ROOT

TINY = "synthetic:wearers=1,segments_per_day=2,anchors_per_day=1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("no-such-command", "No such command 'no-such-command'"),
        ("--no-such-option", "--no-such-option"),
        ("inspect nowhere", "nowhere: no such folder"),
        ("inspect empty", "it is empty"),
        ("inspect file.txt", "is a file"),
        ("inspect broken", "DAY1.json:2: not JSON"),
        ("inspect binary", "not UTF-8"),
        ("inspect synthetic:cats=3", "no option 'cats'; the options are seed,"),
        ("run --system null --out r", "Missing option '--data'"),
        (
            f"load null --data {TINY} --rate 1 --out r --call-timeout nan",
            "'--call-timeout': nan is no number",
        ),
        (f"load null --data {TINY} --rate 1 --out r --linger nan", "'--linger': nan is no number"),
        (f"run --data {TINY} --out r", "no system: name at least one with --system"),
        (f"run --data {TINY} --system remember --out r", "there are null, oracle, full_context, rag_raw"),
        (f"run --data {TINY} --system no.module:Class --out r", "can't import 'no.module'"),
        (f"run --data {TINY} --system rag_raw:colour=red --out r", "no option 'colour'"),
        (f"run --data {TINY} --system null --system null --out r", "two systems are called null"),
        ("run --data nowhere --system null --out r", "nowhere: no such folder"),
        ("run --data empty --system null --out r", "it is empty"),
        (f"run --data {TINY} --system null --out file.txt", "file.txt"),
        (f"run --data {TINY} --system null --out r --rate 0", "it must be above 0"),
        (f"run --data {TINY} --system null --out r --stream NOBODY", "no stream NOBODY; there is W01_ADA"),
        ("scores nowhere", "no run at nowhere"),
        ("scores empty", "no run at empty"),
        ("tap empty observations", "no run at empty"),
        ("tap empty thoughts", "'thoughts' is not one of 'observations', 'deltas'"),
        ("tap empty observations --where metric", "'metric' is no filter"),
        ("tap empty observations --grep (", "no regular expression"),
        ("tap empty observations --from yesterday", "'yesterday' is no event time"),
        ("tap empty observations --last 2 -n 3", "-n 3 is more than --last 2"),
        (
            f"replay --data {TINY} --out r --start DAY3",
            "there is W01_ADA from DAY1 09:00:00 to DAY1 09:10:00",
        ),
        (f"replay --data {TINY} --out r --start DAY3 --end DAY2", "is not before"),
        (f"replay --data {TINY} --out r --rate fast", "'fast' is no rate"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_code_2(tmp_path: Path, arguments: str, words: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("nothing\n")
    for name, content in (("broken", b'{"segments":\n[}'), ("binary", b"\xff\xfe\x00")):
        day = tmp_path / name / "segments" / "A9_NOBODY" / "DAY1.json"
        day.parent.mkdir(parents=True)
        day.write_bytes(content)
    ran = egostream(*arguments.split(), cwd=tmp_path)
    assert ran.code == 2
    line = one_line(ran)
    assert line.startswith("egostream")
    assert words in line
    assert not (tmp_path / "r" / "scores.json").exists()


@pytest.mark.parametrize(
    "command",
    [
        "systems {}",
        "systems check {}",
        f"run --data {TINY} --system {{}} --out r --dry-run",
        f"run --data {TINY} --system {{}} --out r",
        f"worker replayer --data {TINY} --system {{}} --out r --log r.db",
    ],
)
def test_an_option_that_one_s_own_class_does_not_take_is_refused_at_once(
    tmp_path: Path, command: str
) -> None:
    page = (ROOT / "docs" / "your-memory.md").read_text()
    (tmp_path / "my_memory.py").write_text(page.split("```python my_memory.py\n")[1].split("```")[0])
    ran = egostream(*command.format("mine=my_memory:SharedWords:lest=3").split(), cwd=tmp_path)
    assert ran.code == 2
    assert one_line(ran).endswith("mine: my_memory:SharedWords has no option 'lest': there are least")
    assert not (tmp_path / "r").exists()


def test_a_damaged_log_is_one_line_and_exit_code_2(run_folder: Path, tmp_path: Path) -> None:
    content = bytearray((run_folder / "log.db").read_bytes())
    content[4096 * 2 :] = b"\xa5" * (len(content) - 4096 * 2)
    (tmp_path / "log.db").write_bytes(content)
    (tmp_path / "letter.txt").write_text("Dear all, this is no log at all.\n" * 100)
    for arguments in (("scores", tmp_path), ("tap", tmp_path / "letter.txt", "observations")):
        ran = egostream(*arguments)
        assert ran.code == 2
        assert str(tmp_path) in one_line(ran)


@pytest.mark.parametrize("change", ["SET data = zeroblob(100)", "SET data = substr(data, 1, 50)", None])
def test_a_log_with_a_damaged_chunk_is_one_line_and_exit_code_2(
    run_folder: Path, tmp_path: Path, change: str | None
) -> None:
    log = tmp_path / "log.db"
    with (
        closing(sqlite3.connect(run_folder / "log.db")) as source,
        closing(sqlite3.connect(log)) as copy,
    ):
        source.backup(copy)
        (table,) = copy.execute(
            "SELECT 'chunks_' || id FROM partitions WHERE topic LIKE '%.verdicts' AND end_offset > 0"
        ).fetchone()
        copy.execute(f"UPDATE {table} {change}" if change else f"DELETE FROM {table}")
        copy.commit()
    for command in ("audit", "scores"):
        ran = egostream(command, "-q", tmp_path)
        assert ran.code == 2
        assert "is damaged" in one_line(ran)


def test_a_wrong_call_says_where_help_is(tmp_path: Path) -> None:
    line = one_line(egostream("tap", tmp_path))
    assert line.startswith(
        "egostream tap: error: Missing argument 'TOPIC'. Choose from: observations, deltas,"
    )
    assert line.endswith("(see `egostream tap --help`)")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("no\nsuch thing"), 2, "egostream: error: no such thing"),
        (StallError("waits"), 1, "egostream: error: waits"),
        (click.ClickException("unclear"), 1, "Error: unclear"),
        (
            OSError(28, "No space left on device", "/x"),
            1,
            "egostream: error: [Errno 28] No space left on device: '/x'",
        ),
        (
            ExceptionGroup("several", [ValueError("second"), ConfigError("first")]),
            2,
            "egostream: error: first",
        ),
        (
            ExceptionGroup("nested", [ExceptionGroup("deeper", [KeyError("key")])]),
            1,
            "egostream: bug: KeyError: 'key' (run again with --log-level debug for the traceback)",
        ),
    ],
)
def test_errors_are_one_line(
    capsys: pytest.CaptureFixture[str], error: Exception, code: int, line: str
) -> None:
    common.configure_logging("warning", as_json=False)
    assert common.fail(error) == code
    assert capsys.readouterr() == ("", f"{line}\n")


@pytest.mark.parametrize("as_json", [False, True])
def test_the_traceback_of_a_bug_is_logged_at_debug(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    common.configure_logging("debug", as_json=as_json)
    with pytest.raises(ZeroDivisionError) as raised:
        1 / 0  # noqa: B018  # for its traceback
    assert common.fail(raised.value) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "egostream: bug: ZeroDivisionError: division by zero" in shown


SLOW = """
import anyio

from adapters.systems.null import NullMemory


class Slow(NullMemory):
    async def ingest(self, segment):
        if segment.segment >= 8:
            await anyio.sleep(300)
        return await super().ingest(segment)
"""


def test_ctrl_c_during_a_run_keeps_what_was_done(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    arguments = ("--data", "synthetic:wearers=1", "--system", "slow:Slow", "--out", "r")
    with started("run", *arguments, cwd=tmp_path) as process:
        wait_for(lambda: has(tmp_path / "r", "verdicts", "metric=fur"), process)
        ran = interrupt(process)
    assert ran.code == 130
    assert (
        ran.err.splitlines()[-1] == "egostream: stopped; what was done stays: `egostream scores r` reads it"
    )
    assert "Traceback" not in ran.err
    scores = egostream("scores", "r", cwd=tmp_path)
    assert scores.code == 4
    unjudged, not_ended, *_ = scores.out.splitlines()
    assert "trajectories unjudged" in unjudged
    assert "has not ended" in not_ended
    rates = {rate["metric"]: rate for rate in egostream("scores", "r", "--json", cwd=tmp_path).json["scores"]}
    assert rates["fur"]["judged"] > 0
    assert rates["fur"]["unjudged"] > 0
    (tmp_path / "slow.py").write_text(SLOW.replace("300", "0"))
    again = egostream("run", *arguments, "-q", cwd=tmp_path)  # the same command goes on from there
    assert again.code == 0, again.err
    assert "every metric judged" in again.out


def test_a_run_that_goes_on_is_not_replaced(tmp_path: Path) -> None:
    arguments = ("--data", TINY, "--system", "null", "--out", "r")
    with started("run", *arguments, "--rate", 1, cwd=tmp_path) as process:
        wait_for(lambda: has(tmp_path / "r", "observations"), process)
        ran = egostream("run", *arguments, "--overwrite", cwd=tmp_path)
        assert ran.code == 2
        assert one_line(ran) == (
            f"egostream: error: a run goes on in r (process {process.pid}): stop it first, or choose another --out"
        )
    assert egostream("run", *arguments, "--overwrite", "-q", cwd=tmp_path).code == 0  # that one was killed


def test_ctrl_c_during_a_replay(tmp_path: Path) -> None:
    with started("replay", "--data", "synthetic:wearers=1", "--out", "r", cwd=tmp_path) as process:
        wait_for(lambda: has(tmp_path / "r", "observations"), process)
        ran = interrupt(process)
    assert (ran.code, ran.out) == (130, "")
    assert ran.err.splitlines()[-1] == "egostream: stopped; what was published is in r/log.db"
    assert "nothing to score" in egostream("scores", "r", cwd=tmp_path).out


def test_ctrl_c_ends_a_tap_that_follows(run_folder: Path, tmp_path: Path) -> None:
    with started("tap", run_folder, "dead", "--follow", cwd=tmp_path) as process:
        assert process.stderr is not None
        assert "waiting for more" in process.stderr.readline()
        ran = interrupt(process)
    assert (ran.code, ran.out) == (130, "")
    assert ran.err == "egostream: stopped; nothing to print from dead: there is no record there\n"


def test_a_terminal_gets_a_bar_with_what_is_left(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [SCRIPT, "replay", "--data", "synthetic:wearers=1", "--rate", "60", "--out", tmp_path / "r"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**environment(), "TERM": "xterm"},
    ) as process:
        os.close(theirs)
        shown = b""
        while not re.search(rb"DAY1 09:\d\d:\d\d.* left", shown):
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        try:
            while more := os.read(ours, 4096):
                shown += more
        except OSError:  # how Linux says that nobody writes to a terminal any more
            pass
        assert process.wait(DEADLINE_S) == 130
    os.close(ours)
    text = shown.decode()
    assert "replaying" in text
    assert "━" in text
    assert "egostream: stopped" in text
