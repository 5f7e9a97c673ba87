"""The graph and its forks against plain dictionaries, and what its search ranks."""

from __future__ import annotations

import functools
import threading
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, rule

from adapters.graph_merge import Extracted, FoundEntity, FoundRelation, Merge, entity_key
from adapters.knowledge_graph import Graph, Key, Node
from adapters.ranking import Hit, fuse
from tests.adapters import helpers
from tests.adapters.helpers import HashEmbedder

vector_of = functools.cache(helpers.vector_of)
WORDS = ["tea", "Tea", "cup", "rain", " cup", "dog"]
NAME = st.sampled_from(WORDS)
SAID = st.sampled_from(["", "is hot", "is blue", "was  lost"])
ENTITIES = st.builds(
    FoundEntity, name=st.one_of(NAME, st.just(" ")), type=st.sampled_from(["", "thing"]), description=SAID
)
RELATIONS = st.builds(FoundRelation, source=NAME, target=NAME, description=SAID)
EXTRACTED = st.builds(
    Extracted, entities=st.lists(ENTITIES, max_size=3), relations=st.lists(RELATIONS, max_size=2)
)


class Naive:
    """Dictionaries that are copied at each fork: entities and relations as (type, lines, time), and chunks."""

    def __init__(self) -> None:
        self.said: dict[Key, tuple[str, list[str], int]] = {}
        self.chunks: dict[str, tuple[str, set[Key]]] = {}

    def copied(self) -> Naive:
        other = Naive()
        other.said = {key: (kind, list(lines), time) for key, (kind, lines, time) in self.said.items()}
        other.chunks = dict(self.chunks)
        return other

    def say(self, key: Key, kind: str, said: str, time: int) -> Key:
        said = " ".join(said.split())
        old_kind, lines, old_time = self.said.get(key, ("", [], time))
        fresh = [said] if said and said not in lines else []
        if key not in self.said or fresh:
            self.said[key] = (old_kind or kind, lines + fresh, max(old_time, time))
        return key

    def take(self, number: int, text: str, found: Extracted) -> None:
        named = {
            self.say(("entity", e.name.strip().lower()), e.type, e.description, number)
            for e in found.entities
            if e.name.strip()
        }
        for r in found.relations:
            first, second = sorted((r.source.strip().lower(), r.target.strip().lower()))
            if first != second:
                named |= {self.say(("entity", end), "", "", number) for end in (first, second)}
                self.say(("relation", first, second), "", r.description, number)
        self.chunks[f"s{number}/c0"] = (text, named)


class Pair(NamedTuple):
    graph: Graph
    naive: Naive


class GraphMachine(RuleBasedStateMachine):
    pairs = Bundle("pairs")

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    @rule(target=pairs)
    def create(self) -> Pair:
        return Pair(Graph(HashEmbedder.dimensions), Naive())

    @rule(target=pairs, pair=pairs)
    def fork(self, pair: Pair) -> Pair:
        return Pair(pair.graph.fork(), pair.naive.copied())

    @rule(pair=pairs, found=EXTRACTED, text=st.sampled_from(["tea in the rain", "a dog"]))
    def write(self, pair: Pair, found: Extracted, text: str) -> None:
        graph, naive = pair
        before = {node.key: node for node in graph}
        merge = Merge(graph, f"s{self.written}")
        merge.add(text, found, self.written)
        written = tuple(merge.written.values())
        assert [node.record.op for node in written] == [
            "update" if node.key in before else "add" for node in written
        ]
        assert all(before[n.key].record.id == n.record.id for n in written if n.key in before)
        assert all(before[n.key].record.text != n.record.text for n in written if n.key in before)
        graph.add(written, np.stack([vector_of(node.record.text) for node in written]))
        naive.take(self.written, text, found)
        self.written += 1

    @rule(pair=pairs)
    def look(self, pair: Pair) -> None:
        graph, naive = pair
        nodes = {node.key: node for node in graph}
        assert len({node.record.id for node in nodes.values()}) == len(nodes)
        assert {
            key: (node.type, [line[22:] for line in node.description.splitlines()], time_of(node))
            for key, node in nodes.items()
            if key[0] != "chunk"
        } == naive.said
        assert {
            node.record.id: (node.record.text, set(node.on))
            for key, node in nodes.items()
            if key[0] == "chunk"
        } == naive.chunks
        assert all(graph.get(key) == node for key, node in nodes.items())
        assert graph.get(("entity", "nobody")) is None

    @rule(pair=pairs, query=NAME, k=st.integers(1, 4))
    def search(self, pair: Pair, query: str, k: int) -> None:
        graph = pair.graph
        found = graph.search(vector_of(query), k)
        assert [(node.key, round(score, 9)) for node, score in found] == searched(list(graph), query, k)


