"""EverMemOS as it is published now, EverOS (`everos` on PyPI, 1.0 and later): conversations are cut into episodes that
a model narrates, with atomic facts and a profile, in Markdown files that SQLite and LanceDB index.

It takes its root, models and state from its process, so each memory that is used has a process of its own. One is
started by the first call that needs it and ended by the first fork, so that what is only kept has none.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from ..driver import Held, Message, Settings
from ..patching import SPEAKERS, pieces, unit_of

CALL_S: Final = 900.0
STOP_S: Final = 60.0
_METHODS: Final = ("hybrid", "vector", "keyword")
_PROGRAM: Final = Path(__file__).parents[1] / "everos_process.py"
_STRATEGIES: Final = ("extract_atomic_facts", "trigger_profile_clustering", "extract_user_profile")
_USER: Final = "user"


class EverMemOS:
    """One memory. Options: `unit`; `method`: how it searches, `hybrid` (the default), `vector` or `keyword`."""

    searching_changes: ClassVar[bool] = False

    def __init__(self, settings: Settings, origin: EverMemOS | None = None) -> None:
        self._unit = unit_of(settings)
        self._method = str(settings.options.get("method", _METHODS[0]))
        if self._method not in _METHODS:
            raise ValueError(f"method must be {', '.join(_METHODS)}, not {self._method!r}")
        self._settings = settings
        self._root = settings.directory / "everos"
        self._held: dict[str, Held] = {}
        self._sessions = 0
        self._process: subprocess.Popen[bytes] | None = None
        if origin is not None:
            self._held, self._sessions = dict(origin._held), origin._sessions
            if origin._root.exists():
                shutil.copytree(origin._root, self._root, ignore=shutil.ignore_patterns("*.lock"))

    def ingest(self, messages: Sequence[Message], event_time_us: int) -> None:
        """A session for each piece, whose end is said at once, and all that follows from it."""
        for piece in pieces(messages, self._unit):
            self._sessions += 1
            now_us = max(message.event_time_us for message in piece)
            said = self._call(
                "ingest",
                now_us,
                session=f"session-{self._sessions:06}",
                messages=[_turn(message) for message in piece],
            )
            self._held = {item["id"]: Held(_text(item)) for item in sorted(said, key=lambda item: item["id"])}

    def records(self) -> Mapping[str, Held]:
        """Episodes in the order of their ids, which count, and the profile."""
        return self._held

    def search(self, text: str, top_k: int, now_us: int) -> Sequence[tuple[str, float]]:
        """Episodes. The profile is not searched."""
        if not self._held:
            return []
        found = self._call("search", now_us, text=text, top_k=min(top_k, 100), method=self._method)
        hits = [(native, round(float(score), 6)) for native, score in found]
        return sorted(
            hits, key=lambda hit: (-hit[1], hit[0])
        )  # a copy's index has equal ones in another order

    def stored_bytes(self) -> int:
        """Texts and a vector each: the atomic facts and what indexes take are not counted."""
        return sum(len(held.text.encode()) + 4 * self._settings.dimensions for held in self._held.values())

    def fork(self, settings: Settings) -> EverMemOS:
        """A copy of its root, whose process has ended before."""
        self._stop()
        return EverMemOS(settings, self)

    def close(self) -> None:
        """End its process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _stop(self) -> None:
        """Let its process write all that it holds, and end."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        finally:
            self.close()

    def _call(self, do: str, now_us: int, **arguments: Any) -> Any:
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        request = json.dumps({"do": do, "now_us": now_us, **arguments})
        process.stdin.write(request.encode() + b"\n")
        process.stdin.flush()
        answer = json.loads(_line(process) or '{"failed": "its process ended"}')
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        return answer["said"]

    def _start(self) -> subprocess.Popen[bytes]:
        settings = self._settings
        self._root.mkdir(exist_ok=True)
        strategies = [f"[strategies.{name}]\nmax_retries = 0\n" for name in _STRATEGIES]
        strategies.append("[strategies.reflect_episodes]\nenabled = false\n")
        (self._root / "ome.toml").write_text("".join(strategies))
        model = {"MODEL": settings.model, "API_KEY": "unused", "BASE_URL": settings.base_url}
        embedder = {**model, "MODEL": settings.embedder, "DIM": settings.dimensions, "MAX_RETRIES": 0}
        variables = {
            "EVEROS_ROOT": self._root,
            "EVEROS_DISABLE_CASCADE": 1,
            "EVEROS_MEMORIZE__MODE": "chat",
            "EVEROS_MEMORY__TIMEZONE": "UTC",
            "EGOSTREAM_SEED": settings.seed,
            **{f"EVEROS_LLM__{name}": value for name, value in model.items()},
            **{f"EVEROS_EMBEDDING__{name}": value for name, value in embedder.items()},
            "EVEROS_LLM__TIMEOUT_SECONDS": CALL_S,  # the gateway has deadlines of its own
            "EVEROS_EMBEDDING__TIMEOUT_SECONDS": CALL_S,
        }
        environment = os.environ | {name: str(value) for name, value in variables.items()}
        pipe = subprocess.PIPE
        command = [sys.executable, "-s", "-P", str(_PROGRAM)]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, bufsize=0)


def _turn(message: Message) -> dict[str, Any]:
    """A message as EverOS wants it: what is no turn was perceived by the user."""
    speaker = message.speaker if message.speaker in SPEAKERS else _USER
    return {
        "sender_id": speaker,
        "sender_name": speaker,
        "role": speaker,
        "timestamp": message.event_time_us // 1000,
        "content": message.text,
    }


def _text(item: Mapping[str, Any]) -> str:
    if "episode" in item:
        said_us = item["timestamp"].replace("T", " ").partition(".")[0].removesuffix("Z")
        return f"{item['subject']} [{said_us}]\n{item['episode']}"
    return json.dumps(item["profile_data"], ensure_ascii=False, sort_keys=True)


def _line(process: subprocess.Popen[bytes]) -> bytes:
    """Its next line; empty where it ended, or took too long."""
    assert process.stdout is not None
    end_s = time.monotonic() + CALL_S
    said = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not said.endswith(b"\n"):
            if not selector.select(max(0.0, end_s - time.monotonic())):
                return b""
            part = os.read(process.stdout.fileno(), 1 << 20)
            if not part:
                return b""
            said += part
    return said


DRIVER = EverMemOS
