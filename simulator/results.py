"""What is read off a run's log, its retries taken in: scores and verdicts, and the files that hold them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio.to_thread
import msgspec

from consumers.audit import Certificate, audit_log
from consumers.score_tables import write_scores
from consumers.scoreboard import Scoreboard
from consumers.scores import Scores
from consumers.tallying import with_retry
from simulator.errors import ConfigError
from simulator.events import DeadLetterEvent, RunStartedEvent, VerdictEvent
from simulator.files import write_whole
from simulator.intake import read_events
from simulator.log.protocol import Log
from simulator.runfolder import AUDIT_NAME, VERDICTS_NAME, open_run, retry_folders
from simulator.topics import Topics


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """A run and its retries that have ended, folded: the scores, the verdicts that they rest on (id → value in the
    log), and the retries' folders."""

    started: RunStartedEvent
    scores: Scores
    verdicts: dict[str, bytes]
    folders: tuple[Path, ...] = ()


async def read_results(log: Log, started: RunStartedEvent, folder: Path | None = None) -> Results:
    """Fold a run, with the retries in its folder if one is given. One that has not ended changes nothing yet. Raises
    ConfigError for what is no retry of this run."""
    board = await fold_board(log, started)
    scores = _scores_of(board)
    verdicts = await read_verdicts(log, started)
    folders: list[Path] = []
    for path in await anyio.to_thread.run_sync(retry_folders, folder) if folder else ():
        async with open_run(path) as (retry_log, retry):
            if retry.identity.get("retry_of") != started.run:
                raise ConfigError(f"{path} is no retry of {started.run}: remove it, or move it elsewhere")
            retry_board = await fold_board(retry_log, retry)
            found = _scores_of(retry_board)
            if not found.ended:
                break
            folders.append(path)
            board.take_retry(retry_board)
            scores = with_retry(scores, found, int(retry.identity["attempt"]), _scores_of(board))
            again = frozenset(retry.only)
            verdicts = [kept for kept in verdicts if kept[0].trajectory not in again]
            verdicts += await read_verdicts(retry_log, retry)
    return Results(
        started=started,
        scores=scores,
        verdicts={event.id: value for event, value in sorted(verdicts, key=_id_of)},
        folders=tuple(folders),
    )


def _id_of(verdict: tuple[VerdictEvent, bytes]) -> str:
    return verdict[0].id


async def audit_run(folder: Path, progress: Callable[[int, int], None] | None = None) -> Certificate:
    """Audit the run in a folder, hold it against the certificate that is there, and write the new one. `progress`:
    records read, and in all. A log that was changed keeps its first certificate."""
    async with open_run(folder) as (log, started):
        certificate = await audit_log(log, started, progress)
    earlier = await anyio.to_thread.run_sync(read_certificate, folder)
    if earlier is not None and (held := certificate.held_against(earlier)) != certificate:
        return held
    content = msgspec.json.format(msgspec.json.encode(certificate)) + b"\n"
    await anyio.to_thread.run_sync(write_whole, folder / AUDIT_NAME, content)
    return certificate


def read_certificate(folder: Path) -> Certificate | None:
    """The certificate in a run's folder, if there is one. Blocking. Raises ConfigError for what is none."""
    path = folder / AUDIT_NAME
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Certificate)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is no certificate: {error}; remove it to audit anew") from error


async def read_verdicts(log: Log, started: RunStartedEvent) -> list[tuple[VerdictEvent, bytes]]:
    """A run's verdicts, decoded and as they are in the log."""
    return [
        (event, record.value)
        async for event, record in read_events(log, started.run, [Topics.of(started.run).verdicts])
        if isinstance(event, VerdictEvent)
    ]


async def fold_scores(log: Log, started: RunStartedEvent) -> Scores:
    """The scores of what the log holds now."""
    return _scores_of(await fold_board(log, started))


def _scores_of(board: Scoreboard) -> Scores:
    scores = board.scores()
    assert scores is not None  # it has seen the event from which `started` was made
    return scores


async def fold_board(log: Log, started: RunStartedEvent) -> Scoreboard:
    """The scoreboard of what the log holds now."""
    topics = Topics.of(started.run)
    board = Scoreboard()
    buried: set[tuple[str, int, int]] = set()
    async for event, record in read_events(log, started.run, [topics.dead]):
        board.feed(event, record.headers)
        if isinstance(event, DeadLetterEvent):
            buried.add((event.topic, event.partition, event.offset))
    others = [topic for topic in topics if topic not in (topics.observations, topics.dead)]
    async for event, record in read_events(log, started.run, others):
        # what is buried can be decoded, and yet is no part of the run: an attached agent wrote it out of place
        if (record.topic, record.partition, record.offset) not in buried:
            board.feed(event, record.headers)
    return board


def write_results(folder: Path, results: Results) -> list[Path]:
    """Write scores, trajectories and, in `verdicts.jsonl`, the verdicts' values as they are in the log, sorted by id,
    one a line: two runs of the same inputs give the same bytes. Each appears whole or not at all. Blocking."""
    verdicts = folder / VERDICTS_NAME
    write_whole(verdicts, b"".join(value + b"\n" for value in results.verdicts.values()))
    return [verdicts, *write_scores(folder, results.scores)]
