"""Canaries: marks that are planted in observations, so that what saw one can be told by its words."""

from __future__ import annotations

import hashlib
import re
from typing import Final

IDENTITY_FIELD: Final = "canaries"
"""The field of a run's identity that says how many were planted; missing where none were."""

_MARK: Final = re.compile(r"canary[0-9a-f]{12}")


def mark_of(seed: int, stream: str, seq: int) -> str:
    """The mark of one observation: one token, the same for the same seed and place, and at no other."""
    return f"canary{hashlib.sha256(f'{seed}/{stream}/{seq}'.encode()).hexdigest()[:12]}"


def marks_in(text: str) -> list[str]:
    """All marks in a text, in its order."""
    return _MARK.findall(text) if "canary" in text else []
