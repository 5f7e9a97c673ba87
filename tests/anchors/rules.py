"""A model by rule: makes candidates that are good, and such as are bad in one known way, from the lines it is shown.

A statement begins with what it is: `good`, the check that it fails, or the criterion by which the review refuses it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from producers.anchors.criteria import CRITERIA

CHECKED = ("quote_not_found", "no_such_observation", "leak", "equal_requests", "unknown_type", "empty_field")
KINDS = ("good", *CHECKED, *CRITERIA)
_LINE = re.compile(r"^[> ] \[(\d+)\] (.+)$", re.MULTILINE)
_TASKS = {
    "en": (
        ("Sketch a seating chart for Saturday's banquet.", "Compose a birthday toast that fits the mood."),
        ("Seats the guests with that in mind.", "Mentions it in the toast."),
    ),
    "zh": (("周六宴席座位怎样安排？", "写一段生日祝词。"), ("按此安排座位。", "祝词里提到此事。")),
}


def answer(body: Mapping[str, Any]) -> str:
    """What the model says to A_anchor's and A_review's prompts."""
    system, user = (message["content"] for message in body["messages"][:2])
    if system.startswith(("You review", "你负责审核")):
        return json.dumps(_review(user))
    language = "en" if system.startswith("You write") else "zh"
    return json.dumps({"anchors": _candidates(user, language)})


def stubborn(body: Mapping[str, Any]) -> str:
    """As `answer`, but of segments whose lines say `kettle` it has nothing to say that can be used."""
    if "kettle" in body["messages"][1]["content"]:
        return "I'd rather not."
    return answer(body)


def kind_of(statement: str) -> str:
    """What a statement was made to be."""
    return statement.partition(":")[0]


def _candidates(user: str, language: str) -> list[dict[str, Any]]:
    lines = [(int(index), text) for index, text in _LINE.findall(user)]
    draw = int.from_bytes(hashlib.sha256(user.encode()).digest()[:8])
    made = []
    for number in range(draw % 4):
        index, text = lines[(draw // 7 + 5 * number) % len(lines)]
        kind = KINDS[(draw // 31 + number) % len(KINDS)] if (draw + number) % 3 else "good"
        made.append(_candidate(kind, index, text, language, number))
    return made


def _candidate(kind: str, index: int, text: str, language: str, number: int) -> dict[str, Any]:
    said = text.partition(": ")[2] or text
    who = text.partition(": ")[0] if ": " in text else "Somebody"
    requests, behaviours = _TASKS[language]
    candidate = {
        "evidence_statement": f"{kind}: {who} {number} {said}",
        "evidence_type": "stated",
        "subject": "Everybody",
        "quotes": [{"index": index, "quote": said}],
        "initial_task": {"user_request": requests[0], "expected_behavior": behaviours[0]},
        "followup_task": {"user_request": requests[1], "expected_behavior": behaviours[1]},
    }
    match kind:
        case "quote_not_found":
            candidate["quotes"] = [{"index": index, "quote": f"{said} and more"}]
        case "no_such_observation":
            candidate["quotes"] = [{"index": 9_999_999, "quote": said}]
        case "leak":
            candidate["initial_task"]["user_request"] = (
                f"Given that {candidate['evidence_statement']}, now what?"  # type: ignore[index]
            )
        case "equal_requests":
            candidate["followup_task"]["user_request"] = f"{requests[0]} "  # type: ignore[index]
        case "unknown_type":
            candidate["evidence_type"] = "guessed"
        case "empty_field":
            candidate["followup_task"]["expected_behavior"] = ""  # type: ignore[index]
    return candidate


def _review(user: str) -> dict[str, Any]:
    match = re.search(r'"evidence_statement": "(\w+):', user)
    kind = match[1] if match else ""
    return {
        criterion: {"reason": f"because it is {kind}", "passed": criterion != kind} for criterion in CRITERIA
    }
