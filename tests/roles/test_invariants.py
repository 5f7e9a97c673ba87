"""Finished runs keep the invariants, whatever fails in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.memory import LaneContext
from simulator.events import (
    DeltaEvent,
    FeedbackEvent,
    Isolation,
    ResponseEvent,
    VerdictEvent,
)
from tests.roles.harness import run_all
from tests.roles.systems import Flaky, Ledger

MODES: list[tuple[Isolation, bool]] = [("branch", False), ("branch", True), ("shared", False)]


def ledger(lane: str, stream: str) -> Ledger:
    return Ledger(LaneContext(lane=lane, stream=stream))


@pytest.mark.parametrize(("isolation", "ablate"), MODES)
async def test_run_of_sound_systems_keeps_the_invariants(
    tmp_path: Path, isolation: Isolation, ablate: bool
) -> None:
    history = await run_all(
        tmp_path, {"one": ledger, "two": ledger}, isolation=isolation, ablate_commit=ablate
    )
    assert history.findings == ()
    assert all(verdict.outcome != "unjudged" for verdict in history.of(VerdictEvent))
    assert {feedback.type for feedback in history.of(FeedbackEvent)} == {"affirm", "revise"}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("isolation", "ablate"), MODES)
async def test_run_of_failing_systems_keeps_the_invariants(
    tmp_path: Path, isolation: Isolation, ablate: bool, seed: int
) -> None:
    def flaky(lane: str, stream: str) -> Flaky:
        return Flaky(LaneContext(lane=lane, stream=stream), seed=seed, share=0.15)

    history = await run_all(
        tmp_path, {"flaky": flaky, "sound": ledger}, isolation=isolation, ablate_commit=ablate
    )
    assert history.findings == ()
    failed = [v for v in history.of(VerdictEvent) if v.outcome == "unjudged"]
    assert failed
    assert all(verdict.lane.startswith("flaky@") for verdict in failed)


async def test_calls_that_never_return_end_with_their_deadline(tmp_path: Path) -> None:
    def hanging(lane: str, stream: str) -> Flaky:
        return Flaky(LaneContext(lane=lane, stream=stream), seed=1, share=0.4, hang=True)

    history = await run_all(tmp_path, {"hanging": hanging}, call_timeout_s=0.1)
    assert history.findings == ()
    errors = [e.error for e in history.of(DeltaEvent)] + [e.error for e in history.of(ResponseEvent)]
    assert "TimeoutError: nothing after 0.1 s" in errors
