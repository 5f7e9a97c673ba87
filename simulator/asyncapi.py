"""What travels, as an AsyncAPI 3 document: made from the event structs and the topics, so that it can't
differ from what the code reads and writes. Pure: structs in, a dict for JSON out, the same each time.

Channels are the topics, messages are the kinds of events; operations are those of an attached agent.
"""

from __future__ import annotations

import inspect
import typing
from typing import Any, Final

import msgspec

from adapters.metering import MODEL_CACHED, MODEL_US
from simulator.events import (
    SCHEMA_VERSION,
    AnyEvent,
    CommittedEvent,
    DeltaEvent,
    Event,
    LaneEvent,
    MemoryRecord,
    ReadyEvent,
    ResponseEvent,
    RetrievedRecord,
    kind_of,
)
from simulator.topics import TOPIC_OF_KIND, Topics

ASYNCAPI_VERSION: Final = "3.0.0"
KAFKA_BINDING_VERSION: Final = "0.5.0"

_DESCRIPTION: Final = """\
A run of egostream is an event log on Kafka: one topic for each channel here. An attached agent is a memory
system that takes part by these topics alone.

1. Read `control` from the beginning. Skip what comes before `run_started`, which tells the streams, the
   number of partitions, the isolation, `identity.top_k` (the most records that an answer may use) and
   `identity.word_budget`.
2. Subscribe to `observations`, `tasks`, `feedback` and `commits` from the beginning, with isolation level
   `read_committed`. Then, and not earlier, send `ready`. Nothing is replayed before.
3. Keep one memory for each stream; agent and stream are the lane `<system>@<stream>`. Skip what is of other
   lanes.
4. At each `segment_closed`, take in the observations since the one before, and send a `delta`. Keep a
   snapshot until `segment_released` names that segment or a later one.
5. Answer a `task` T1 from a fork of the snapshot of its `segment`; that fork is the trajectory's branch.
   Answer T2, and `feedback` of type `revise`, from the branch. Take a `commit` into it and send `committed`;
   with `keep_uncommitted` also keep it as it was, for the T2 whose `arm` is `uncommitted`.
   `trajectory_closed` ends the branch. In isolation `shared` everything happens on the one memory. Where
   `run_started` has `questions` (a load), time waits for nobody and a T1 is all that there is of a trajectory:
   answer it from the memory as it is by then, and let `as_of` and `event_time_us` be those of the newest
   segment in it.
6. End at `run_ended`, or `load_cut_short`. After `lane_failed` nothing is expected of that lane any more.

An operation that fails is sent all the same, with the reason as its `error`: its result is then unjudged.

What is sent answers one event: `causes` holds that event's `id`; `event_time_us` and `stream` (and `lane`,
`trajectory`) are the same, `step` is one more, `as_of` is the segment that the answer rests on. Ids are
fixed, so that nothing counts twice: an agent that starts again reads its own deltas and responses back, and
does not send what is there. Beyond that it reads no other topic.

Headers are strings. `kind` and `v` are needed. Write `wall_us`, `read_us`, `began_us` and `ended_us` as well, from one
clock that nobody sets meanwhile: what a load reports of an agent's stages, and what an answer took, is read off them.
Clocks of different machines are compared by the log; a time that is not written is not known, and never guessed.

Values are JSON. Fields with default values may be left out, unknown fields must be ignored. All times are in
microseconds since 1970 UTC; those called `event_time_us` are simulated."""

_CHANNELS: Final = {
    "observations": "What was seen and said, and where segments end.",
    "deltas": "What memory systems stored: one event a segment and one a commit.",
    "tasks": "What the person asks.",
    "responses": "What memory systems answered.",
    "feedback": "What the person says to the first answer.",
    "commits": "Conversations to take into memory.",
    "verdicts": "What the judges decided. Not for agents.",
    "anchors": "Evidence, tasks and gold behaviour. For judges: an agent that reads it has cheated.",
    "control": "Start and end of the run, readiness, and what is needed no more.",
    "dead": "What could not be decoded, whole, with the reason.",
}

