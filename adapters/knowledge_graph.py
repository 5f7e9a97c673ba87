"""A graph of entities, of relations between them and of the chunks of text that name them, whose forks cost O(1).

Nothing is ever changed in place: a node that grows gets one more version, at the end. What a graph wrote since it was
created or forked is its trunk, and a fork is a link to a prefix of trunks (`adapters.forks`): a node is its newest
version in what a graph sees, so neither side of a fork ever sees what the other writes later.

Relations and chunks hang on entities. A search ranks five ways, and fuses these by reciprocal rank:

    entities near the query          chunks near the query
    └─ relations on these            └─ chunks that name the entities found
       └─ the entities at their other ends
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from adapters import dense
from adapters.forks import Forks, Prefix
from adapters.ranking import Hit, fuse
from simulator.events import MemoryRecord

Kind: TypeAlias = Literal["entity", "relation", "chunk"]
Key: TypeAlias = tuple[Kind, str, *tuple[str, ...]]
"""What a node is merged by: its kind, and an entity's name, the names of a relation's two ends, or a chunk's id."""

_KINDS: tuple[Kind, ...] = ("entity", "relation", "chunk")


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an entity, a relation or a chunk. `on`: the entities that it hangs on, the same in all versions;
    `record`: how deltas and answers name this version."""

    key: Key
    record: MemoryRecord
    name: str = ""
    type: str = ""
    description: str = ""
    on: tuple[Key, ...] = ()


class Found(NamedTuple):
    """A node that a search found, and its score (more is better)."""

    node: Node
    score: float


class _Trunk:
    """Versions in the order of writing, and what leads to them. Shared by forks, written by its graph alone."""

    __slots__ = ("hanging", "kinds", "nodes", "vectors", "versions")

    def __init__(self, dimensions: int) -> None:
        self.nodes: list[Node] = []
        self.kinds = array("B")
        self.vectors = dense.Vectors(dimensions)
        self.versions: dict[Key, array[int]] = {}
        self.hanging: dict[Key, array[int]] = {}

    def __len__(self) -> int:
        return len(self.nodes)


class Graph(Forks[_Trunk]):
    """Nodes by key, searchable, with O(1) forks. `dimensions`: length of the nodes' vectors. Write from one thread; a
    fork may be read in another thread meanwhile."""

    __slots__ = ("_dimensions",)

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self._dimensions = dimensions

    def add(self, nodes: Sequence[Node], vectors: NDArray[np.float32]) -> None:
        """Write versions, new or of nodes that are there, with one vector each."""
        if vectors.shape != (len(nodes), self._dimensions):
            raise ValueError(
                f"{len(nodes)} nodes of {self._dimensions} dimensions with vectors of {vectors.shape}"
            )
        if not nodes:
            return
        if self._own is None:
            self._own = _Trunk(self._dimensions)
        trunk = self._own
        trunk.vectors.append(vectors)
        for node in nodes:
            position, on = len(trunk.nodes), () if self.get(node.key) else node.on
            trunk.nodes.append(node)
            trunk.kinds.append(_KINDS.index(node.key[0]))
            trunk.versions.setdefault(node.key, array("I")).append(position)
            for entity in on:
                trunk.hanging.setdefault(entity, array("I")).append(position)

    def __iter__(self) -> Iterator[Node]:
        """The newest version of each node, in the order of these versions."""
        rows = _Rows(self._parts())
        return (node for row in range(len(self)) if self._row((node := rows[row]).key) == row)

    def get(self, key: Key) -> Node | None:
        """The newest version of a node."""
        for part in self._newest_first():
            if (position := _last_below(part.trunk.versions.get(key), part.length)) is not None:
                return part.trunk.nodes[position]
        return None

    def search(self, vector: NDArray[np.float32], k: int) -> list[Found]:
        """The k best nodes for a query's vector, by the five rankings above, each of k nodes at most."""
        parts = self._parts()
        rows = _Rows(parts)
        scores = dense.scores([(part.trunk.vectors, part.length) for part in parts], vector)

        score_of: list[float] = scores.tolist()

        def ranked(candidates: Iterable[int]) -> list[int]:
            return sorted(candidates, key=lambda row: (-score_of[row], row))[:k]

        entities = self._nearest("entity", scores, rows, k)
        chunks = self._nearest("chunk", scores, rows, k)
        on_these = {row for entity in entities for row in self._hanging(rows[entity].key, parts)}
        relations = ranked(row for row in on_these if rows[row].key[0] == "relation")
        naming = ranked(row for row in on_these if rows[row].key[0] == "chunk")
        ends = (self._row(end) for relation in relations for end in rows[relation].on)
        others = list(dict.fromkeys(row for row in ends if row is not None and row not in entities))[:k]
        rankings = (entities, chunks, relations, naming, others)
        fused = fuse([[Hit(row, score_of[row]) for row in ranking] for ranking in rankings], k)
        return [Found(rows[hit.row], hit.score) for hit in fused]

    # --- what is seen -----------------------------------------------------------------------------------------

    def _row(self, key: Key) -> int | None:
        """Which of all versions a node's newest is."""
        for part in self._newest_first():
            if (position := _last_below(part.trunk.versions.get(key), part.length)) is not None:
                return part.before + position
        return None

    def _hanging(self, entity: Key, parts: Sequence[Prefix[_Trunk]]) -> Iterator[int]:
        """The newest versions of what hangs on an entity."""
        for part in parts:
            positions = part.trunk.hanging.get(entity, _NONE)
            for position in positions[: bisect_left(positions, part.length)]:
                row = self._row(part.trunk.nodes[position].key)
                assert row is not None
                yield row

    def _nearest(self, kind: Kind, scores: NDArray[np.float64], rows: _Rows, k: int) -> list[int]:
        found: list[int] = []
        candidates = np.flatnonzero(rows.kinds() == _KINDS.index(kind))
        for row in candidates[np.argsort(-scores[candidates], kind="stable")].tolist():
            if len(found) == k:
                break
            if self._row(rows[row].key) == row:  # an older version counts no more
                found.append(row)
        return found


class _Rows:
    """All versions that a graph sees, by their place."""

    def __init__(self, parts: Sequence[Prefix[_Trunk]]) -> None:
        self._parts = parts
        self._starts = [part.before for part in parts]

    def __getitem__(self, row: int) -> Node:
        part = self._parts[bisect_right(self._starts, row) - 1]
        return part.trunk.nodes[row - part.before]

    def kinds(self) -> NDArray[np.uint8]:
        parts = [np.frombuffer(part.trunk.kinds[: part.length], np.uint8) for part in self._parts]
        return np.concatenate(parts) if parts else np.empty(0, np.uint8)


_NONE: array[int] = array("I")


def _last_below(positions: array[int] | None, length: int) -> int | None:
    if positions is None or not (count := bisect_left(positions, length)):
        return None
    return positions[count - 1]
