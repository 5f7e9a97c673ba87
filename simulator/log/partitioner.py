"""Which partition a key belongs to: the same choice as Kafka's Java client makes."""

from __future__ import annotations

from functools import lru_cache

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 (seed 0x9747b28c), as a signed integer.

    Source: `org.apache.kafka.common.utils.Utils.murmur2`.
    """
    length = len(data)
    h = (0x9747B28C ^ length) & _MASK
    whole = length & ~3
    for i in range(0, whole, 4):
        k = (int.from_bytes(data[i : i + 4], "little") * _M) & _MASK
        k ^= k >> 24
        h = ((h * _M) & _MASK) ^ ((k * _M) & _MASK)
    if length > whole:
        h ^= int.from_bytes(data[whole:], "little")
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & 0x80000000 else h


@lru_cache(maxsize=65536)
def partition_for(key: bytes, partitions: int) -> int:
    """The partition of a key among `partitions`. Records with an empty key go to partition 0 (Kafka's clients
    spread records without a key over all partitions; a fixed place is repeatable)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions if key else 0
