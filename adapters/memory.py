"""The memory-system seam: what a memory system is given, gives back, and must be able to do.

Each trajectory runs on a branch of the memory as it was after one segment, while ingest goes on. What a system can do
for that it declares as `Capabilities.fork`; take the first that it can keep:

`cheap`   It has `fork()`, which costs next to nothing.
`copy`    Its whole state lies in the folder `context.directory`, and it is `Copyable`: `flush` makes all of it
          durable, and another instance made on a copy of that folder is the same memory, with the same ids of records.
          Whatever else belongs to the state (a field in memory, a counter) `flush` writes there as well. A store that
          can't be copied while it is open may be closed by `flush`, and opened again by the next call.
          Costs a copy for each segment that trajectories may begin on, and one for each trajectory.
`replay`  A branch is a new instance that ingests the stream again from its first segment. Costs that many ingests
          for each trajectory, and is right only if they give the same deltas each time, ids of records included: a
          branch whose deltas are others than its lane's is unjudged. Draw ids from the segment, and seeds from the
          context.
`none`    There is one memory and no other. It runs with `--isolation shared` alone.

With `copy` and `replay` there is no `fork`, and many instances live side by side, each with a folder of its own; one
that can't share a process starts its own in `prepare` and ends it in `aclose`. An instance is made on the event loop,
so let the constructor be quick, and load in `prepare` (`Preparable`), which branches await as well.
examples/directory_memory.py is a whole one. `egostream systems check NAME` tells whether a system keeps what it
declares, and all else that runs rely on (docs/your-memory.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, Protocol, Self, runtime_checkable

import msgspec

from adapters.embedder import Embedder
from adapters.gateway import LaneGateway
from adapters.model import Model
from adapters.prompt import PromptLanguage
from simulator.errors import ConfigError
from simulator.events import MemoryRecord, ObservationEvent, RetrievedRecord, Subject, Turn, Usage


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """One closed segment of a stream: its observations in order."""

    stream: str
    segment: int
    day: str
    segment_id: int
    start_time_us: int
    end_time_us: int
    observations: tuple[ObservationEvent, ...]

    @property
    def text(self) -> str:
        """All observations, one a line."""
        return "\n".join(o.text for o in self.observations)


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """What one ingest or commit newly wrote or changed. `stored_bytes`: what it added to what is kept (texts
    in UTF-8 and vectors; indexes are not counted)."""

    records: tuple[MemoryRecord, ...] = ()
    stored_bytes: int = 0
    usage: Usage = Usage()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the person asks. `history`: the turns of this conversation so far, the feedback last for R_F;
    `event_time_us`: the simulated now."""

    text: str
    phase: Literal["R1", "R_F", "R2"]
    history: tuple[Turn, ...] = ()
    event_time_us: int = 0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, and the records that it rests on, best first: each with the id, text and event time with which a
    delta of the lane, or this trajectory's commit, named it (the audit holds them against each other).

    `first_token_s`: how long after the call began the answer's first token was there, of a system that streams its
    answers; None says nothing. It is measured, so it goes into no event, but into the header `first_token_us`.
    """

    text: str
    retrieved: tuple[RetrievedRecord, ...] = ()
    usage: Usage = Usage()
    first_token_s: float | None = None


class Interaction(msgspec.Struct, frozen=True, kw_only=True):
    """A finished conversation to take into memory. `id` is unique within the lane."""

    id: str
    turns: tuple[Turn, ...]
    event_time_us: int


Fork = Literal["cheap", "copy", "replay", "none"]


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a memory system declares. `fork`: how its branches can be made, see above. `privileged`: it is handed
    the evidence, so it is an upper bound and no competitor. `answers`: `run`, it answers by `LaneContext.responder`
    from what it found; `own`, it answers by itself. `model`: the configured model that its ingests and commits ask;
    `prompts`: those of `adapters/prompts` that it asks with; `embedder`: the configured one that makes its vectors.
    `gateway`: it asks them over HTTP, by `LaneContext.gateway`; without an `embedder` its vectors are the bundled
    encoder's. `folder`: it needs `LaneContext.directory`, though it forks. `implementation`: what else makes it another
    system, such as a version; stands in the run's identity. `exempt`: cases of `adapters.conformance` that it is not
    meant to pass, and why: `egostream systems check` says so instead of running them."""

    fork: Fork = "cheap"
    privileged: bool = False
    answers: Literal["run", "own"] = "own"
    model: str = ""
    prompts: tuple[str, ...] = ()
    embedder: str = ""
    gateway: bool = False
    folder: bool = False
    implementation: str = ""
    exempt: dict[str, str] = {}

    @property
    def asks(self) -> bool:
        """Whether it asks any configured model."""
        return bool(self.model or self.embedder)

    @property
    def in_folder(self) -> bool:
        """Whether each memory is made with a folder."""
        return self.folder or self.fork != "cheap"


