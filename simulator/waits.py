"""What is owed: the event that has not come, by its deterministic id, who writes it, and after what.

The same words wherever something waits: a role that gives up waiting, the watchdog, and `egostream status`. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, get_args

from simulator.events import AnchorMetric, ProbeMetric

JUDGE_ROLE: Final = "judge"
CONDUCTOR_ROLE: Final = "conductor"
REPLAYER_ROLE: Final = "replayer"
ASKER_ROLE: Final = "asker"
"""Asks a load's questions."""
LOAD_ROLE: Final = "load"
"""Starts the processes of a load, and is ready when they have shared the lanes."""

_SHOWN = 5
_CAUSES: Final = {
    "T1": "delta",
    "R1": "T1",
    "ieu": "R1",
    "F": "ieu",
    "R_F": "F",
    "commit": "F",
    "committed": "commit",
    "T2": "committed",
    "R2": "T2",
    "T2-uncommitted": "committed",
    "R2-uncommitted": "T2-uncommitted",
    "closed": "R2",
    "fidelity": "delta",
    "fi": "R_F",
    "fur": "R2",
    "fur_uncommitted": "R2-uncommitted",
    **dict.fromkeys(get_args(ProbeMetric), "R1"),
}
"""What each event of a trajectory follows, where nothing else is known."""
_BY_AGENT: Final = frozenset(("R1", "R_F", "committed", "R2", "R2-uncommitted"))
_BY_JUDGE: Final = frozenset((*get_args(AnchorMetric), *get_args(ProbeMetric)))


class Missing(NamedTuple):
    """An event that is owed."""

    event: str
    role: str
    cause: str
    """The event that it follows; empty where it follows none."""

    def __str__(self) -> str:
        return f"{self.event} of {self.role}" + (f" (after {self.cause})" if self.cause else "")


def agent_role(system: str) -> str:
    """The name under which a system's agent says `ready`."""
    return f"agent.{system}"


def role_of_lane(lane: str) -> str:
    """The agent that drives a lane."""
    return agent_role(lane.partition("@")[0])


def missing_ready(role: str) -> Missing:
    """A role has not said that it is ready."""
    return Missing(f"ready/{role}", role, "run/started")


def missing_segment(stream: str, segment: int) -> Missing:
    """A segment has not been replayed to its end."""
    cause = f"{stream}/segment/{segment - 1}" if segment else "run/started"
    return Missing(f"{stream}/segment/{segment}", REPLAYER_ROLE, cause)


def missing_delta(lane: str, segment: int) -> Missing:
    """A lane has not ingested a segment."""
    stream = lane.partition("@")[2]
    return Missing(f"{lane}/delta/{segment}", role_of_lane(lane), f"{stream}/segment/{segment}")


def missing_release(lane: str, segment: int) -> Missing:
    """A segment's trajectories have not all been through (isolation `shared`)."""
    return Missing(f"{lane}/released/{segment}", CONDUCTOR_ROLE, f"{lane}/delta/{segment}")


def missing_of(trajectory: str, name: str, cause: str = "") -> Missing:
    """An event of a trajectory, such as `R1`, `ieu` or `closed`. `cause`: the id of what it follows, where known."""
    lane, _, rest = trajectory.partition("/")
    role = JUDGE_ROLE if name in _BY_JUDGE else CONDUCTOR_ROLE
    if name in _BY_AGENT:
        role = role_of_lane(lane)
    follows = _CAUSES[name]
    if not cause and follows == "delta":
        cause = f"{lane}/delta/{rest.partition('/')[0].removeprefix('s')}"
    return Missing(f"{trajectory}/{name}", role, cause or f"{trajectory}/{follows}")


def stalled(who: str, silent_s: float, missing: Sequence[Missing]) -> str:
    """The message of a StallError: who waited for how long, and for what. `missing`: the oldest first."""
    shown = "; ".join(map(str, missing[:_SHOWN]))
    more = f"; and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
    return f"{who}: nothing came for {silent_s:g} s; missing: {shown}{more}"
