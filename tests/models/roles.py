"""What the scripted server's model says to our own prompts: what the official judges would, and what it was shown.

`says` is the `rule` of a `Script`. A model that always agrees with the official path makes runs comparable: the same
trajectories pass, whichever judge is asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from judges.deterministic import BEHAVIOUR_OVERLAP, EVIDENCE_OVERLAP, official_feedback
from judges.metrics import overlap

MOST_TOLD: Final = 12
"""Lines of one piece of text that are worth a memory."""
_WORD = re.compile(r"[a-z]{4,}")


def words(text: str) -> list[str]:
    """Its words of four letters and more, each once, in order."""
    return list(dict.fromkeys(_WORD.findall(text.lower())))


def telling(lines: Sequence[str]) -> list[str]:
    """Those with the most words, in order: a segment of a real stream has hundreds of lines."""
    by_words = sorted(range(len(lines)), key=lambda place: (-len(words(lines[place])), place))
    return [lines[place] for place in sorted(by_words[:MOST_TOLD])]


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
            return json.dumps({"facts": telling(section(user, "seen").splitlines())})
        case "qa":
            rating = round(3 * overlap(section(user, "reference_answer"), section(user, "answer")))
            return json.dumps({"reason": "by overlap", "rating": rating})
        case "helpful":
            rating = round(2 * overlap(section(user, "reference_answer"), section(user, "retrieved")))
            return json.dumps({"reason": "by overlap", "rating": rating})
        case "rating":
            rating = 1 + round(4 * overlap(section(user, "reference_response"), section(user, "response")))
            return json.dumps({"reason": "by overlap", "rating": rating})
        case "open_answer":
            equal = overlap(section(user, "reference_answer"), section(user, "answer")) >= EVIDENCE_OVERLAP
            return json.dumps({"reason": "by overlap", "equal": equal})
        case "memory_recall":
            items = [
                {
                    "index": number,
                    "reason": "by overlap",
                    "covered": overlap(item.partition(". ")[2], section(user, "retrieved"))
                    >= EVIDENCE_OVERLAP,
                }
                for number, item in enumerate(items_of(section(user, "memory_items")), 1)
            ]
            return json.dumps({"items": items})
        case "graph":
            seen = telling(section(user, "chunk").splitlines())
            entities = [{"name": f"line {line[:20]}", "type": "line", "description": line} for line in seen]
            return json.dumps({"entities": entities, "relations": []})
        case "summary":
            return json.dumps({"description": section(user, "descriptions")[:200]})
        case _:
            last = str(body["messages"][-1]["content"])
            told = f"{last}\n" if len(body["messages"]) > 2 else ""  # the feedback
            told = "INTERVENE " if "Begin with INTERVENE" in last else told
            return told + section(user, "memories")


def role_of(body: dict[str, Any]) -> str:
    """Which of our prompts a request is made with."""
    user = next(m["content"] for m in body["messages"] if m["role"] == "user")
    if "<reference_response>" in user:
        return "rating"
    if "<reference_answer>" in user:
        return "helpful" if "<retrieved>" in user else "qa" if "<memory_items>" in user else "open_answer"
    if "<memory_items>" in user:
        return "memory_recall"
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


def items_of(text: str) -> list[str]:
    """Numbered items, each with its further lines, which are indented."""
    return re.split(r"\n(?! )", text)


def section(text: str, name: str) -> str:
    found = re.search(rf"<{name}>\n(.*?)\n?</{name}>", text, re.DOTALL)
    assert found is not None, text
    return found[1]