_HEADERS: Final = {
    "kind": "As in the value.",
    "v": "As in the value.",
    "wall_us": "When it was written, by the wall clock, in microseconds since 1970 UTC.",
    "due_us": "When it was due by the replay's clock, at a finite rate; a load's questions, by their own rate.",
    "read_us": "When what it follows was read from the log: the segment's end, what was asked, or for what the "
    "conductor or the asker writes the newest of what it rests on.",
    "isolating_us": "When it was begun to get the memory that the call runs on: a copy or a replay may take long, and "
    "is no part of the call.",
    "began_us": "When the call that it is the result of began, by the wall clock.",
    "first_token_us": "When the answer's first token was there, of a system that streams and says so.",
    "ended_us": "When that call ended. Latency is reported from these two.",
    MODEL_US: "How long the answers of models took that the call waited for, added up. Those from the cache took none.",
    MODEL_CACHED: "How many of these answers came from the cache.",
    "snapshot_us": "When the snapshot that a load's questions are answered on had been forked, after the ingest.",
    "cpu_us": "Processor time of the process since it began.",
    "children_cpu_us": "Processor time of the processes that it started and that still run.",
    "rss_bytes": "Memory of the process, as it is resident.",
    "children_rss_bytes": "Memory of the processes that it started.",
    "loop_lag_us": "The longest that its event loop came late to a timer since the last sample.",
    "boot": "Which boot of which machine the clock is of that the stamps were taken by. Without it the clock is taken "
    "for another than the replayer's, and compared with that.",
    "offset_us": "The run's wall clock less the monotonic clock of that boot: agents on it take their stamps by this.",
    "process": "In a load: the name of the process that is ready.",
    "partitions": "In a load: the partitions that this process drives.",
}
_CALLED: Final = frozenset(("isolating_us", "began_us", "ended_us", MODEL_US, MODEL_CACHED))
_CONDUCTED: Final = ("feedback", "commit", "taken", "trajectory_closed", "run_ended")
_SAMPLED: Final = frozenset(("cpu_us", "children_cpu_us", "rss_bytes", "children_rss_bytes", "loop_lag_us"))
_PATTERNS: Final = {"boot": "^[0-9a-f]+$", "process": "^.+$", "partitions": "^([0-9]+(,[0-9]+)*)?$"}


def _timed(kind: str) -> frozenset[str]:
    """The headers of a kind beside those that all have."""
    match kind:
        case "observation" | "segment_closed" | "stream_ended":
            return frozenset(("due_us",))
        case "delta":
            return _CALLED | {"read_us", "snapshot_us", "boot"}
        case "committed":
            return _CALLED
        case "verdict":
            return _CALLED - {"isolating_us"}
        case "response":
            return _CALLED | {"read_us", "first_token_us"}
        case "task":
            return frozenset(("due_us", "read_us"))
        case "process_sample":
            return _SAMPLED | {"boot"}
        case "run_started":
            return frozenset(("boot", "offset_us"))
        case "ready":
            return frozenset(("boot", "process", "partitions"))
        case "segment_released":
            return frozenset(("read_us", "boot"))
        case _ if kind in _CONDUCTED:
            return frozenset(("read_us",))
        case _:
            return frozenset()


_SENT_IDS: Final = {
    "ready": "`ready/agent.<system>`; `role` is `agent.<system>`. Key: empty. Partition: 0.",
    "delta": "`<lane>/delta/<segment>`. One a segment, in order.",
    "committed": "`<trajectory>/committed`.",
    "response": "`<trajectory>/R1`, `<trajectory>/R_F`, `<trajectory>/R2` or, of that arm, "
    "`<trajectory>/R2-uncommitted`.",
}

_OPERATIONS: Final = (
    (
        "readControl",
        "control",
        (
            "run_started",
            "segment_released",
            "trajectory_closed",
            "lane_failed",
            "run_ended",
            "load_cut_short",
        ),
        None,
    ),
    ("readObservations", "observations", ("observation", "segment_closed", "stream_ended"), "delta"),
    ("readTasks", "tasks", ("task",), "response"),
    ("readFeedback", "feedback", ("feedback",), "response"),
    ("readCommits", "commits", ("commit",), "committed"),
    ("sayReady", "control", ("ready",), None),
    ("sendDeltas", "deltas", ("delta", "committed"), None),
    ("sendResponses", "responses", ("response",), None),
)
"""Name, channel, kinds, and the kind that is sent in reply. What is named `read` is received."""

_EXAMPLES: Final[tuple[Event, ...]] = (
    ReadyEvent(id="ready/agent.mine", run="run-1", event_time_us=0, role="agent.mine"),
    DeltaEvent(
        id="mine@A1_JAKE/delta/9",
        run="run-1",
        stream="A1_JAKE",
        event_time_us=1_755_342_900_000_000,
        as_of=9,
        causes=("A1_JAKE/segment/9",),
        lane="mine@A1_JAKE",
        segment=9,
        records=(
            MemoryRecord(id="m17", text="The blue cup is on the shelf", event_time_us=1_755_342_812_000_000),
        ),
        stored_bytes=28,
    ),
    ResponseEvent(
        id="mine@A1_JAKE/s9/e0/R1",
        run="run-1",
        stream="A1_JAKE",
        event_time_us=1_755_342_900_000_000,
        as_of=9,
        causes=("mine@A1_JAKE/s9/e0/T1",),
        lane="mine@A1_JAKE",
        trajectory="mine@A1_JAKE/s9/e0",
        step=1,
        phase="R1",
        text="It is on the shelf.",
        retrieved=(
            RetrievedRecord(
                id="m17", text="The blue cup is on the shelf", event_time_us=1_755_342_812_000_000, score=0.7
            ),
        ),
    ),
    CommittedEvent(
        id="mine@A1_JAKE/s9/e0/committed",
        run="run-1",
        stream="A1_JAKE",
        event_time_us=1_755_342_900_000_000,
        as_of=9,
        causes=("mine@A1_JAKE/s9/e0/commit",),
        lane="mine@A1_JAKE",
        trajectory="mine@A1_JAKE/s9/e0",
        step=5,
        error="the model is down",
    ),
)


