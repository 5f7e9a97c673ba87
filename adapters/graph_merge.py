"""What a model found in texts, merged into a graph: pure, the graph is only read."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from adapters.knowledge_graph import Graph, Key, Node
from simulator.events import MemoryRecord
from simulator.eventtime import format_event_time


class FoundEntity(msgspec.Struct, frozen=True, kw_only=True):
    """An entity as a model names it."""

    name: str
    type: str
    description: str


class FoundRelation(msgspec.Struct, frozen=True, kw_only=True):
    """A relation as a model names it. It has no direction."""

    source: str
    target: str
    description: str


class Extracted(msgspec.Struct, frozen=True, kw_only=True):
    """What a model extracts from one text."""

    entities: list[FoundEntity]
    relations: list[FoundRelation]


class Merge:
    """The nodes that one ingest or commit writes: new ones, and new versions of those that it says more about.

    Entities are one where their names are, but for case and white space; relations where their ends are. What is said
    of a node is added to what was said before, a line each with its time, unless it stands there already; a type stays
    as it was given first. So every version's text holds the time at which it was written, and what a branch wrote can
    be told from what another did. Ids are `origin/n0` (entities), `origin/r0` (relations) and `origin/c0` (chunks), in
    the order in which they were found. A node's time is that of the newest text that added to it.
    """

    def __init__(self, graph: Graph, origin: str) -> None:
        self._graph = graph
        self._origin = origin
        self._written: dict[Key, Node] = {}
        self._ids: dict[str, int] = {}

    @property
    def written(self) -> Mapping[Key, Node]:
        """By key, in the order of writing."""
        return self._written

    def add(self, text: str, found: Extracted, event_time_us: int) -> None:
        """Take in one chunk and what was found in it."""
        named: dict[Key, None] = {}
        for entity in found.entities:
            if name := one_line(entity.name):
                named[entity_key(name)] = None
                self._grow(entity_key(name), name, one_line(entity.type), entity.description, event_time_us)
        for relation in found.relations:
            names = one_line(relation.source), one_line(relation.target)
            first, second = sorted(entity_key(name) for name in names)
            if first == second or not all(names):
                continue
            for name in names:
                named[entity_key(name)] = None
                self._grow(entity_key(name), name, "", "", event_time_us)
            key: Key = ("relation", first[1], second[1])
            self._grow(key, " — ".join(names), "", relation.description, event_time_us, (first, second))
        if text:
            record = MemoryRecord(id=self._next_id("c"), text=text, event_time_us=event_time_us)
            self._written["chunk", record.id] = Node(key=("chunk", record.id), record=record, on=tuple(named))

    def describe(self, key: Key, description: str) -> None:
        """Say in other words what is said of a node that is written. Where these are the words that the graph holds
        already, it has not changed."""
        node, stored = self._written[key], self._graph.get(key)
        if stored is not None and description in _said(stored):
            del self._written[key]
            return
        line = _line(description, node.record.event_time_us)
        self._written[key] = _described(node, line, node.record)

    def _grow(
        self, key: Key, name: str, kind: str, said: str, event_time_us: int, on: tuple[Key, ...] = ()
    ) -> None:
        said = one_line(said)
        stored = self._graph.get(key)
        node = self._written.get(key) or stored
        if node is None:
            record_id = self._next_id("r" if on else "n")
            record = MemoryRecord(id=record_id, text="", event_time_us=event_time_us)
            node = Node(key=key, record=record, name=name, type=kind, on=on)
        elif not said or said in _said(node):
            return
        lines = [node.description] if node.description else []
        if said:
            lines.append(_line(said, event_time_us))
        record = msgspec.structs.replace(
            node.record,
            event_time_us=max(node.record.event_time_us, event_time_us),
            op="add" if stored is None else "update",
        )
        node = msgspec.structs.replace(node, type=node.type or kind)
        self._written[key] = _described(node, "\n".join(lines), record)

    def _next_id(self, letter: str) -> str:
        number = self._ids.get(letter, 0)
        self._ids[letter] = number + 1
        return f"{self._origin}/{letter}{number}"


def entity_key(name: str) -> Key:
    """What an entity of this name is merged by."""
    return ("entity", one_line(name).casefold())


def one_line(text: str) -> str:
    """The text with single spaces for white space."""
    return " ".join(text.split())


def _line(said: str, event_time_us: int) -> str:
    return f"[{format_event_time(event_time_us)}] {said}"


def _said(node: Node) -> list[str]:
    """What is said of a node, without the times."""
    return [line.partition("] ")[2] for line in node.description.split("\n")]


def _described(node: Node, description: str, record: MemoryRecord) -> Node:
    head = f"{node.name} ({node.type})" if node.type else node.name
    text = f"{head}: {description}" if description else head
    return msgspec.structs.replace(
        node, description=description, record=msgspec.structs.replace(record, text=text)
    )
