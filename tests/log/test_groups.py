"""What every log must do with groups: share partitions, fence who lost one, and transact.

One thing is asked less strictly than SQLite keeps it, because Kafka can't: offsets are gapless only where no
transaction wrote. Kafka keeps a mark of each in the partition, so what transactions wrote is counted by reading
it (`held`), and not by the end of the partition.
"""

from __future__ import annotations

import pytest

from simulator.errors import FencedError, LogError, TopicError
from simulator.log import TopicPartition
from tests.log.conftest import NewLog
from tests.log.helpers import DEADLINE_S, held, places, read, record, settle, values

# --- groups -----------------------------------------------------------------------------------------------


async def test_members_share_partitions_and_topics_are_shared_alike(new_log: NewLog) -> None:
    everything = places(a=4, b=4, c=1)
    async with new_log() as log:
        await log.create_topics({"a": 4, "b": 4, "c": 1})
        async with log.subscribe(["a", "b", "c"], group="g") as first:
            await settle([first], everything)
            async with log.subscribe(["c", "b", "a"], group="g") as second:
                await settle([first, second], everything)
                assert len(first.assignment) in (4, 5)
                for member in (first, second):
                    by_topic = {t: {p for topic, p in member.assignment if topic == t} for t in "abc"}
                    assert by_topic["a"] == by_topic["b"]
                    assert by_topic["c"] <= by_topic["a"]
            await settle([first], everything)


async def test_more_members_than_partitions_leaves_some_idle(new_log: NewLog) -> None:
    async with new_log() as log:
        await log.create_topics({"a": 1})
        async with log.subscribe(["a"], group="g") as first, log.subscribe(["a"], group="g") as second:
            await settle([first, second], places(a=1))
            await log.append([record("a", b"x")])
            owner, idle = (first, second) if first.assignment else (second, first)
            assert values(await read(owner, 1)) == [b"x"]
            assert await idle.poll(timeout_s=0) == []


async def test_groups_and_lone_readers_do_not_disturb_each_other(new_log: NewLog) -> None:
    async with new_log() as log:
        await log.create_topics({"a": 2})
        await log.append([record("a", b"%d" % i, partition=i % 2) for i in range(10)])
        async with (
            log.subscribe(["a"], group="g") as one,
            log.subscribe(["a"], group="h") as other,
            log.subscribe(["a"]) as lone,
        ):
            for subscription in (one, other, lone):
                assert len(await read(subscription, 10)) == 10
            await one.commit()
        assert await log.committed("g", ["a"]) == dict.fromkeys(places(a=2), 5)
        assert await log.committed("h", ["a"]) == {}


async def test_what_was_not_committed_comes_again(new_log: NewLog) -> None:
    tp = TopicPartition("a", 0)
    async with new_log() as log:
        await log.create_topics({"a": 1})
        await log.append([record("a", b"%d" % i) for i in range(10)])
        async with log.subscribe(["a"], group="g") as subscription:
            await read(subscription, 10)
            await subscription.commit({tp: 4})
        assert await log.committed("g", ["a"]) == {tp: 4}
        async with log.subscribe(["a"], group="g", start="latest") as subscription:
            assert [r.offset for r in await read(subscription, 6)] == list(range(4, 10))


async def test_a_rebalance_hands_over_at_the_committed_offset(new_log: NewLog) -> None:
    everything = places(a=2)
    async with new_log() as log:
        await log.create_topics({"a": 2})
        async with log.subscribe(["a"], group="g") as first:
            await settle([first], everything)
            await log.append([record("a", b"%d" % i, partition=i % 2) for i in range(20)])
            await read(first, 20)
            await first.commit(dict.fromkeys(everything, 7))
            async with log.subscribe(["a"], group="g") as second:
                got = await settle([first, second], everything)
                (moved,) = second.assignment
                (kept,) = first.assignment
                got += await read(second, 3 - len([r for r in got if r.partition == moved.partition]))
                again = [r.offset for r in got if r.partition == moved.partition]
                assert again == [7, 8, 9]
                assert await second.position(moved) == 10
                assert await first.position(kept) == 10
                with pytest.raises(LogError):
                    await first.position(moved)
                with pytest.raises(LogError):
                    await first.seek(moved, 0)


async def test_a_member_that_lost_a_partition_is_fenced(new_log: NewLog) -> None:
    everything = places(a=2)
    async with new_log() as log:
        await log.create_topics({"a": 2, "out": 1})
        await log.append([record("a", b"%d" % i, partition=i % 2) for i in range(10)])
        async with log.subscribe(["a"], group="g") as first:
            await read(first, 10)
            async with log.subscribe(["a"], group="g") as second:
                with pytest.raises(FencedError):
                    await first.commit()
                with pytest.raises(FencedError):
                    await first.transact([record("out", b"x")], dict.fromkeys(everything, 5))
                assert await log.committed("g", ["a"]) == {}
                assert await held(log, "out") == {}
                await settle([first, second], everything)
                await first.commit()
                await second.commit()
        assert set(await log.committed("g", ["a"])) == everything


