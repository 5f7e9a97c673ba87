"""What the scripted server answers foreign systems by: each prompt as a careful model would, as far as words go."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from simulator.text import tokens
from tests.models.roles import says, telling, words


def bag(text: str, dimensions: int) -> list[float]:
    """A vector of the text's words: texts that share words are near each other."""
    vector = [0.0] * dimensions
    for word in words(text):
        digest = hashlib.sha256(word.encode()).digest()
        vector[int.from_bytes(digest[:4]) % dimensions] += 1.0 if digest[4] % 2 else -1.0
    return vector if any(vector) else [1 / math.sqrt(dimensions)] * dimensions


def _asked(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def _between(text: str, start: str, end: str = r"\Z") -> str:
    found = re.search(f"{start}(.*?){end}", text, re.DOTALL)
    assert found is not None, f"no {start!r} in {text!r}"
    return found[1].strip()


def toy(body: dict[str, Any]) -> str:
    """What it is asked: each observation is a note."""
    return _asked(body)


# --- Mem0 -----------------------------------------------------------------------------------------------------------


def mem0(body: dict[str, Any]) -> str:
    """A memory for each line of what is new."""
    new = re.search(r"## New Messages\n(.*?)\n+## ", body["messages"][-1]["content"], re.DOTALL)
    lines = telling([line for line in new[1].splitlines() if line.strip()] if new else [])
    found = [{"id": str(i), "text": line.removeprefix("user: ")} for i, line in enumerate(lines)]
    return json.dumps({"memory": [{**memory, "attributed_to": "user"} for memory in found]})


# --- A-Mem ----------------------------------------------------------------------------------------------------------


def amem(body: dict[str, Any]) -> str:
    """Keywords are the first words; notes that share a word with a new one are linked and told so."""
    asked = _asked(body)
    if "Content for analysis:" in asked:
        content = _between(asked, "Content for analysis:")
        analysis = {"keywords": words(content)[:5], "context": f"Told: {content[:30]}", "tags": ["told"]}
        return json.dumps(analysis)
    content = _between(asked, "content: ", "keywords: ")
    neighbours = re.findall(
        r"memory index:(\d+)\t talk start time:(\d+)\t memory content: (.*?)\t memory context: (.*?)\t "
        r"memory keywords: (.*?)\t memory tags: (.*?)\n",
        asked,
        re.DOTALL,
    )
    related = [set(words(content)) & set(words(text)) != set() for _, _, text, *_ in neighbours]
    evolution = {
        "should_evolve": any(related),
        "actions": ["strengthen", "update_neighbor"],
        "suggested_connections": [int(n[0]) for n, near in zip(neighbours, related, strict=True) if near],
        "tags_to_update": ["told", "linked"],
        "new_context_neighborhood": [
            f"Before: {content[:30]}" if near else n[3] for n, near in zip(neighbours, related, strict=True)
        ],
        "new_tags_neighborhood": [["told", "linked"] if near else ["told"] for near in related],
    }
    return json.dumps(evolution)


# --- MemoryOS -------------------------------------------------------------------------------------------------------


def memoryos(body: dict[str, Any]) -> str:
    """Pages that share a word go on; the longest line is the theme; what a user said is knowledge."""
    asked = _asked(body)
    if "Continuous?" in asked:
        before = words(_between(asked, "Previous Page:\nUser: ", "\nAssistant: "))
        now = words(_between(asked, "Current Page:\nUser: ", "\nAssistant: "))
        return "true" if set(before) & set(now) else "false"
    if "Updated Meta-summary:" in asked:
        before_that = _between(asked, "Previous Meta-summary: ", "\n")
        said = _between(asked, "New Dialogue:\n", "\n\n")
        new = f"[{' '.join(words(said)[:3])}]"
        return new if before_that == "None" else f"{before_that} {new}"
    if "Conversation content:" in asked:
        said = re.sub(r"^(User|Assistant): ", "", _between(asked, "Conversation content:\n"), flags=re.M)
        told = max(map(tokens, said.splitlines()), key=len)
        keywords = words(" ".join(told))[:5]
        return json.dumps([{"theme": "days", "keywords": keywords, "content": f"Days with {' '.join(told)}"}])
    if "Updated User Profile" in asked:
        said = _between(asked, r"Latest User-AI Conversation:\*\*\n", r"\*\*Updated")
        return f"Food Interest ( High ): the person speaks of {' '.join(words(said)[:6])}"
    said = re.findall(r"User: (.*?) \(Timestamp: (.*?)\)", asked, re.DOTALL)
    facts = "\n".join(f"- {' '.join(words(text)[:4])}: {at}" for text, at in said)
    return f"【User Private Data】\n{facts}\n【Assistant Knowledge】\n- Assistant took note at {said[-1][1]}"


# --- MemSkill -------------------------------------------------------------------------------------------------------


def memskill(body: dict[str, Any]) -> str:
    """Each line is inserted with its date. A line `X is now Y` updates what is known of X; `forget X` deletes it."""
    asked = _asked(body)
    date = _between(asked, "Input Text Chunk:\nDATE: ", "\n")
    lines = telling(_between(asked, "CONVERSATION:\n", "\n\nRetrieved Memories").splitlines())
    known = re.findall(r"^(\d+)\. (.*)$", _between(asked, r"\(0-based index\):\n", "Selected Skills:"), re.M)
    blocks: list[str] = []
    for line in lines:
        subject = words(line.removeprefix("forget "))[:1]
        place = next((n for n, text in known if subject and subject[0] in words(text)), None)
        if line.startswith("forget ") and place is not None:
            blocks.append(f"ACTION: DELETE\nMEMORY_INDEX: {place}")
        elif " is now " in line and place is not None:
            blocks.append(f"ACTION: UPDATE\nMEMORY_INDEX: {place}\nUPDATED_MEMORY: On {date}: {line}")
        else:
            blocks.append(f"ACTION: INSERT\nMEMORY_ITEM: On {date}: {line}")
    return "\n\n".join(blocks)


# --- MemOS ----------------------------------------------------------------------------------------------------------


def memos(body: dict[str, Any]) -> str:
    """Each line is a memory, of the user by turns."""
    asked = _asked(body).rpartition("\nConversation:\n")[2]
    said = telling(re.findall(r"^\w+: ?\[.*?\]: .*$", asked, re.M))
    lines = [re.findall(r"^(\w+): ?\[(.*?)\]: (.*)$", line)[0] for line in said]
    memories = [
        {
            "key": " ".join(words(text)[:2]),
            "memory_type": ("LongTermMemory", "UserMemory")[place % 2],
            "value": f"On {at} the {role} said: {text}",
            "tags": words(text)[:3],
        }
        for place, (role, at, text) in enumerate(lines)
    ]
    return json.dumps({"memory list": memories, "summary": f"{len(memories)} things were said."})


# --- EverMemOS ------------------------------------------------------------------------------------------------------


def evermemos(body: dict[str, Any]) -> str:
    """A session is one episode, which tells its lines; each is a fact. The person has one trait."""
    asked = _asked(body)
    if '"boundaries"' in asked:
        return json.dumps({"reasoning": "one day", "boundaries": [], "should_wait": False})
    if '"operations"' in asked:
        return json.dumps({"operations": [{"action": "none"}], "update_note": "nothing new"})
    if '"explicit_info"' in asked:
        told = {"category": "home", "description": "has a home", "evidence": "speaks of it"}
        return json.dumps({"explicit_info": [told], "implicit_traits": []})
    if "atomic_facts" in asked:
        told = asked.rpartition("- EPISODE_TEXT: ")[2]
        at = _between(told, '- TIME: "', '"')
        facts = telling(_between(told, '"', '"\n- TIME').splitlines())
        return json.dumps({"atomic_facts": {"time": at, "atomic_fact": facts}})
    said = _between(asked, "Conversation content:\n", "\n\nCustom instructions:")
    said = said.translate(dict.fromkeys(map(ord, "{}")))  # EverOS counts those in texts, too
    turns = re.findall(r'"speaker": (.*?),\s*"content": (.*?)\s*(?="timestamp": |\Z)', said, re.DOTALL)
    told = "\n".join(f"{speaker}: {text}" for speaker, text in turns)
    return json.dumps({"title": f"Told: {' '.join(words(said)[-3:])}", "content": told})


# --- all at once ----------------------------------------------------------------------------------------------------

RULES: Final[Mapping[str, Callable[[dict[str, Any]], str]]] = {
    rule.__name__: rule for rule in (toy, mem0, amem, memoryos, memskill, memos, evermemos)
}


def everyone(body: dict[str, Any]) -> str:
    """One server for all: each foreign system asks a model of its own name, and whoever else asks has our prompts."""
    return RULES.get(body["model"], says)(body)