def document(version: str, run: str | None = None) -> dict[str, Any]:
    """The document for one run's topics, or for any run's: with the parameter `run` in their names. `version`
    is egostream's own."""
    kinds = {str(cls.__struct_config__.tag): cls for cls in typing.get_args(AnyEvent)}
    schemas = msgspec.json.schema_components(kinds.values(), ref_template="#/components/schemas/{name}")[1]
    channels = {name: _channel(name, run) for name in Topics._fields}
    for kind, name in TOPIC_OF_KIND.items():
        channels[name]["messages"][kind] = {"$ref": f"#/components/messages/{kind}"}
    made = {
        "asyncapi": ASYNCAPI_VERSION,
        "info": {
            "title": "egostream: attached agents",
            "version": version,
            "description": _DESCRIPTION,
            "license": {"name": "MIT"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": {name: _operation(*rest, name=name) for name, *rest in _OPERATIONS},
        "components": {
            "messages": {kind: _message(kind, kinds[kind]) for kind in TOPIC_OF_KIND},
            "schemas": schemas,
        },
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(made))  # structs and tuples as in JSON
    return plain


def _channel(name: str, run: str | None) -> dict[str, Any]:
    address = getattr(Topics.of("{run}" if run is None else run), name)
    single = Topics.of("r").partitions(2)[f"r.{name}"] == 1
    where = (
        "One partition."
        if single
        else "Stream number i of `run_started.streams` lies in partition i mod `run_started.partitions`."
    )
    kafka: dict[str, Any] = {"topic": address} if run is not None else {}
    if single:
        kafka["partitions"] = 1
    # Event time is years old: with a retention time, a broker would delete what it was just sent.
    kafka |= {"topicConfiguration": {"retention.ms": -1}, "bindingVersion": KAFKA_BINDING_VERSION}
    channel: dict[str, Any] = {
        "address": address,
        "title": name,
        "description": f"{_CHANNELS[name]} {where}",
        "messages": {},
        "bindings": {"kafka": kafka},
    }
    if run is None:
        channel["parameters"] = {"run": {"description": "The run's id."}}
    return channel


def _message(kind: str, cls: type[Event]) -> dict[str, Any]:
    about = " ".join((inspect.getdoc(cls) or "").split())
    sent = f"\n\nId: {_SENT_IDS[kind]}" if kind in _SENT_IDS else ""
    message: dict[str, Any] = {
        "name": kind,
        "title": kind,
        "summary": f"{about.split('. ')[0].rstrip('.')}.",
        "description": f"{about}{sent}",
        "contentType": "application/json",
        "headers": _headers(kind),
        "payload": {"$ref": f"#/components/schemas/{cls.__name__}"},
        "bindings": {"kafka": {"key": _key(kind, cls), "bindingVersion": KAFKA_BINDING_VERSION}},
    }
    examples = [{"name": event.id, "payload": event} for event in _EXAMPLES if kind_of(event) == kind]
    return message | ({"examples": examples} if examples else {})


def _headers(kind: str) -> dict[str, Any]:
    fixed = {"kind": kind, "v": str(SCHEMA_VERSION)}
    always = ("kind", "v", "wall_us")
    names = [name for name in _HEADERS if name in always or name in _timed(kind)]
    return {
        "type": "object",
        "properties": {
            name: {
                "type": "string",
                **({"const": fixed[name]} if name in fixed else {"pattern": _PATTERNS.get(name, "^[0-9]+$")}),
                "description": _HEADERS[name],
            }
            for name in names
        },
        "required": list(always),
    }


def _key(kind: str, cls: type[Event]) -> dict[str, Any]:
    if issubclass(cls, LaneEvent):
        what = "The lane."
    elif TOPIC_OF_KIND[kind] == "observations":
        what = "The stream."
    else:
        what = "The stream, or empty where there is none."
    return {"type": "string", "description": what}


def _operation(channel: str, kinds: tuple[str, ...], reply: str | None, *, name: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "action": "receive" if name.startswith("read") else "send",
        "channel": {"$ref": f"#/channels/{channel}"},
        "messages": [{"$ref": f"#/channels/{channel}/messages/{kind}"} for kind in kinds],
    }
    if reply is not None:
        to = TOPIC_OF_KIND[reply]
        operation["reply"] = {
            "channel": {"$ref": f"#/channels/{to}"},
            "messages": [{"$ref": f"#/channels/{to}/messages/{reply}"}],
        }
    return operation
