"""What every log must do with topics and records: append, read, find a place, wait."""

from __future__ import annotations

import anyio
import pytest
from anyio.abc import TaskStatus

from simulator.errors import TopicError
from simulator.log import Record, TopicPartition
from tests.log.conftest import NewLog
from tests.log.helpers import DEADLINE_S, read, record, values

# --- topics -----------------------------------------------------------------------------------------------


async def test_topics_are_created_once_and_keep_their_partitions(new_log: NewLog) -> None:
    async with new_log() as log:
        await log.create_topics({"a": 3, "b": 1})
        await log.create_topics({"a": 3, "c": 2})
        assert await log.topics() == {"a": 3, "b": 1, "c": 2}
        with pytest.raises(TopicError, match=r"[.']a'"):
            await log.create_topics({"a": 4})
        assert await log.topics() == {"a": 3, "b": 1, "c": 2}


@pytest.mark.parametrize(("name", "partitions"), [("", 1), ("a b", 1), ("ä", 1), ("x" * 250, 1), ("a", 0)])
async def test_illegal_topics_are_refused(new_log: NewLog, name: str, partitions: int) -> None:
    async with new_log() as log:
        with pytest.raises(TopicError):
            await log.create_topics({name: partitions})


async def test_an_unknown_topic_is_named_with_those_that_exist(new_log: NewLog) -> None:
    async with new_log() as log:
        await log.create_topics({"there": 1})
        with pytest.raises(TopicError, match=r"'missing'.*there"):
            await log.append([record("missing", b"x")])
        with pytest.raises(TopicError, match=r"'missing'.*there"):
            async with log.subscribe(["missing"]):
                pass
        with pytest.raises(TopicError, match=r"'missing'.*there"):
            async with log.subscribe(["missing"], group="g"):
                pass
        with pytest.raises(TopicError, match="'missing'"):
            await log.end_offsets(["missing"])
        with pytest.raises(TopicError):
            await log.append([record("there", b"x", partition=1)])


async def test_a_topic_exists_or_does_not(new_log: NewLog) -> None:
    async with new_log() as log:
        await log.create_topics({"there": 1})
        assert await log.exists("there")
        assert not await log.exists("elsewhere")


# --- append and read --------------------------------------------------------------------------------------


async def test_what_is_read_is_what_was_appended(new_log: NewLog) -> None:
    headers = (("kind", b"task"), ("kind", b"again"), ("empty", b""))
    sent = [
        Record("a", b"key", b"\x00\xff", 1_755_302_400_000, headers, 0),
        Record("a", b"", b"", 0, (), 0),
        Record("a", "钥匙".encode(), b"v" * 100_000, 5, (("k", b"v"),), 0),
    ]
    async with new_log() as log:
        await log.create_topics({"a": 1})
        await log.append(sent)
        async with log.subscribe(["a"]) as subscription:
            got = await read(subscription, 3)
    assert [(r.offset, r.partition, r.topic) for r in got] == [(i, 0, "a") for i in range(3)]
    assert [(r.key, r.value, r.timestamp_ms, r.headers) for r in got] == [
        (r.key, r.value, r.timestamp_ms, r.headers) for r in sent
    ]


async def test_order_holds_within_each_partition(new_log: NewLog) -> None:
    async with new_log() as log:
        await log.create_topics({"a": 3, "b": 1})
        for batch in range(5):
            await log.append(
                [record("a", b"%d" % (batch * 300 + i), partition=i % 3) for i in range(300)]
                + [record("b", b"%d" % batch)]
            )
        async with log.subscribe(["a", "b"]) as subscription:
            got = await read(subscription, 1505)
        for partition in range(3):
            mine = [r for r in got if (r.topic, r.partition) == ("a", partition)]
            assert [r.offset for r in mine] == list(range(500))
            assert [int(r.value) for r in mine] == list(range(partition, 1500, 3))
        assert values(r for r in got if r.topic == "b") == [b"0", b"1", b"2", b"3", b"4"]
        assert await log.end_offsets(["a", "b"]) == {
            **{TopicPartition("a", p): 500 for p in range(3)},
            TopicPartition("b", 0): 5,
        }


