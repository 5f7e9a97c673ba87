"""MemoryOS of BAI-LAB (folder `memoryos-pypi` of its repository): the newest pairs of turns in a short-term memory,
older ones as pages in sessions of one topic, and a profile and knowledge drawn from sessions that are often visited.

Its files are not written: each is written whole, several times a change, and none is ever read here.

Short-term turns have no ids and get new ones as pages: here a pair of turns is one record all along, which is updated
when it becomes a page, with the overview of its conversation.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import importlib
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from ..driver import Held, Message, Settings, moment
from ..patching import (
    SPEAKERS,
    CurrentClient,
    Inside,
    SentenceTransformer,
    Threads,
    Vectors,
    from_checkout,
    inside,
    pieces,
    silent,
    stand_in,
    unit_of,
)

importlib.import_module("faiss")

NOTED: Final = "Noted."
"""What the assistant says to observations: MemoryOS takes in pairs of turns, and drops one that has an empty side."""

_LOADING: Final = threading.Lock()
_MODULES: Final = ("utils", "short_term", "mid_term", "long_term", "updater", "retriever", "memoryos")
_PARTS: Final = (
    "short_term_memory",
    "mid_term_memory",
    "user_long_term_memory",
    "assistant_long_term_memory",
)
_TIME: Final = "%Y-%m-%d %H:%M:%S"
_USER: Final = "user"


@functools.cache
def _package(source: Path) -> Any:
    folder = source / "memoryos-pypi"
    stand_in("sentence_transformers", SentenceTransformer=SentenceTransformer)
    package = from_checkout("memoryos", folder / "__init__.py")
    patches = {
        "get_timestamp": lambda: inside().now.strftime(_TIME),
        "generate_id": lambda prefix="id": inside().named(prefix),
        "get_embedding": _embedding,  # without its cache, which all memories of a process would share
        "ThreadPoolExecutor": Threads,
        "OpenAI": CurrentClient,
    }
    for name in _MODULES:
        module = vars(importlib.import_module(f"memoryos.{name}"))
        module.update({name: patch for name, patch in patches.items() if name in module}, print=silent)
    return package


def _embedding(text: str, *_: object, **__: object) -> Vectors:
    vector: Vectors = inside().embed([text])[0]
    return vector


class _Item(NamedTuple):
    """What is held under an id. `state`: the system's own object."""

    native: str
    text: str
    state: Mapping[str, Any]


