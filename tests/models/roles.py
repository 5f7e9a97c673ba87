"""What the scripted server's model says to our own prompts: what the official judges would, and what it was shown.

`says` is the `rule` of a `Script`. A model that always agrees with the official path makes runs comparable: the same
trajectories pass, whichever judge is asked.
"""

from __future__ import annotations

import json
import re
from typing import Any

from judges.deterministic import BEHAVIOUR_OVERLAP, EVIDENCE_OVERLAP, official_feedback
from judges.metrics import overlap


def says(body: dict[str, Any]) -> str:
    """The answer to one request, by the prompt that it is made with."""
    user = next(m["content"] for m in body["messages"] if m["role"] == "user")
    match role_of(body):
        case "fidelity":
            statement = section(user, "statements").removeprefix("1. ")
            present = overlap(statement, section(user, "written")) >= EVIDENCE_OVERLAP
            found = {"index": 1, "knowledge_statement": statement, "present": present, "reason": "by overlap"}
            return json.dumps({"findings": [found]})
        case "user":
            evidence, answer = section(user, "evidence"), section(user, "answer")
            used = overlap(evidence, answer) >= EVIDENCE_OVERLAP
            behaves = overlap(section(user, "expected_behaviour"), answer) >= BEHAVIOUR_OVERLAP
            passed = used and behaves
            said = {
                "type": "affirm" if passed else "revise",
                "reason": "by overlap",
                "feedback": official_feedback(passed, evidence).text,
                "evidence": [],
            }
            return json.dumps(said)
        case "extract":
            return json.dumps({"facts": section(user, "seen").splitlines()})
        case "graph":
            seen = section(user, "chunk").splitlines()
            entities = [{"name": f"line {line[:20]}", "type": "line", "description": line} for line in seen]
            return json.dumps({"entities": entities, "relations": []})
        case "summary":
            return json.dumps({"description": section(user, "descriptions")[:200]})
        case _:
            last = str(body["messages"][-1]["content"])
            told = f"{last}\n" if len(body["messages"]) > 2 else ""  # the feedback
            return told + section(user, "memories")


def role_of(body: dict[str, Any]) -> str:
    """Which of our prompts a request is made with."""
    user = next(m["content"] for m in body["messages"] if m["role"] == "user")
    marks = {
        "<statements>": "fidelity",
        "<expected_behaviour>": "user",
        "<seen>": "extract",
        "<chunk>": "graph",
        "<descriptions>": "summary",
    }
    for mark, role in marks.items():
        if mark in user:
            return role
    return "answer"


def section(text: str, name: str) -> str:
    found = re.search(rf"<{name}>\n(.*?)\n?</{name}>", text, re.DOTALL)
    assert found is not None, text
    return found[1]
