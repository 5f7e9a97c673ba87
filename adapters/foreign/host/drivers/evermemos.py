"""EverMemOS as it is published now, EverOS (`everos` on PyPI, 1.0 and later): conversations are cut into episodes that
a model narrates, with atomic facts and a profile, in Markdown files that SQLite and LanceDB index.

It takes its root, models and state from its process, so each memory that is used has a process of its own. One is
started by the first call that needs it and ended by the first fork, so that what is only kept has none. To import
EverOS takes far longer than to open it, so on Linux they are forked from a process that has, and did nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from ..driver import Held, Message, Settings
from ..patching import SPEAKERS, pieces, unit_of

CALL_S: Final = 900.0
STOP_S: Final = 60.0
_PROGRAM: Final = Path(__file__).parents[1] / "everos_process.py"
_STRATEGIES: Final = ("extract_atomic_facts", "trigger_profile_clustering", "extract_user_profile")
_USER: Final = "user"
_FORKS: Final = sys.platform == "linux"  # elsewhere, what is imported may not bear it


class EverMemOS:
    """One memory. Options: `unit`; `method`: how it searches, `hybrid` (the default), `vector` or `keyword`."""

    searching_changes: ClassVar[bool] = False

    def __init__(self, settings: Settings, origin: EverMemOS | None = None) -> None:
        self._unit = unit_of(settings)
        self._method = str(settings.options.get("method", "hybrid"))
        self._settings = settings
        self._root = settings.directory / "everos"
        self._held: dict[str, Held] = {}
        self._sessions = 0
        self._process: _Process | None = None
        if origin is None:
            _parent.prepare(settings.dimensions)
        else:
            self._held, self._sessions = dict(origin._held), origin._sessions
            if origin._root.exists():
                shutil.copytree(origin._root, self._root, ignore=_left_behind)

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
            self._process.close()
            self._process = None

    def _stop(self) -> None:
        """Let its process write all that it holds, and end."""
        if self._process is not None:
            self._process.shut_down()
            self.close()

    def _call(self, do: str, now_us: int, **arguments: Any) -> Any:
        process = self._process = self._process or self._start()
        try:
            return process.ask({"do": do, "now_us": now_us, **arguments})
        except BaseException:
            self.close()  # it may be half open, or go on with what has failed
            raise

    def _start(self) -> _Process:
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
            "EVEROS_CASCADE__OPTIMIZE_PRUNE_RETENTION_SECONDS": 0,  # nobody else reads, and each copy would have all
            "EVEROS_MEMORIZE__MODE": "chat",
            "EVEROS_MEMORY__TIMEZONE": "UTC",
            "EGOSTREAM_SEED": settings.seed,
            **{f"EVEROS_LLM__{name}": value for name, value in model.items()},
            **{f"EVEROS_EMBEDDING__{name}": value for name, value in embedder.items()},
            "EVEROS_LLM__TIMEOUT_SECONDS": CALL_S,  # the gateway has deadlines of its own
            "EVEROS_EMBEDDING__TIMEOUT_SECONDS": CALL_S,
        }
        return _Process({name: str(value) for name, value in variables.items()})


class _Parent:
    """Starts processes: where they are forked, by asking the one that has imported EverOS."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ours: socket.socket | None = None
        self._dimensions = 0

    def prepare(self, dimensions: int) -> None:
        """Begin to import EverOS, which wants to know the length of vectors as it is imported."""
        self._dimensions = dimensions
        if _FORKS:
            with self._lock:
                self._running()

    def start(self, theirs: socket.socket) -> None:
        """A process that serves on that socket. Raises OSError."""
        if _FORKS:
            with self._lock:
                socket.send_fds(self._running(), [b"+"], [theirs.fileno()])
        else:
            self._open("serve", theirs)

    def _running(self) -> socket.socket:
        if self._ours is None or self._process is None or self._process.poll() is not None:
            if self._ours is not None:
                self._ours.close()
            self._ours, theirs = socket.socketpair()
            with theirs:
                self._process = self._open("fork", theirs)
        return self._ours

    def _open(self, do: str, theirs: socket.socket) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-s", "-P", str(_PROGRAM), do, str(theirs.fileno())]
        environment = os.environ | {"EVEROS_EMBEDDING__DIM": str(self._dimensions)}
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, env=environment, pass_fds=[theirs.fileno()]
        )


_parent = _Parent()


class _Process:
    """A process with one EverOS. `variables`: what is added to its environment."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(CALL_S)
        self._answers = self._socket.makefile("rb")
        with theirs:
            _parent.start(theirs)
        self._say(variables)

    def ask(self, request: Mapping[str, Any]) -> Any:
        """What it says. Raises RuntimeError where it fails, is gone, or is late."""
        try:
            self._say(request)
            line = self._answers.readline()
        except OSError as error:
            raise RuntimeError(f"its process ended, or is late: {error}") from error
        answer = json.loads(line or '{"failed": "its process ended"}')
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        return answer["said"]

    def shut_down(self) -> None:
        """Let it write all that it holds. Raises as `ask` does."""
        self._socket.settimeout(STOP_S)
        self.ask({"do": "close"})

    def close(self) -> None:
        """Hang up, upon which it ends, and wait until it has."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.settimeout(STOP_S)
            self._answers.read()
        self._answers.close()
        self._socket.close()

    def _say(self, said: Mapping[str, Any]) -> None:
        self._socket.sendall(json.dumps(said).encode() + b"\n")


def _left_behind(folder: str, names: list[str]) -> set[str]:
    """What a copy does without: locks, and folders of indices that are no more, some of which each segment leaves."""
    locks = {name for name in names if name.endswith(".lock")}
    indices = names if os.path.basename(folder) == "_indices" else []
    return locks | {name for name in indices if not os.listdir(os.path.join(folder, name))}


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


DRIVER = EverMemOS
