"""How many there are of something, in words. Pure."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "") -> str:
    """`1 lane`, `2 lanes`, `1,200 lanes`. `many`: where it isn't `one` and an s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