async def test_a_key_picks_its_partition_as_kafka_does(new_log: NewLog) -> None:
    # (murmur2(key) & 0x7fffffff) % 4, from the hashes that Kafka's own unit test gives
    expected = {b"21": -973932308, b"foobar": -790332482, b"abc": 479470107}
    async with new_log() as log:
        await log.create_topics({"a": 4})
        await log.append([record("a", key, partition=None, key=key) for key in expected])
        async with log.subscribe(["a"]) as subscription:
            got = await read(subscription, 3)
    assert {r.key: r.partition for r in got} == {k: (h & 0x7FFFFFFF) % 4 for k, h in expected.items()}


async def test_an_append_is_all_or_nothing(new_log: NewLog) -> None:
    async with new_log() as log:
        await log.create_topics({"a": 2, "b": 1})
        batch = [record("a", b"1"), record("b", b"2"), record("a", b"3", partition=9)]
        with pytest.raises(TopicError):
            await log.append(batch)
        assert set((await log.end_offsets(["a", "b"])).values()) == {0}
        await log.append(batch[:2])
        assert sum((await log.end_offsets(["a", "b"])).values()) == 2


async def test_appends_at_once_do_not_mix_or_spoil_each_other(new_log: NewLog) -> None:
    async with new_log() as log:
        await log.create_topics({"a": 1})
        refused = []

        async def append(batch: int) -> None:
            records = [record("a", b"%d.%d" % (batch, i)) for i in range(50)]
            if batch % 5 == 0:
                records.append(record("unknown", b"x"))
            try:
                await log.append(records)
            except TopicError:
                refused.append(batch)

        async with anyio.create_task_group() as tasks:
            for batch in range(20):
                tasks.start_soon(append, batch)
        assert sorted(refused) == [0, 5, 10, 15]
        async with log.subscribe(["a"]) as subscription:
            got = [tuple(map(int, r.value.split(b"."))) for r in await read(subscription, 16 * 50)]
            assert await subscription.poll(timeout_s=0) == []
        for first in range(0, len(got), 50):
            assert got[first : first + 50] == [(got[first][0], i) for i in range(50)]
        assert {batch for batch, _ in got} == set(range(20)) - {0, 5, 10, 15}


async def test_poll_gives_no_more_than_asked_for_and_every_partition_its_turn(new_log: NewLog) -> None:
    async with new_log() as log:
        await log.create_topics({"a": 3})
        await log.append([record("a", b"busy", partition=1) for _ in range(5000)])
        await log.append([record("a", b"quiet", partition=p) for p in (0, 2)])
        async with log.subscribe(["a"]) as subscription:
            seen: set[int] = set()
            read_records = 0
            while seen != {0, 1, 2}:
                got = await subscription.poll(max_records=100, timeout_s=DEADLINE_S)
                assert 0 < len(got) <= 100
                seen |= {r.partition for r in got}
                read_records += len(got)
            assert read_records < 5000


async def test_one_record_at_a_time_skips_and_repeats_nothing(new_log: NewLog) -> None:
    async with new_log() as log:
        await log.create_topics({"a": 2})
        await log.append([record("a", b"%d" % i, partition=i % 2) for i in range(40)])
        async with log.subscribe(["a"]) as subscription:
            got = []
            while len(got) < 40:
                got += await subscription.poll(max_records=1, timeout_s=DEADLINE_S)
            assert sorted(int(r.value) for r in got) == list(range(40))
            assert await subscription.poll(max_records=1, timeout_s=0) == []


# --- places -----------------------------------------------------------------------------------------------


