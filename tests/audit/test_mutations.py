"""Every way that we know of to corrupt a valid log: each is found, under the right rule and with the event that is
to blame."""

from __future__ import annotations

from functools import cache

import pytest

from tests.audit.corruptions import answers, form, isolation, order, probes, shared, streams, verdicts
from tests.audit.corruptions.common import Corruption
from tests.audit.forgery import Forgery
from tests.audit.worlds import Shape, World

BRANCH = Shape(seed=11, streams=2, segments=5, anchors=5, systems=2, partitions=2, ablate=True, canaries=4)
SHARED = Shape(seed=5, streams=1, segments=4, anchors=4, systems=1, isolation="shared")
PROBES = Shape(seed=3, streams=2, segments=5, anchors=14, systems=2, partitions=2, canaries=4, probes=True)

CASES = [
    pytest.param(shape, rule, corrupt, id=corrupt.__name__)
    for shape, module in (
        *((BRANCH, module) for module in (streams, answers, order, isolation, verdicts, form)),
        (SHARED, shared),
        (PROBES, probes),
    )
    for rule, corrupt in module.CORRUPTIONS
]


@cache
def world(shape: Shape) -> World:
    return World(shape).run()


@pytest.mark.parametrize("shape", [BRANCH, SHARED, PROBES], ids=["branch", "shared", "probes"])
def test_the_log_to_be_corrupted_is_sound(shape: Shape) -> None:
    certificate = world(shape).audit()
    assert certificate.findings == ()
    assert all(certificate.checked.values())


@pytest.mark.parametrize(("shape", "rule", "corrupt"), CASES)
def test_corruption_is_found(shape: Shape, rule: str, corrupt: Corruption) -> None:
    forgery = Forgery(world(shape))
    blamed = corrupt(forgery)
    findings = forgery.audit().findings
    blames = [(finding.rule, finding.events) for finding in findings]
    assert any(found == rule and blamed in events for found, events in blames), blames
    assert all(finding.explanation for finding in findings)