async def test_a_partition_that_was_anothers_in_between_is_fenced_too(new_log: NewLog) -> None:
    tps = places(a=2)
    async with new_log() as log:
        await log.create_topics({"a": 2})
        await log.append([record("a", b"%d" % i, partition=i % 2) for i in range(10)])
        async with log.subscribe(["a"], group="g") as first:
            assert first.gained() == tps
            assert first.gained() == frozenset()
            await first.poll(max_records=2, timeout_s=DEADLINE_S)
            async with log.subscribe(["a"], group="g") as second:
                await settle([second], set(second.assignment))
                moved = set(second.assignment)
                await second.commit(dict.fromkeys(moved, 5))
            # all is the first member's again, but it does not know what happened meanwhile
            with pytest.raises(FencedError):
                await first.commit(dict.fromkeys(tps, 1))
            await settle([first], tps)
            for tp in moved:
                assert await first.position(tp) == 5
            assert first.gained() == moved


async def test_an_exclusive_group_has_one_at_work_and_others_that_stand_by(new_log: NewLog) -> None:
    tps = places(a=2, b=1)
    async with new_log() as log:
        await log.create_topics({"a": 2, "b": 1})
        async with log.subscribe(["a", "b"], group="g", exclusive=True) as second:
            async with log.subscribe(["a", "b"], group="other", exclusive=True):
                pass
            await settle([second], tps)
            async with log.subscribe(["a", "b"], group="g", exclusive=True) as third:
                await settle([second, third], tps)
                assert third.assignment == frozenset()
                await log.append([record("a", b"%d" % i, partition=i % 2) for i in range(10)])
                await read(second, 10)
                await second.commit({TopicPartition("a", 0): 2})
                with pytest.raises(LogError, match="'g'"):
                    async with log.subscribe(["a", "b"], group="g"):
                        pass
        async with log.subscribe(["a", "b"], group="g", exclusive=True) as fourth:
            await settle([fourth], tps)
            assert fourth.gained() == tps


async def test_members_must_read_the_same_topics(new_log: NewLog) -> None:
    async with new_log() as log:
        await log.create_topics({"a": 1, "b": 1})
        async with log.subscribe(["a"], group="g"):
            with pytest.raises(LogError, match="'g'"):
                async with log.subscribe(["a", "b"], group="g"):
                    pass
        async with log.subscribe(["a", "b"], group="g") as subscription:
            await settle([subscription], places(a=1, b=1))


# --- transactions -----------------------------------------------------------------------------------------


async def test_a_transaction_appends_and_commits_both_or_neither(new_log: NewLog) -> None:
    tp = TopicPartition("a", 0)
    async with new_log() as log:
        await log.create_topics({"a": 1, "out": 2})
        await log.append([record("a", b"%d" % i) for i in range(4)])
        async with log.subscribe(["a"], group="g") as subscription:
            await read(subscription, 4)
            await subscription.transact([record("out", b"x"), record("out", b"y", partition=1)], {tp: 3})
            assert await log.committed("g", ["a"]) == {tp: 3}
            assert await held(log, "out") == {0: [b"x"], 1: [b"y"]}
            with pytest.raises(TopicError):
                await subscription.transact([record("out", b"x"), record("missing", b"y")], {tp: 4})
            with pytest.raises(LogError):
                await subscription.transact([record("out", b"x")], {TopicPartition("out", 0): 1})
            assert await log.committed("g", ["a"]) == {tp: 3}
            assert await held(log, "out") == {0: [b"x"], 1: [b"y"]}


async def test_offsets_need_a_group(new_log: NewLog) -> None:
    async with new_log() as log:
        await log.create_topics({"a": 1})
        async with log.subscribe(["a"]) as subscription:
            with pytest.raises(LogError, match="group"):
                await subscription.commit()
            await subscription.transact([record("a", b"x")], {})
            assert values(await read(subscription, 1)) == [b"x"]


# --- the one at work --------------------------------------------------------------------------------------


async def test_only_the_one_at_work_of_an_exclusive_group_appends_as_such(new_log: NewLog) -> None:
    async with new_log() as log:
        await log.create_topics({"a": 2, "control": 1})
        async with log.subscribe(["control"], group="g") as shared, log.subscribe(["control"]) as alone:
            for subscription in (shared, alone):
                with pytest.raises(LogError, match="exclusive"):
                    await subscription.guard(["a"])
        async with log.subscribe(["control"], group="one", exclusive=True) as first:
            await first.guard(["a"])
            await first.append([record("a", b"1", 0), record("a", b"2", 1)])
            async with log.subscribe(["control"], group="one", exclusive=True) as second:
                with pytest.raises(FencedError):
                    await second.guard(["a"])
                await first.append([record("a", b"3", 0)])
        async with log.subscribe(["control"], group="one", exclusive=True) as second:
            await settle([second], places(control=1))
            await second.guard(["a"])
            with pytest.raises(LogError):  # it has left its group, and another has begun
                await first.append([record("a", b"late", 0)])
            await second.append([record("a", b"4", 0), record("a", b"5", 1)])
        assert await held(log, "a") == {0: [b"1", b"3", b"4"], 1: [b"2", b"5"]}