async def test_starts_earliest_latest_and_by_mapping(new_log: NewLog) -> None:
    zero, one = TopicPartition("a", 0), TopicPartition("a", 1)
    async with new_log() as log:
        await log.create_topics({"a": 2})
        await log.append([record("a", b"old%d" % i, partition=i % 2) for i in range(6)])
        async with (
            log.subscribe(["a"]) as earliest,
            log.subscribe(["a"], start="latest") as latest,
            log.subscribe(["a"], start={one: 2}) as mapped,
        ):
            assert [await latest.position(tp) for tp in (zero, one)] == [3, 3]
            await log.append([record("a", b"new", partition=1)])
            assert len(await read(earliest, 7)) == 7
            assert values(await read(latest, 1)) == [b"new"]
            got = await read(mapped, 5)
            assert values(r for r in got if r.partition == 0) == [b"old0", b"old2", b"old4"]
            assert values(r for r in got if r.partition == 1) == [b"old5", b"new"]


async def test_seek_and_position(new_log: NewLog) -> None:
    tp = TopicPartition("a", 0)
    async with new_log() as log:
        await log.create_topics({"a": 1})
        await log.append([record("a", b"%d" % i) for i in range(300)])
        async with log.subscribe(["a"]) as subscription:
            assert await subscription.position(tp) == 0
            assert len(await subscription.poll(max_records=10, timeout_s=DEADLINE_S)) == 10
            assert await subscription.position(tp) == 10
            for target in (299, 0, 127, 128, 129, 5):
                await subscription.seek(tp, target)
                assert await subscription.position(tp) == target
                got = await subscription.poll(max_records=1, timeout_s=DEADLINE_S)
                assert [(r.offset, r.value) for r in got] == [(target, b"%d" % target)]


async def test_seek_by_time_is_exact_for_stamps_in_any_order(new_log: NewLog) -> None:
    stamps = [10, 10, 50, 20, 30, 50, 40, 90, 60, 5]
    tp = TopicPartition("a", 0)
    async with new_log() as log:
        await log.create_topics({"a": 2})
        for stamp in stamps:
            await log.append([record("a", b"", stamp=stamp)])
        for wanted in range(0, 95, 5):
            expected = next((i for i, stamp in enumerate(stamps) if stamp >= wanted), None)
            assert await log.offset_for_time(tp, wanted) == expected
        assert await log.offset_for_time(TopicPartition("a", 1), 0) is None


# --- waiting ----------------------------------------------------------------------------------------------


async def test_poll_times_out_empty(new_log: NewLog) -> None:
    async with new_log() as log:
        await log.create_topics({"a": 1})
        async with log.subscribe(["a"]) as subscription:
            assert await subscription.poll(timeout_s=0) == []
            assert await subscription.poll(timeout_s=0.05) == []


async def test_waiting_readers_are_woken(new_log: NewLog) -> None:
    async with new_log() as log:
        await log.create_topics({"a": 1, "b": 1})
        got: list[bytes] = []

        async def wait_for(topic: str, *, task_status: TaskStatus[None]) -> None:
            async with log.subscribe([topic], start="latest") as subscription:
                task_status.started()
                got.extend(values(await read(subscription, 1)))

        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as tasks:
                for topic in "aab":
                    await tasks.start(wait_for, topic)
                await log.append([record("a", b"for a"), record("b", b"for b")])
        assert sorted(got) == [b"for a", b"for a", b"for b"]


async def test_a_cancelled_poll_loses_nothing(new_log: NewLog) -> None:
    async with new_log() as log:
        await log.create_topics({"a": 1})
        async with log.subscribe(["a"]) as subscription:
            await log.append([record("a", b"%d" % i) for i in range(100)])
            got = []
            for i in range(100):
                with anyio.move_on_after(0.0002 * (i % 10)):
                    got += await subscription.poll(max_records=1)
            got += await read(subscription, 100 - len(got))
            assert [int(r.value) for r in got] == list(range(100))
