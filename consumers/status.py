"""How a run stands: what each role did last and owes, and what each trajectory waits for. A fold over the log: the same
for a finished, stopped or running one. Pure: times come with the records.

An event is owed from the moment at which the one that it follows was written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from consumers.rebuild import LaneRebuilds, RebuildFold
from simulator.events import (
    AnyEvent,
    CommitEvent,
    CommittedEvent,
    DeltaEvent,
    Event,
    FeedbackEvent,
    LaneEvent,
    LaneFailedEvent,
    LaneRebuiltEvent,
    ObservationEvent,
    Outcome,
    ProbeEvent,
    ReadyEvent,
    ReplayControlEvent,
    ReplayEndedEvent,
    ResponseEvent,
    RunEndedEvent,
    RunStartedEvent,
    SegmentClosedEvent,
    SegmentReleasedEvent,
    StreamEndedEvent,
    Subject,
    TaskEvent,
    TrajectoryClosedEvent,
    VerdictEvent,
)
from simulator.protocols.subjects import metrics_of
from simulator.protocols.trajectory import trajectory_id
from simulator.waits import (
    ASKER_ROLE,
    CONDUCTOR_ROLE,
    JUDGE_ROLE,
    REPLAYER_ROLE,
    Missing,
    missing_delta,
    missing_of,
    missing_ready,
    missing_segment,
    role_of_lane,
)

FINISHED, WAITING, HELD = "finished", "waiting for its segment", "waiting for its turn (--open-trajectories)"


class Owed(msgspec.Struct, frozen=True, kw_only=True):
    """An event that has not come, and since when (wall time) it could have."""

    event: str
    role: str
    cause: str
    since_us: int
    lane: str = ""
    trajectory: str = ""
    phase: str = ""
    """What of the trajectory or lane it is: `R1`, `ieu`, `delta`..."""

    @property
    def missing(self) -> Missing:
        """The same without its time."""
        return Missing(self.event, self.role, self.cause)


class RoleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One role; an agent for each of its lanes. `waits_for`: the next event that it needs, or that others need of it;
    empty once there is none."""

    role: str
    lane: str = ""
    ready: bool
    last_event: str
    last_us: int | None
    owes: int
    waits_for: str
    waits_on: str
    since_us: int | None
    state: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How a run stands. `trajectories`: how many are in each state; `owed`: everything that is owed, the oldest
    first."""

    run: str
    state: str
    roles: tuple[RoleStatus, ...]
    trajectories: dict[str, int]
    owed: tuple[Owed, ...]
    rebuilds: tuple[LaneRebuilds, ...] = ()
    """The lanes whose memory was built again."""


class _Trajectory(msgspec.Struct):
    """What there is of one trajectory: name (`T1`, `R1`, `ieu`...) → event and wall time."""

    lane: str
    subject: Subject
    seen: dict[str, tuple[str, int]] = {}
    revise: bool = False
    ieu: Outcome | None = None
    failed: str = ""
    """The event with which it ended early, before it is closed."""


class _Lane(msgspec.Struct):
    stream: str
    deltas: int = 0
    """The next segment to be ingested: deltas come in order."""
    delta_us: dict[int, tuple[str, int]] = {}
    spoilt: set[int] = set()
    """Segments whose ingest failed."""
    failed: bool = False


class StatusFold:
    """Feed every event of a run with its wall time, in any order between topics; ask for the `status`."""

    def __init__(self, started: RunStartedEvent, anchors: Iterable[Subject]) -> None:
        self.started = started
        self._lanes = {f"{s}@{stream}": _Lane(stream) for s in started.systems for stream in started.streams}
        only = frozenset(started.only)
        self._trajectories = {
            name: _Trajectory(lane, anchor)
            for anchor in anchors
            for lane, state in self._lanes.items()
            if state.stream == anchor.stream
            for name in [trajectory_id(lane, anchor)]
            if not only or name in only
        }
        """Those that have not finished: of the others nothing but their number is kept."""
        self._finished = 0
        self._segments: dict[tuple[str, int], tuple[str, int]] = {}
        """(stream, segment) → its `segment_closed` and when that was written."""
        self._closed_segments: Counter[str] = Counter()
        self._ended_streams: set[str] = set()
        self._last: dict[tuple[str, str], tuple[str, int]] = {}
        """(role, lane) → its newest event."""
        self._ready: set[str] = set()
        self._rebuilds = RebuildFold()
        self._started_us = 0
        self.paused = False
        self.replayed = False
        self.ended = False

    def feed(self, event: AnyEvent, wall_us: int) -> None:
        """Take an event in."""
        asked = self.started.questions is not None and isinstance(event, TaskEvent)
        for key in [(ASKER_ROLE, "")] if asked else _authors(event):
            if key not in self._last or self._last[key][1] <= wall_us:
                self._last[key] = (event.id, wall_us)
        match event:
            case SegmentClosedEvent():
                self._segments[event.stream, event.segment] = (event.id, wall_us)
                self._closed_segments[event.stream] += 1
            case StreamEndedEvent():
                self._ended_streams.add(event.stream)
            case DeltaEvent():
                self._take_delta(event, wall_us)
            case RunStartedEvent():
                self._started_us = wall_us
            case ReadyEvent():
                self._ready.add(event.role)
            case ReplayControlEvent():
                self.paused = event.action == "pause" or (self.paused and event.action != "resume")
            case ReplayEndedEvent():
                self.replayed = True
            case RunEndedEvent():
                self.ended = True
            case LaneRebuiltEvent():
                self._rebuilds.feed(event)
            case LaneFailedEvent() if event.lane in self._lanes:
                self._lanes[event.lane].failed = True
            case (
                TaskEvent()
                | ResponseEvent()
                | FeedbackEvent()
                | CommitEvent()
                | CommittedEvent()
                | VerdictEvent()
                | TrajectoryClosedEvent()
            ):
                if (trajectory := self._trajectories.get(event.trajectory)) is not None:
                    self._take_part(trajectory, event, wall_us)
                    if "closed" in trajectory.seen and not self._next(trajectory):
                        del self._trajectories[event.trajectory]
                        self._finished += 1
            case _:
                pass

    def _take_delta(self, event: DeltaEvent, wall_us: int) -> None:
        lane = self._lanes.get(event.lane)
        if lane is not None:
            lane.deltas = max(lane.deltas, event.segment + 1)
            lane.delta_us[event.segment] = (event.id, wall_us)
            if event.error is not None:
                lane.spoilt.add(event.segment)

    def _take_part(self, trajectory: _Trajectory, event: AnyEvent, wall_us: int) -> None:
        name = ""
        match event:
            case TaskEvent() | ResponseEvent():
                name = event.phase if event.arm == "committed" else f"{event.phase}-{event.arm}"
            case FeedbackEvent():
                name, trajectory.revise = "F", event.type == "revise"
            case CommitEvent():
                name = "commit"
            case CommittedEvent():
                name = "committed"
            case VerdictEvent():
                name = event.metric
                if event.metric == "ieu":
                    trajectory.ieu = event.outcome
            case TrajectoryClosedEvent():
                name = "closed"
            case _:
                return
        trajectory.seen.setdefault(name, (event.id, wall_us))
        early = isinstance(event, ResponseEvent | CommittedEvent) and event.error is not None
        if (early and name not in ("R2", "R2-uncommitted")) or (
            name == "ieu" and trajectory.ieu == "unjudged"
        ):
            trajectory.failed = name

    # --- what is owed ---------------------------------------------------------------------------------------

    def owed(self) -> list[Owed]:
        """Everything that could have come and has not, the oldest first."""
        return self._owed_and_held()[0]

    def _owed_and_held(self) -> tuple[list[Owed], list[Owed]]:
        """What is owed, and the T1s that nobody owes before others have ended: as many trajectories as may be are
        open."""
        if self.ended:
            return [], []
        found: list[Owed] = []
        held: list[Owed] = []
        opened = Counter(
            one.lane for one in self._trajectories.values() if "T1" in one.seen and "closed" not in one.seen
        )
        full = opened.total() >= self.started.limits.open_trajectories
        shared = self.started.isolation == "shared"  # one a lane
        for name, lane in self._lanes.items():
            closed = self._segments.get((lane.stream, lane.deltas))
            if closed is not None and not lane.failed:
                found.append(_owed(missing_delta(name, lane.deltas), closed[1], lane=name, phase="delta"))
        for key, trajectory in self._trajectories.items():
            for name, (cause, since_us) in self._next(trajectory).items():
                missing = missing_of(key, name, cause)
                waits = name == "T1" and (full or (shared and opened[trajectory.lane] > 0))
                (held if waits else found).append(
                    _owed(missing, since_us, lane=trajectory.lane, trajectory=key, phase=name)
                )
        if not self._begun:
            missing_roles = [role for role in self.started.required if role not in self._ready]
            found += [_owed(missing_ready(role), self._started_us, phase="ready") for role in missing_roles]
        found.sort(key=_age)
        held.sort(key=_age)
        return found, held

    @property
    def _begun(self) -> bool:
        return bool(self._closed_segments) or any(role == REPLAYER_ROLE for role, _ in self._last)

    def _next(self, trajectory: _Trajectory) -> dict[str, tuple[str, int]]:
        """What of a trajectory comes next: name → what it follows, and when that was written. None before its lane
        has ingested its segment, and once it has finished."""
        seen, lane = trajectory.seen, self._lanes[trajectory.lane]
        delta = lane.delta_us.get(trajectory.subject.segment)
        if "closed" in seen:
            metrics = metrics_of(trajectory.subject, trajectory.ieu, ablate_commit=self.started.ablate_commit)
            return {metric: seen["closed"] for metric in metrics if metric not in seen}
        if lane.failed:
            return {"closed": self._last.get((CONDUCTOR_ROLE, ""), ("", self._started_us))}
        if delta is None:
            return {}
        if trajectory.subject.segment in lane.spoilt:
            return {"closed": delta}
        if trajectory.failed:
            return {"closed": seen[trajectory.failed]}
        arms = ("", "-uncommitted") if self.started.ablate_commit else ("",)
        chain: list[tuple[str, str]] = [("T1", ""), ("R1", "T1")]
        if isinstance(trajectory.subject, ProbeEvent):
            chain.append(("closed", "R1"))
        chain += [("ieu", "R1"), ("F", "ieu")]
        chain += [("R_F", "F"), ("commit", "R_F")] if trajectory.revise else [("commit", "F")]
        chain.append(("committed", "commit"))
        for name, after in chain:
            if name not in seen:
                return {name: seen[after] if after else delta}
        waits: dict[str, tuple[str, int]] = {}
        for arm in arms:
            if f"T2{arm}" not in seen:
                waits[f"T2{arm}"] = seen["committed"]
            elif f"R2{arm}" not in seen:
                waits[f"R2{arm}"] = seen[f"T2{arm}"]
        return waits or {"closed": seen["R2"]}

    # --- the whole ------------------------------------------------------------------------------------------

    def status(self) -> Status:
        """How the run stands by what was fed."""
        owed, held = self._owed_and_held()
        turns = {one.trajectory for one in held}
        states = Counter({FINISHED: self._finished}) if self._finished else Counter[str]()
        owing: dict[str, list[str]] = {}
        for one in owed:
            if one.trajectory:
                owing.setdefault(one.trajectory, []).append(one.phase)
        for key in self._trajectories:
            waits = f"waiting for {', '.join(owing[key])}" if key in owing else WAITING
            states[HELD if key in turns else waits] += 1
        replay_only = not self.started.systems
        over = self.ended or (replay_only and self.replayed)
        state = "ended" if over else "paused" if self.paused else "not ended" if self._begun else "not begun"
        roles = [self._role(REPLAYER_ROLE, "", owed, held)]
        if not replay_only:
            roles += [self._role(role_of_lane(lane), lane, owed, held) for lane in self._lanes]
            if self.started.questions is not None:
                roles.append(self._role(ASKER_ROLE, "", owed, held))
            roles.append(self._role(CONDUCTOR_ROLE, "", owed, held))
            if JUDGE_ROLE in self.started.required:  # a load has nothing to judge
                roles.append(self._role(JUDGE_ROLE, "", owed, held))
        return Status(
            run=self.started.run,
            state=state,
            roles=tuple(roles),
            trajectories=dict(states.most_common()),
            owed=tuple(owed),
            rebuilds=self._rebuilds.lanes(),
        )

    def _role(self, role: str, lane: str, owed: list[Owed], held: list[Owed]) -> RoleStatus:
        mine = [one for one in owed if one.role == role and (not lane or one.lane in ("", lane))]
        waits = mine[0] if mine else self._needs(role, lane, [*owed, *held])
        last_event, last_us = self._last.get((role, lane), ("", None))
        ended = self.ended or (role == REPLAYER_ROLE and self.replayed)
        if lane and self._lanes[lane].failed:
            ended = True
        return RoleStatus(
            role=role,
            lane=lane,
            ready=role in self._ready or (role == REPLAYER_ROLE and self._begun),
            last_event=last_event,
            last_us=last_us,
            owes=len(mine),
            waits_for=waits.event if waits is not None and not ended else "",
            waits_on=waits.role if waits is not None and not ended else "",
            since_us=waits.since_us if waits is not None and not ended else None,
            state="ended" if ended else "owes" if mine else "waits",
        )

    def _needs(self, role: str, lane: str, owed: list[Owed]) -> Owed | None:
        """What a role that owes nothing waits for."""
        if role == REPLAYER_ROLE:
            return next((one for one in owed if one.phase == "ready"), None) or self.next_published()
        if lane:
            theirs = next((one for one in owed if one.lane == lane), None)
            whole = self._lanes[lane].deltas >= self.started.segments[self._lanes[lane].stream]
            return theirs or (None if whole else self.next_published(self._lanes[lane].stream))
        return owed[0] if owed else self.next_published()

    def next_published(self, stream: str | None = None) -> Owed | None:
        """What the replayer is to publish next that ends something: a segment of this stream (or of the one that is
        least far), a stream, or the replay."""
        if self.replayed:
            return None
        last_id, since_us = self._last.get((REPLAYER_ROLE, ""), ("run/started", self._started_us))
        streams = [s for s in self.started.streams if s not in self._ended_streams and stream in (None, s)]
        if not streams:
            missing = Missing("replay/ended", REPLAYER_ROLE, last_id)
        else:
            behind = min(streams, key=lambda s: self._closed_segments[s])
            segment = max((n for s, n in self._segments if s == behind), default=-1) + 1
            missing = missing_segment(behind, segment)
            if self._closed_segments[behind] >= self.started.segments[behind]:
                missing = Missing(f"{behind}/ended", REPLAYER_ROLE, missing.cause)
        return _owed(missing, since_us, phase="replay")


def _age(owed: Owed) -> tuple[int, str]:
    return owed.since_us, owed.event


def _owed(missing: Missing, since_us: int, *, lane: str = "", trajectory: str = "", phase: str) -> Owed:
    return Owed(
        event=missing.event,
        role=missing.role,
        cause=missing.cause,
        since_us=since_us,
        lane=lane,
        trajectory=trajectory,
        phase=phase,
    )


def _authors(event: Event) -> Collection[tuple[str, str]]:
    """(role, lane) of who wrote an event; none for what a person or the set-up wrote."""
    match event:
        case ObservationEvent() | SegmentClosedEvent() | StreamEndedEvent() | ReplayEndedEvent():
            return [(REPLAYER_ROLE, "")]
        case DeltaEvent() | ResponseEvent() | CommittedEvent() | LaneRebuiltEvent():
            return [(role_of_lane(event.lane), event.lane)]
        case VerdictEvent():
            return [(JUDGE_ROLE, "")]
        case ReadyEvent():
            return [(event.role, "")]
        case SegmentReleasedEvent() | LaneFailedEvent() | LaneEvent() | RunEndedEvent():
            return [(CONDUCTOR_ROLE, "")]
        case _:
            return []


def role_of(event: Event) -> str:
    """Which role wrote an event; empty for what a person or the set-up wrote."""
    return next((role for role, _ in _authors(event)), "")
