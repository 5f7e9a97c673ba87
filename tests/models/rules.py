"""What the scripted server answers by: functions of a request's body."""

from __future__ import annotations

import time
from typing import Any

import msgspec


def verdict(body: dict[str, Any]) -> str:
    """Fits `helpers.Verdict`; the reason is the last message, so that each answer can be told from the others."""
    return msgspec.json.encode({"outcome": "pass", "reason": body["messages"][-1]["content"]}).decode()


def drawn(body: dict[str, Any]) -> str:
    """Another one each time."""
    return f"{body['messages'][-1]['content']} {time.time_ns()}"


def chatty(body: dict[str, Any]) -> str:
    """As models without structured output answer."""
    return f"Sure! Here it is:\n```json\n{verdict(body)}\n```\nHope that [helps]."


def repentant(body: dict[str, Any]) -> str:
    """Fits only once it was told what is wrong."""
    if len(body["messages"]) == 1:
        return '{"outcome": "perhaps"}'
    return '{"outcome": "fail", "reason": "told"}'


def colour(body: dict[str, Any]) -> str:
    """As a server with structured output answers a check; in words where it has to be asked in words."""
    return '{"colour": "blue", "brightness": "light"}' if _wants_json(body) else "It is blue."


def _wants_json(body: dict[str, Any]) -> bool:
    return "response_format" in body or "JSON" in body["messages"][-1]["content"]