def time_of(node: Node) -> int:
    return node.record.event_time_us


def searched(nodes: list[Node], query: str, k: int) -> list[tuple[Key, float]]:
    """The search as its description reads, over nodes in the order of their newest versions."""
    scores = [round(float(vector_of(node.record.text) @ vector_of(query)), 6) for node in nodes]
    rows = {node.key: row for row, node in enumerate(nodes)}

    def best(kind: str, wanted: set[Key] | None = None) -> list[int]:
        of_kind = [
            row
            for row, node in enumerate(nodes)
            if node.key[0] == kind and (wanted is None or wanted & set(node.on))
        ]
        return sorted(of_kind, key=lambda row: (-scores[row], row))[:k]

    entities = best("entity")
    found = {nodes[row].key for row in entities}
    relations = best("relation", found)
    ends = [rows[end] for row in relations for end in nodes[row].on if end not in found]
    rankings = (entities, best("chunk"), relations, best("chunk", found), list(dict.fromkeys(ends))[:k])
    fused = fuse([[Hit(row, 0.0) for row in ranking] for ranking in rankings], k)
    return [(nodes[row].key, round(score, 9)) for row, score in fused]


TestGraph = GraphMachine.TestCase
TestGraph.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


THEN = "[1970-01-01 00:00:00]"


def entity(name: str, description: str = "") -> FoundEntity:
    return FoundEntity(name=name, type="", description=description)


def written(graph: Graph, origin: str, text: str, found: Extracted) -> None:
    merge = Merge(graph, origin)
    merge.add(text, found, 1)
    nodes = tuple(merge.written.values())
    graph.add(nodes, np.stack([vector_of(seen(node)) for node in nodes]))


def seen(node: Node) -> str:
    return node.name or node.record.text


def test_what_hangs_together_is_found_by_one_step() -> None:
    graph = Graph(HashEmbedder.dimensions)
    kept = FoundRelation(source="kettle", target="Anna", description="she owns it")
    written(graph, "s0", "z", Extracted(entities=[entity("Anna", "lives in Lyon")], relations=[kept]))
    others = [entity(f"kettle {letter}") for letter in "abcdefgh"]
    written(graph, "s1", "", Extracted(entities=others, relations=[]))
    for number in range(8):
        written(graph, f"s{number + 2}", f"kettle noise {number}", Extracted(entities=[], relations=[]))
    found = {node.record.text for node, _ in graph.search(vector_of("kettle"), 5)}
    assert {"kettle", f"kettle — Anna: {THEN} she owns it", f"Anna: {THEN} lives in Lyon", "z"} < found
    nearest = sorted((vector_of("kettle") @ vector_of(seen(node)), node.name) for node in graph)
    assert "Anna" not in {name for _, name in nearest[-12:]}  # by its own text it is none of the nearest


def test_unwritten_forks_share_one_link() -> None:
    graph = Graph(HashEmbedder.dimensions)
    written(graph, "s0", "tea", Extracted(entities=[entity("tea")], relations=[]))
    fork = graph.fork()
    for _ in range(10_000):
        fork = fork.fork()
    assert list(fork) == list(graph)  # no chain of empty trunks grew


def test_vectors_must_fit() -> None:
    graph = Graph(4)
    merge = Merge(graph, "s0")
    merge.add("tea", Extracted(entities=[], relations=[]), 0)
    with pytest.raises(ValueError, match="4 dimensions"):
        graph.add(tuple(merge.written.values()), np.zeros((2, 4), np.float32))
    assert len(graph) == 0


def test_a_fork_is_read_in_a_thread_while_the_graph_grows() -> None:
    graph = Graph(HashEmbedder.dimensions)
    for number in range(20):
        found = Extracted(entities=[entity("tea", f"kind {number}")], relations=[])
        written(graph, f"s{number}", f"tea {number}", found)
    fork, vector = graph.fork(), vector_of("tea")
    expected = fork.search(vector, 10)
    differing: list[object] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            if (found := fork.search(vector, 10)) != expected:
                differing.append(found)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(20, 100):
        found = Extracted(entities=[entity("tea", f"kind {number}")], relations=[])
        written(graph, f"s{number}", "tea", found)
    done.set()
    reader.join()
    assert not differing
    newest = graph.get(entity_key("tea"))
    assert newest is not None
    assert newest.description.endswith("kind 99")