class Responder(Protocol):
    """Turns what a memory found into an answer: the same for all systems of a run."""

    async def respond(self, request: Request, retrieved: Iterable[RetrievedRecord]) -> Answer:
        """Answer from records, best first; the answer's `retrieved` are those that were used. May raise ModelError."""


class Sessions(Protocol):
    """The segments in which records lie (`adapters.session_values`)."""

    def whole(self, retrieved: Iterable[RetrievedRecord], now_us: int) -> Sequence[RetrievedRecord]:
        """The segments of some records that have ended by now, each once, where its best record stands."""


class LaneContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane's memory system is built with, beside its own options. The same for every system of a run,
    so that they are compared like for like. `anchors` is filled for privileged systems alone.

    `responder`: how answers are made from records; None stands for extraction under the word budget
    (`adapters.responder.respond` is the way to it). `model_of`, `embedder_of`: the configured model of a name (raises
    ConfigError). `gateway`: the same models over HTTP (docs/gateway.md), for a system that declares it.
    `language`: in which models are asked. `ranked`: answers name all that was retrieved, also what their budget did not
    hold, since rankings are what is measured. `sessions`: what answers are made from in place of records.

    `directory`: a folder of this one memory's own, for systems that declare another `fork` than `cheap`: empty, or a
    copy of the one of the memory that it branches from. It is deleted once the memory is closed and needed no more. For
    those that fork and declare `folder`: one for the lane's memory and all its forks. `logs`: where it may leave for
    people what its own processes say; None where nobody would look.
    """

    lane: str
    stream: str
    seed: int = 0
    top_k: int = 10
    word_budget: int = 500
    anchors: tuple[Subject, ...] = ()
    directory: Path | None = None
    logs: Path | None = None
    responder: Responder | None = None
    model_of: Callable[[str], Model] | None = None
    embedder_of: Callable[[str], Embedder] | None = None
    gateway: LaneGateway | None = None
    language: PromptLanguage = "en"
    ranked: bool = False
    sessions: Sessions | None = None

    def model(self, name: str) -> Model:
        """A configured model. Raises ConfigError where there is none of that name, or none at all."""
        if self.model_of is None:
            raise ConfigError(f"no model {name!r}: name the file that configures it with --models")
        return self.model_of(name)

    def embedder(self, name: str) -> Embedder:
        """A configured embeddings model. Raises ConfigError as `model` does."""
        if self.embedder_of is None:
            raise ConfigError(f"no model {name!r}: name the file that configures it with --models")
        return self.embedder_of(name)


@runtime_checkable
class MemorySystem(Protocol):
    """One per lane. The agent calls `ingest` one segment at a time; `answer` and `commit` run on forks, many
    at once. One that can't fork is never called while another call of it is under way. Anything raised makes that one
    result unjudged, never wrong."""

    async def ingest(self, segment: Segment) -> Delta:
        """Take in one closed segment; say what was newly written or changed."""

    async def answer(self, request: Request) -> Answer:
        """Answer from what is stored. Must not change what later answers see."""

    async def commit(self, interaction: Interaction) -> Delta:
        """Take a finished conversation into memory; say what was newly written or changed."""

    def fork(self) -> Self:
        """A cheap and isolated copy: later writes on either side stay there."""

    async def aclose(self) -> None:
        """Let go of what is held outside this process's memory."""


@runtime_checkable
class Preparable(Protocol):
    """A memory system that loads something before its first segment. Awaited before the lane says that it is ready,
    so that loading a model does not count as the latency of an ingest."""

    async def prepare(self) -> None:
        """Load what is needed. What it raises is logged; the first ingest will meet it again."""


@runtime_checkable
class Copyable(Protocol):
    """A memory system that declares `fork="copy"`."""

    @property
    def directory(self) -> Path:
        """The `LaneContext.directory` that it was made with."""

    async def flush(self) -> None:
        """Make everything durable in `directory`. Nothing there may change between this and the next call."""
