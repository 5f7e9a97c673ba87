"""A driver for the tests, of a system that is short: notes on disk under random ids, each asked of the model before it
is kept, and found by the words that it shares with a question.

What it is told may begin with `change:` (the last note gets this text), `drop:` (the first goes), `fail:` (it is kept,
and then the system raises), `swallow:` (kept, whatever the model says), `die:` (the process ends, once) or `hang:`.
Each search is counted in its state. Opened with `colour=none` it raises.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..driver import Driver, Held, Message, Settings  # as drivers are imported


class Toy:
    searching_changes = True

    def __init__(self, settings: Settings) -> None:
        if settings.options.get("colour") == "none":
            raise ValueError("there is no such colour")
        self._settings = settings
        self._file = settings.directory / "notes.json"
        content = self._file.read_bytes() if self._file.exists() else b"{}"
        self._notes: dict[str, str] = json.loads(content)
        self._searches = 0

    def ingest(self, messages: Sequence[Message], event_time_us: int) -> None:
        print("what the system prints goes to its log")
        for message in messages:
            verb, colon, rest = message.text.partition(":")
            match verb if colon else "":
                case "change":
                    self._notes[list(self._notes)[-1]] = rest
                case "drop":
                    del self._notes[next(iter(self._notes))]
                case "fail":
                    self._notes[str(uuid.uuid4())] = rest
                    raise ValueError(f"can't take {rest}")
                case "swallow":
                    self._notes[str(uuid.uuid4())] = rest
                    with contextlib.suppress(OSError):
                        self._ask(rest)
                case "die":
                    once = Path(os.environ["HOME"]).parents[1] / "died"
                    if rest == "always" or not once.exists():
                        once.touch()
                        os._exit(3)
                    self._notes[str(uuid.uuid4())] = rest
                case "hang":
                    time.sleep(60)
                case _:
                    self._notes[str(uuid.uuid4())] = self._ask(message.text)
        self._file.write_text(json.dumps(self._notes))

    def records(self) -> Mapping[str, Held]:
        return {native: Held(text) for native, text in self._notes.items()}

    def search(self, text: str, top_k: int, now_us: int) -> Sequence[tuple[str, float]]:
        self._searches += 1
        asked = set(text.split())
        scored = [(native, float(len(asked & set(note.split())))) for native, note in self._notes.items()]
        best = sorted(scored, key=lambda found: -found[1])[:top_k]
        return [(native, score + 100 * self._searches) for native, score in best]

    def stored_bytes(self) -> int:
        return sum(len(note.encode()) for note in self._notes.values())

    def fork(self, settings: Settings) -> Driver:
        fork = Toy(settings)
        fork._notes, fork._searches = dict(self._notes), self._searches
        return fork

    def close(self) -> None:
        pass

    def _ask(self, text: str) -> str:
        body = {"model": self._settings.model, "messages": [{"role": "user", "content": text}]}
        request = urllib.request.Request(
            f"{self._settings.base_url}/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(json.load(answer)["choices"][0]["message"]["content"])


DRIVER = Toy
