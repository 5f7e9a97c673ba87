from __future__ import annotations

import pytest

from simulator.log.partitioner import murmur2, partition_for


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # Kafka's UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected
    assert partition_for(key, 7) == (expected & 0x7FFFFFFF) % 7


def test_an_empty_key_has_a_fixed_partition() -> None:
    assert partition_for(b"", 5) == 0
