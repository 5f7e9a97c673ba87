"""What the Kafka log must do beyond the conformance suite, on a real broker: batches, marks, zombies, deaths,
settings, and clear words."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.produce import ProduceRequest
from anyio import to_thread
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from dev.kafka.brokers import Cluster
from simulator.errors import FencedError, LogError, TopicError
from simulator.intake import read_to_end
from simulator.log import Record, TopicPartition, open_log
from simulator.log.kafka import KafkaLog
from simulator.log.kafka_config import parse_kafka_url
from simulator.log.kafka_producer import BATCH_BYTES
from simulator.log.kafka_subscription import KafkaSubscription
from simulator.log.kafka_transactions import Transactor
from simulator.outbox import positions_after
from tests.kafka.helpers import give_up_after, url
from tests.log.helpers import DEADLINE_S, held, places, read, record, settle, values

ROOT = Path(__file__).resolve().parents[2]
ZERO = TopicPartition("a", 0)


@asynccontextmanager
async def worker(role: str, place: str) -> AsyncIterator[tuple[Process, Callable[[], Awaitable[str]]]]:
    command = [sys.executable, "-m", "tests.kafka.worker", role, place]
    with anyio.fail_after(DEADLINE_S):
        async with await anyio.open_process(command, cwd=ROOT, stderr=None) as process:
            assert process.stdout is not None
            try:
                output = BufferedByteReceiveStream(process.stdout)

                async def line() -> str:
                    return (await output.receive_until(b"\n", 1000)).decode()

                assert await line() == "ready"
                yield process, line
            finally:
                with suppress(ProcessLookupError):
                    process.kill()


# --- appending --------------------------------------------------------------------------------------------


async def test_an_append_of_many_batches_keeps_the_order_of_each_partition(kafka_broker: Cluster) -> None:
    batch = [record("a", b"%06d" % i + bytes(1000), partition=i % 2) for i in range(6000)]
    assert len(batch) * 1000 > 2 * 2 * BATCH_BYTES
    async with open_log(url(kafka_broker)) as log:
        await log.create_topics({"a": 2})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(log.append, batch)
            tasks.start_soon(log.append, [record("a", b"other", partition=1)])
        found = await held(log, "a")
    assert [int(v[:6]) for v in found[0]] == list(range(0, 6000, 2))
    assert [int(v[:6]) for v in found[1] if v != b"other"] == list(range(1, 6000, 2))
    assert found[1][0] == b"other" or found[1][-1] == b"other"  # never within another call's records


async def test_large_records_are_kept_and_too_large_ones_append_nothing(kafka_broker: Cluster) -> None:
    async with open_log(url(kafka_broker)) as log:
        await log.create_topics({"a": 1})
        with pytest.raises(LogError, match=r"9,000,001 bytes.*larger"):
            await log.append([record("a", b"small"), record("a", bytes(9_000_000))])
        assert await log.end_offsets(["a"]) == {ZERO: 0}
        await log.append([record("a", bytes(5_000_000)), record("a", b"small")])
        assert [len(v) for v in (await held(log, "a"))[0]] == [5_000_000, 5]


async def test_wrong_types_append_nothing_and_spoil_no_other_call(kafka_broker: Cluster) -> None:
    wrong = Record("a", b"k", "text", 0)  # type: ignore[arg-type]  # the point of this test
    refused = []
    async with open_log(url(kafka_broker)) as log:
        await log.create_topics({"a": 1})

        async def append(i: int) -> None:
            try:
                await log.append([record("a", b"%d" % i)] + ([wrong] if i % 3 == 0 else []))
            except LogError as error:
                refused.append((i, "wrong types" in str(error)))

        async with anyio.create_task_group() as tasks:
            for i in range(9):
                tasks.start_soon(append, i)
        assert sorted(refused) == [(0, True), (3, True), (6, True)]
        assert sorted((await held(log, "a"))[0]) == [b"1", b"2", b"4", b"5", b"7", b"8"]


async def test_a_cancelled_append_is_whole_or_absent_and_the_next_works(kafka_broker: Cluster) -> None:
    async with open_log(url(kafka_broker)) as log:
        await log.create_topics({"a": 1})
        for i in range(20):
            with anyio.move_on_after(0.0005 * i):
                await log.append([record("a", b"%d.%d" % (i, j)) for j in range(50)])
        await log.append([record("a", b"last")])
        found = (await held(log, "a"))[0]
    assert found.pop() == b"last"
    calls = [int(v.split(b".")[0]) for v in found]
    assert len(found) == 50 * len(set(calls))
    assert calls == sorted(calls)


# --- marks of transactions --------------------------------------------------------------------------------


async def test_positions_step_over_marks_and_aborted_records(kafka_broker: Cluster) -> None:
    out = TopicPartition("out", 0)
    async with KafkaLog.open(url(kafka_broker)) as log:
        await log.create_topics({"a": 1, "out": 1})
        await log.append([record("a", b"%d" % i) for i in range(6)])
        async with log.subscribe(["a"], group="g") as subscription:
            for i in range(5):
                await subscription.transact([record("out", b"%d" % i)], {ZERO: i})
        await abort(log, "out")
        end = (await log.end_offsets(["out"]))[out]
        assert end == 5 * 2 + 2
        assert await held(log, "out") == {0: [b"0", b"1", b"2", b"3", b"4"]}
        async with log.subscribe(["out"]) as subscription:
            got = []
            while await subscription.position(out) < end:
                got += await subscription.poll(max_records=2, timeout_s=DEADLINE_S if len(got) < 5 else 1)
            assert values(got) == [b"0", b"1", b"2", b"3", b"4"]
            await log.append([record("out", b"next")])
            assert values(await read(subscription, 1)) == [b"next"]
        async with log.subscribe(["out"], start="latest") as subscription:
            assert await subscription.position(out) == end + 1


async def test_seek_by_time_is_exact_although_marks_carry_wall_time(kafka_broker: Cluster) -> None:
    stamps = [10, 30, 20, 50, 40]
    async with open_log(url(kafka_broker)) as log:
        await log.create_topics({"a": 1, "out": 1})
        await log.append([record("a", b"")])
        async with log.subscribe(["a"], group="g") as subscription:
            for stamp in stamps:
                await subscription.transact([record("out", b"%d" % stamp, stamp=stamp)], {ZERO: 1})
        got = [r async for r in read_to_end(log, ["out"])]
        for wanted in range(0, 65, 5):
            expected = next((r.offset for r in got if r.timestamp_ms >= wanted), None)
            assert await log.offset_for_time(TopicPartition("out", 0), wanted) == expected


async def abort(log: KafkaLog, topic: str) -> None:
    """Write a record in a transaction, and let a new owner abort it."""
    owners = [Transactor(log.config, log.options, log.admin, "aborts", 0) for _ in range(2)]
    await owners[0].start()
    producer = owners[0]._producer
    await producer.begin_transaction()
    await producer.send_and_wait(log.config.prefix + topic, b"aborted", partition=0)
    await owners[1].start()
    for owner in owners:
        await owner.aclose()


# --- zombies ----------------------------------------------------------------------------------------------


async def test_a_member_that_another_has_fenced_writes_nothing_and_starts_again(
    kafka_broker: Cluster,
) -> None:
    async with KafkaLog.open(url(kafka_broker)) as log:
        await log.create_topics({"a": 1, "out": 1})
        await log.append([record("a", b"%d" % i) for i in range(4)])
        async with log.subscribe(["a"], group="g") as subscription:
            assert isinstance(subscription, KafkaSubscription)
            await read(subscription, 4)
            await subscription.transact([record("out", b"before")], {ZERO: 1})
            other = Transactor(log.config, log.options, log.admin, "g", 0)
            await other.start()
            with pytest.raises(FencedError):
                await subscription.transact([record("out", b"zombie")], {ZERO: 4})
            with pytest.raises(FencedError):
                await subscription.commit()
            await other.run({TopicPartition("out", 0): [record("out", b"other's")]}, {ZERO: 2})
            await other.aclose()
            # The group knows no other member, so it is this one's again: from what is committed
            assert [r.offset for r in await read(subscription, 2)] == [2, 3]
            await subscription.transact([record("out", b"after")], {ZERO: 4})
        assert await held(log, "out") == {0: [b"before", b"other's", b"after"]}
        assert await log.committed("g", ["a"]) == {ZERO: 4}


async def test_a_process_that_slept_through_its_loss_is_fenced(kafka_broker: Cluster) -> None:
    place = url(kafka_broker)
    async with open_log(place) as log:
        await log.create_topics({"in": 1, "out": 1})
        await log.append([record("in", b"%d" % i) for i in range(3)])
        async with worker("zombie", place) as (process, said):
            process.send_signal(signal.SIGSTOP)
            async with log.subscribe(
                ["in"], group="copy"
            ) as subscription:  # joins when the sleeper is given up
                got = await read(subscription, 3)
                await subscription.transact([record("out", b"alive")], positions_after(got))
                process.send_signal(signal.SIGCONT)
                assert process.stdin is not None
                await process.stdin.send(b"\n")
                assert await said() == "fenced"
        assert await held(log, "out") == {0: [b"alive"]}
        assert await log.committed("copy", ["in"]) == {TopicPartition("in", 0): 3}


async def test_consumers_that_are_killed_lose_and_repeat_nothing(kafka_broker: Cluster) -> None:
    place = url(kafka_broker)
    async with open_log(place) as log:
        await log.create_topics({"in": 2, "out": 2})
        await log.append([record("in", b"%d" % i, partition=i % 2) for i in range(400)])
        for lives in range(3):
            async with worker("copy_some", place) as (process, said):
                for _ in range(4 + lives):
                    assert "copied" in await said()
                process.kill()
        async with worker("copy", place), log.subscribe(["out"]) as subscription:
            got = await read(subscription, 400)
            assert await subscription.poll(timeout_s=0.5) == []
        for partition in (0, 1):
            mine = [int(r.value) for r in got if r.partition == partition]
            assert mine == list(range(partition, 400, 2))


# --- groups -----------------------------------------------------------------------------------------------


async def test_a_kept_partition_goes_on_where_it_was_and_may_be_written_for(kafka_broker: Cluster) -> None:
    everything = places(a=2)
    async with open_log(url(kafka_broker)) as log:
        await log.create_topics({"a": 2, "out": 2})
        await log.append([record("a", b"%d" % i, partition=i % 2) for i in range(20)])
        async with log.subscribe(["a"], group="g") as first:
            await read(first, 20)
            async with log.subscribe(["a"], group="g") as second:
                (kept,) = everything - second.assignment
                # `first` has not polled: it is fenced for what it lost, and for nothing else
                out = record("out", b"x", partition=kept.partition)
                await first.transact([out], {kept: 10})
                with pytest.raises(FencedError):
                    await first.transact([out], dict.fromkeys(everything, 10))
                got = await settle([first, second], everything)
                assert {(r.topic, r.partition) for r in got} <= second.assignment
                assert await first.position(kept) == 10
        assert await held(log, "out") == {kept.partition: [b"x"]}


async def test_one_transaction_for_each_partition_number_and_riders_first(kafka_broker: Cluster) -> None:
    async with open_log(url(kafka_broker)) as log:
        await log.create_topics({"a": 3, "out": 3, "control": 1})
        await log.append([record("a", b"x", partition=p) for p in range(3)])
        async with log.subscribe(["a"], group="g") as subscription:
            got = await read(subscription, 3)
            out = [record("out", b"%d" % p, partition=p) for p in range(3)]
            await subscription.transact([*out, record("control", b"c")], positions_after(got))
            await subscription.transact([record("control", b"alone")], {})
        assert await held(log, "out") == {0: [b"0"], 1: [b"1"], 2: [b"2"]}
        assert await held(log, "control") == {0: [b"c", b"alone"]}
        assert await log.committed("g", ["a"]) == dict.fromkeys(places(a=3), 1)


async def test_a_cancelled_transaction_is_ended(kafka_broker: Cluster) -> None:
    async with open_log(url(kafka_broker)) as log:
        await log.create_topics({"a": 1, "out": 1})
        async with log.subscribe(["a"], group="g") as subscription:
            for i in range(8):
                with anyio.move_on_after(0.008 * i):
                    await subscription.transact([record("out", b"%d" % i)], {ZERO: i})
            await subscription.transact([record("out", b"last")], {ZERO: 9})
        found = (await held(log, "out"))[0]  # ends only if no transaction is open
        assert found[-1] == b"last"
        assert len(found) == len(set(found))


# --- topics -----------------------------------------------------------------------------------------------


async def test_topics_get_the_settings_of_a_replay_and_others_are_refused(kafka_broker: Cluster) -> None:
    place = url(kafka_broker)
    prefix = parse_kafka_url(place).prefix
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)
    await admin.start()
    try:
        week = {"retention.ms": "604800000"}
        await admin.create_topics([NewTopic(prefix + "short", 1, 1, topic_configs=week)])
    finally:
        await admin.close()
    async with open_log(place) as log:
        await log.create_topics({"fine": 2})
        await log.create_topics({"fine": 2})
        with pytest.raises(TopicError, match=r"'short'.*retention\.ms=604800000.*needs -1"):
            await log.create_topics({"short": 1, "other": 1})
        assert await log.topics() == {"fine": 2, "short": 1}


async def test_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again(
    kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_log(url(kafka_broker)) as log:
        assert isinstance(log, KafkaLog)
        await log.create_topics({"a": 1})
        client = log.admin._client
        describe, asked = client.describe_configs, 0

        async def ahead_of_the_broker(resources: list[ConfigResource]) -> list[Any]:
            nonlocal asked
            asked += 1
            if asked < 4:  # the broker's own words for a topic that it does not know
                resources = [ConfigResource(ConfigResourceType.TOPIC, f"not-yet-{r.name}") for r in resources]
            return list(await describe(resources))

        monkeypatch.setattr(client, "describe_configs", ahead_of_the_broker)
        monkeypatch.setattr("simulator.log.kafka_client.UNKNOWN_FOR_S", DEADLINE_S)
        await log.create_topics({"a": 1})
        assert asked == 4
        monkeypatch.setattr("simulator.log.kafka_client.UNKNOWN_FOR_S", 0.2)
        asked = -1_000_000
        with pytest.raises(TopicError, match=r"read the topics' settings.*was it deleted"):
            await log.create_topics({"a": 1})


async def test_too_few_brokers_for_the_replication_is_said(
    kafka_broker: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulator.log.kafka_client.UNKNOWN_FOR_S", 0.2)
    async with open_log(url(kafka_broker, "replication=3")) as log:
        with pytest.raises(TopicError, match=r"127\.0\.0\.1.*'.*a'.*replication"):
            await log.create_topics({"a": 1})


async def test_an_offset_that_is_not_there_is_said(kafka_broker: Cluster) -> None:
    async with open_log(url(kafka_broker)) as log:
        await log.create_topics({"a": 1})
        async with log.subscribe(["a"], start={ZERO: 5}) as subscription:
            with pytest.raises(LogError, match="an offset is not there"):
                await subscription.poll(timeout_s=DEADLINE_S)


async def test_nothing_is_printed_and_nothing_left_open(kafka_broker: Cluster) -> None:
    command = [sys.executable, "-W", "error", "-m", "tests.kafka.worker", "quiet"]
    with anyio.fail_after(DEADLINE_S):
        done = await anyio.run_process([*command, url(kafka_broker)], cwd=ROOT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ready\n", b"")


# --- a broker that dies -----------------------------------------------------------------------------------


async def test_killing_the_broker_loses_doubles_and_reorders_nothing(own_broker: Cluster) -> None:
    total = 3000
    async with open_log(url(own_broker)) as log:
        await log.create_topics({"a": 1, "in": 1, "out": 1})
        await log.append([record("in", b"%d" % i) for i in range(total)])
        joined, copied = anyio.Event(), anyio.Event()
        appended = 0

        async def produce() -> None:
            nonlocal appended
            for i in range(0, total, 10):
                await log.append([record("a", b"%d" % (i + j)) for j in range(10)])
                appended = i + 10

        async def copy() -> None:
            async with log.subscribe(["in"], group="copy") as subscription:
                joined.set()
                done = 0
                while done < total:
                    try:
                        got = await subscription.poll(max_records=100)
                        if got:
                            out = [record("out", r.value) for r in got]
                            await subscription.transact(out, positions_after(got))
                            done = got[-1].offset + 1
                    except FencedError:
                        continue
                copied.set()

        with anyio.fail_after(150):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(produce)
                tasks.start_soon(copy)
                await joined.wait()
                for wanted in (total // 10, total // 2):
                    while appended < wanted:  # noqa: ASYNC110 - a number, and only a test
                        await anyio.sleep(0.01)
                    await to_thread.run_sync(own_broker.kill, 1)
                    await to_thread.run_sync(own_broker.restart, 1)
                await copied.wait()
            assert [int(v) for v in (await held(log, "a"))[0]] == list(range(total))
            assert [int(v) for v in (await held(log, "out"))[0]] == list(range(total))


async def test_a_batch_whose_answer_was_lost_with_the_broker_is_there_once(own_broker: Cluster) -> None:
    async with KafkaLog.open(url(own_broker)) as log:
        await log.create_topics({"a": 2})
        await log.append([record("a", b"first", partition=p) for p in (0, 1)])
        guard = log._appender._guard
        assert guard is not None
        answer = guard._original
        lost = []

        async def lose_answer(node_id: int, request: Any, **options: Any) -> Any:
            response = await answer(node_id, request, **options)
            if isinstance(request, ProduceRequest) and not lost:
                lost.append(response)
                await to_thread.run_sync(own_broker.kill, 1)
                await to_thread.run_sync(own_broker.restart, 1)
                raise KafkaConnectionError("the answer is lost")
            return response

        guard._original = lose_answer
        await log.append([record("a", b"%d" % i) for i in range(100)] + [record("a", b"x", partition=1)])
        await log.append([record("a", b"last", partition=p) for p in (0, 1)])
        assert lost
        assert await held(log, "a") == {
            0: [b"first", *(b"%d" % i for i in range(100)), b"last"],
            1: [b"first", b"x", b"last"],
        }


@pytest.mark.parametrize("group", [None, "g"])
async def test_who_begins_to_read_while_the_broker_is_away_reads_once_it_is_back(
    own_broker: Cluster, group: str | None
) -> None:
    async with open_log(url(own_broker)) as log:
        await log.create_topics({"a": 1})
        await log.append([record("a", b"x")])
        async with log.subscribe(["a"], group="g"):
            pass  # the group's coordinator is known to the brokers, as in a run
        await to_thread.run_sync(own_broker.kill, 1)

        async def come_back() -> None:
            await anyio.sleep(1)
            await to_thread.run_sync(own_broker.restart, 1)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(come_back)
            async with log.subscribe(["a"], group=group) as subscription:
                assert values(await read(subscription, 1)) == [b"x"]


async def test_a_broker_that_went_away_is_one_clear_error(own_broker: Cluster) -> None:
    where = own_broker.bootstrap
    async with open_log(url(own_broker)) as log:
        await log.create_topics({"a": 1})
        await log.append([record("a", b"x")])
        async with log.subscribe(["a"]) as subscription, log.subscribe(["a"], group="g") as member:
            await read(subscription, 1)
            await read(member, 1)
            await to_thread.run_sync(own_broker.kill, 1)
            give_up_after(log, 2000)
            with pytest.raises(LogError, match=rf"{where}: can't append to a: "):
                await log.append([record("a", b"y")])
            with pytest.raises(LogError, match=rf"{where}: can't "):
                await member.transact([record("a", b"z")], {ZERO: 1})
            with pytest.raises(LogError, match=rf"{where}: can't list the topics"):
                await log.topics()
    with pytest.raises(LogError, match=rf"{where} refuses connections"):
        async with open_log(url(own_broker)):
            pass