class MemoryOS:
    """One memory. Options: `unit`; `short_term_capacity` (7), `mid_term_capacity` (2000), `knowledge_capacity` (100),
    `heat_threshold` (5) and `similarity_threshold` (0.6)."""

    searching_changes: ClassVar[bool] = True  # visits heat a session, and hot ones are analysed

    def __init__(self, settings: Settings) -> None:
        self._inside = Inside(settings)
        self._unit = unit_of(settings)
        self._system = self._opened(settings)

    def _opened(self, settings: Settings) -> Any:
        assert settings.source is not None
        with _LOADING:
            package = _package(settings.source)
        option = settings.options.get
        with self._inside.called(0):
            system = package.Memoryos(
                user_id=_USER,
                openai_api_key="unused",
                data_storage_path=str(settings.directory),
                llm_model=settings.model,
                embedding_model_name=settings.embedder,
                short_term_capacity=int(option("short_term_capacity", 7)),
                mid_term_capacity=int(option("mid_term_capacity", 2000)),
                long_term_knowledge_capacity=int(option("knowledge_capacity", 100)),
                mid_term_heat_threshold=float(option("heat_threshold", 5.0)),
                mid_term_similarity_threshold=float(option("similarity_threshold", 0.6)),
            )
        for part in _PARTS:
            getattr(system, part).save = silent
        return system

    def ingest(self, messages: Sequence[Message], event_time_us: int) -> None:
        """One pair for a segment, or with `unit=observation` for each observation; of a conversation, its pairs."""
        for user, assistant, at_us in _pairs(messages, self._unit):
            with self._inside.called(at_us):
                self._system.add_memory(user, assistant, timestamp=moment(at_us).strftime(_TIME))

    def records(self) -> Mapping[str, Held]:
        """The profile, the knowledge, the sessions' summaries, and the pairs of turns, oldest first."""
        held: dict[str, Held] = {}
        for item in itertools.chain(*self._items()):
            held.setdefault(item.native, Held(item.text))  # of a page in two sessions, the first is altered
        return held

    def search(self, text: str, top_k: int, now_us: int) -> Sequence[tuple[str, float]]:
        """What its prompt shows to who answers: the short-term turns, nearest first, the pages and the knowledge that
        it found, and the profile. They take turns, so that each kind is there however few are wanted. MemoryOS gives
        orders and no scores: the score is 1 / rank."""
        names = {id(item.state): item.native for item in itertools.chain(*self._items())}
        self._system.retriever.retrieval_queue_capacity = top_k
        with self._inside.called(now_us):
            turns = self._short_term(text)
            found = self._system.retriever.retrieve_context(text, _USER, top_k_knowledge=top_k)
        kinds = (
            turns,
            found["retrieved_pages"],
            found["retrieved_user_knowledge"],
            found["retrieved_assistant_knowledge"],
            self._system.user_long_term_memory.user_profiles.values(),
        )
        rounds = itertools.chain(*itertools.zip_longest(*kinds))
        natives = list(dict.fromkeys(names[id(state)] for state in rounds if state is not None))[:top_k]
        return [(native, 1 / rank) for rank, native in enumerate(natives, 1)]

    def _short_term(self, text: str) -> list[Mapping[str, Any]]:
        """All of it, the nearest to a text first by the vectors that it gives pages, and of equals the newest. Its
        prompt leaves none out: by age, the oldest would be lost wherever fewer are wanted."""
        turns = list(reversed(self._system.short_term_memory.get_all()))
        if not turns:
            return []
        asked, *vectors = self._inside.embed([text, *map(_page_text, turns)])
        near = [float(vector @ asked) for vector in vectors]
        return [turns[place] for place in sorted(range(len(turns)), key=lambda place: -near[place])]

    def _items(self) -> tuple[Iterator[_Item], Iterator[_Item]]:
        return self._long_term(), self._turns()

    def _long_term(self) -> Iterator[_Item]:
        count = _Count()
        for profile in self._system.user_long_term_memory.user_profiles.values():
            yield _Item("profile", profile["data"], profile)
        known = {
            "user": self._system.user_long_term_memory.knowledge_base,
            "assistant": self._system.assistant_long_term_memory.assistant_knowledge,
        }
        for whose, entries in known.items():
            for entry in entries:
                text = f"{entry['knowledge']} (Recorded: {entry['timestamp']})"
                yield _Item(count.unique(_digest(whose, text)), text, entry)
        for session in self._system.mid_term_memory.sessions.values():
            keywords = ", ".join(map(str, session["summary_keywords"]))
            text = f"{session['summary']}\nKeywords: {keywords}" if keywords else session["summary"]
            yield _Item(session["id"], text, session)

    def _turns(self) -> Iterator[_Item]:
        count, natives = _Count(), dict[str, str]()
        for session in self._system.mid_term_memory.sessions.values():
            for page in session["details"]:
                native = natives.get(page["page_id"]) or count.unique(_turn_id(page))
                natives[page["page_id"]] = native
                text = f"{_turn_text(page)}\nConversation chain overview: {page['meta_info']}"
                yield _Item(native, text, page)
        for turn in self._system.short_term_memory.get_all():
            yield _Item(count.unique(_turn_id(turn)), _turn_text(turn), turn)

    def stored_bytes(self) -> int:
        """Texts and vectors, at four bytes a number."""
        texts = sum(len(held.text.encode()) for held in self.records().values())
        names = ("page_embedding", "summary_embedding", "knowledge_embedding")
        items = itertools.chain(*self._items())
        return texts + 4 * sum(len(item.state.get(name, ())) for item in items for name in names)

    def fork(self, settings: Settings) -> MemoryOS:
        """Copies what later changes alter in place: a vector never is."""
        child = copy.copy(self)
        child._inside = self._inside.fork(settings)
        mine, its = self._system, child._opened(settings)
        child._system = its
        its.short_term_memory.memory.extend(map(dict, mine.short_term_memory.memory))
        its.mid_term_memory.sessions = {
            native: {**session, "details": [dict(page) for page in session["details"]]}
            for native, session in mine.mid_term_memory.sessions.items()
        }
        its.mid_term_memory.access_frequency.update(mine.mid_term_memory.access_frequency)
        its.mid_term_memory.heap = list(mine.mid_term_memory.heap)
        for name in _PARTS[2:]:
            old, new = getattr(mine, name), getattr(its, name)
            new.user_profiles = {user: dict(profile) for user, profile in old.user_profiles.items()}
            new.knowledge_base.extend(old.knowledge_base)
            new.assistant_knowledge.extend(old.assistant_knowledge)
        its.updater.last_evicted_page_for_continuity = copy.copy(
            mine.updater.last_evicted_page_for_continuity
        )
        return child

    def close(self) -> None:
        """Let go of its threads."""
        self._system.client.shutdown()


class _Count:
    """Tells apart what is the same."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def unique(self, native: str) -> str:
        """The id, with a number where it is not the first of its kind."""
        number = self._seen[native] = self._seen.get(native, 0) + 1
        return native if number == 1 else f"{native}/{number}"


def _pairs(messages: Sequence[Message], unit: str) -> Iterator[tuple[str, str, int]]:
    """What a user said, what was answered, and when."""
    if not all(message.speaker in SPEAKERS for message in messages):
        for piece in pieces(messages, unit):
            yield "\n".join(message.text for message in piece), NOTED, piece[-1].event_time_us
        return
    asked: Message | None = None
    for turn in messages:
        if turn.speaker == "assistant":
            yield asked.text if asked else NOTED, turn.text or NOTED, turn.event_time_us
            asked = None
            continue
        if asked:
            yield asked.text, NOTED, asked.event_time_us
        asked = turn
    if asked:
        yield asked.text, NOTED, asked.event_time_us


def _turn_id(turn: Mapping[str, Any]) -> str:
    return _digest(turn["timestamp"], turn["user_input"], turn["agent_response"])


def _turn_text(turn: Mapping[str, Any]) -> str:
    return f"User: {turn['user_input']}\nAssistant: {turn['agent_response']}\nTime: {turn['timestamp']}"


def _page_text(turn: Mapping[str, Any]) -> str:
    """What MemoryOS makes the vector of a page of."""
    return f"User: {turn['user_input']} Assistant: {turn['agent_response']}"


def _digest(*texts: str) -> str:
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=12).hexdigest()


DRIVER = MemoryOS
