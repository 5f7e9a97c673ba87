"""Valid runs give no finding: random ones by the thousand, ended or under way."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.audit.worlds import Shape, World

shapes = st.builds(
    Shape,
    seed=st.integers(0, 2**32),
    streams=st.integers(1, 3),
    segments=st.integers(1, 5),
    anchors=st.integers(0, 5),
    systems=st.integers(1, 2),
    partitions=st.integers(1, 3),
    isolation=st.sampled_from(["branch", "shared"]),
    ablate=st.booleans(),
    failing=st.sampled_from([0.0, 0.0, 0.1, 0.4]),
    outages=st.sampled_from([0.0, 0.0, 0.2]),
    attached=st.booleans(),
    silent_after=st.none() | st.integers(0, 12),
    canaries=st.integers(0, 6),
    restarts=st.booleans(),
    rubbish=st.booleans(),
).map(lambda shape: shape if shape.isolation == "branch" else _without_ablation(shape))


def _without_ablation(shape: Shape) -> Shape:
    from msgspec.structs import replace

    return replace(shape, ablate=False)


@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(shapes)
def test_a_thousand_random_runs_give_no_finding(shape: Shape) -> None:
    certificate = World(shape).run().audit()
    assert certificate.findings == ()
    assert certificate.open == ()
    assert certificate.ended


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(shapes, st.integers(0, 150))
def test_a_run_under_way_is_open_and_breaks_nothing(shape: Shape, steps: int) -> None:
    world = World(shape).run(steps)
    certificate = world.audit()
    assert certificate.findings == ()
    assert certificate.ended == world.ended
    assert bool(certificate.open) != world.ended
