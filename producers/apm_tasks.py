"""The form of an APM task file: structs, and the JSON schema that is made from them.

    python -m producers.apm_tasks > docs/apm-tasks.schema.json

docs/apm.md explains the fields; `producers.datasets.apm` reads such files and checks what a schema can't say.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, Final, Literal

import msgspec

CrossSessionTask = Literal["ER", "EST", "TR"]
PerceptionTask = Literal["ACR", "CT", "OCR", "STU"]
ResponseTask = Literal["ERA", "RCR", "PRM", "MPA", "TPG"]

FAMILIES: Final = {
    **dict.fromkeys(("ER", "EST", "TR"), "cross-session understanding"),
    **dict.fromkeys(("ACR", "CT", "OCR", "STU"), "real-time perception"),
    **dict.fromkeys(("ERA", "RCR", "PRM", "MPA", "TPG"), "adaptive response"),
}

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="Unique in its place.")]
Time = Annotated[
    str,
    msgspec.Meta(
        min_length=4, description="`DAY1 11:05:00`, or an ISO date and time (clock time of the place)."
    ),
]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Letter = Annotated[str, msgspec.Meta(pattern=r"^[A-Z]$")]
Options = Annotated[
    list[Text], msgspec.Meta(min_length=2, max_length=25, description="Texts without letters, A first.")
]


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A field that nobody knows is a mistake, and not ignored."""


class SessionSpec(_Strict, frozen=True, kw_only=True):
    """A time of the stream that belongs together: observations from `start` (with it) to `end` (without it)."""

    id: Name
    start: Time
    end: Time
    activity: str = ""


class Registration(_Strict, frozen=True, kw_only=True):
    """What the person asks of the assistant at a time: to speak up on a condition, or to be reminded. It stands in the
    stream as something said, within a session."""

    id: Name
    kind: Literal["condition", "reminder"]
    at: Time
    text: Text


class Choice(_Strict, frozen=True, kw_only=True, tag_field="kind", tag="choice"):
    """A question of multiple choice at a time. `availability`: ask it again on the two most recently completed sessions
    alone, with one more option that says that the evidence is not available."""

    id: Name
    task: CrossSessionTask | PerceptionTask
    at: Time
    question: Text
    options: Options
    golden: Letter
    evidence_sessions: list[Name] = []
    availability: bool = False


class Heartbeat(_Strict, frozen=True, kw_only=True, tag_field="kind", tag="heartbeat"):
    """A moment at which the assistant speaks up (`INTERVENE`, a positive probe) or does not (`SILENT`, a negative one).
    A positive one has a `reference`: what a good response says. Probes of ERA also have options, negative ones too, or
    else the options would give the polarity away; the response to a positive one must name the `golden` one.
    `registration`: what it hangs on, where that was registered."""

    id: Name
    task: ResponseTask
    at: Time
    expected: Literal["INTERVENE", "SILENT"]
    reference: str = ""
    registration: Name | None = None
    options: Options | None = None
    golden: Letter | None = None
    evidence_sessions: list[Name] = []


class TrajectorySpec(_Strict, frozen=True, kw_only=True):
    """Related sessions of one stream in time order, with what is registered and asked."""

    id: Name
    stream: Text
    sessions: Annotated[list[SessionSpec], msgspec.Meta(min_length=1)]
    registrations: list[Registration] = []
    probes: list[Choice | Heartbeat] = []


class TaskFile(_Strict, frozen=True, kw_only=True):
    """Trajectories over the streams of one dataset. `data`: its path from this file's folder, or `synthetic:...`."""

    version: Literal[1]
    data: Text
    trajectories: Annotated[list[TrajectorySpec], msgspec.Meta(min_length=1)]
    description: str = ""


def schema() -> dict[str, Any]:
    """The JSON schema (2020-12) of a task file."""
    made = msgspec.json.schema(TaskFile)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "APM task file", **made}


def schema_text() -> str:
    """The schema as it stands in docs/apm-tasks.schema.json."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
