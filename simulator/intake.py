"""From log records to events: decoding, dead letters, and reading a topic to its end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import get_args

import anyio

from simulator.errors import DecodeError
from simulator.events import AnyEvent, DeadLetterEvent, Event, Subject, decode, encode, kind_of
from simulator.log.protocol import Log, StoredRecord, TopicPartition
from simulator.topics import TOPIC_OF_KIND, Topics

_TOPIC_ENDS = {cls: f".{TOPIC_OF_KIND[kind_of(cls)]}" for cls in get_args(AnyEvent)}

FOLLOW_GAP_S = 0.02
"""Whoever follows a topic and is waited for by nobody reads it only so often: woken for each record, those that follow
the control topic took more than the roles themselves."""


def check_readable(event: Event) -> None:
    """Raise DecodeError unless the event, once written, can be read again. Structs are not checked when they
    are made: wrong types, NaN and lone surrogates in what came from outside show only here, and would
    otherwise reach the log as a record that nobody can decode."""
    try:
        value = encode(event)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:  # all that encoding can raise
        raise DecodeError(str(error)) from error
    decode(value)


def dead_letter(run: str, record: StoredRecord, reason: str) -> DeadLetterEvent:
    """The whole of a record that can't be used. The id names its place, so that several readers of one topic
    bury the same record under the same id."""
    return DeadLetterEvent(
        id=f"dead/{record.topic}/{record.partition}/{record.offset}",
        run=run,
        event_time_us=record.timestamp_ms * 1000,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        reason=reason,
        value=record.value,
        key=record.key,
    )


def decode_records(
    run: str, records: Iterable[StoredRecord]
) -> tuple[list[tuple[AnyEvent, StoredRecord]], list[DeadLetterEvent]]:
    """Events with their records in order, and a dead letter for each record that is no event of this run."""
    events: list[tuple[AnyEvent, StoredRecord]] = []
    dead: list[DeadLetterEvent] = []
    for record in records:
        try:
            event = decode(record.value)
        except DecodeError as error:
            dead.append(dead_letter(run, record, str(error)))
            continue
        if event.run != run:
            dead.append(dead_letter(run, record, f"belongs to run {event.run!r}, not to {run!r}"))
        elif not record.topic.endswith(_TOPIC_ENDS[type(event)]):
            dead.append(dead_letter(run, record, f"a {kind_of(event)} does not belong on {record.topic}"))
        else:
            events.append((event, record))
    return events, dead


async def read_to_end(
    log: Log, topics: Sequence[str], *, max_records: int = 2000
) -> AsyncGenerator[StoredRecord, None]:
    """Every record that the topics hold now, from the first; ends there, whatever is appended meanwhile."""
    ends = {tp: end for tp, end in (await log.end_offsets(topics)).items() if end > 0}
    if not ends:
        return
    async with log.subscribe(topics) as subscription:
        while ends:
            for record in await subscription.poll(max_records=max_records, timeout_s=1.0):
                if record.offset < ends.get(TopicPartition(record.topic, record.partition), 0):
                    yield record
            # By position and not by the last record seen: the last offsets may hold no record (Kafka keeps
            # the marks of transactions there).
            for tp in [tp for tp, end in ends.items() if await subscription.position(tp) >= end]:
                del ends[tp]


async def read_events(
    log: Log, run: str, topics: Sequence[str]
) -> AsyncGenerator[tuple[AnyEvent, StoredRecord], None]:
    """Every event that the topics of a run hold now, with its record, as `read_to_end`. What is no event of the run is
    passed over: it is buried by whoever acts on it."""
    async with aclosing(
        read_to_end(log, topics)
    ) as records:  # whoever stops early lets go of the subscription
        async for record in records:
            for found in decode_records(run, [record])[0]:
                yield found


async def followed(
    log: Log, run: str, topics: Sequence[str]
) -> AsyncGenerator[tuple[AnyEvent, StoredRecord], None]:
    """Every event of the topics, as `read_events`, and what comes then, without end: for those that nobody waits for,
    and so only each `FOLLOW_GAP_S`."""
    async with log.subscribe(topics) as subscription:
        while True:
            for found in decode_records(run, await subscription.poll())[0]:
                yield found
            await anyio.sleep(FOLLOW_GAP_S)


async def read_subjects(log: Log, run: str) -> list[Subject]:
    """The anchors or probes of a run: for judges, the conductor and privileged systems."""
    events = read_events(log, run, [Topics.of(run).anchors])
    return [event async for event, _ in events if isinstance(event, Subject)]
