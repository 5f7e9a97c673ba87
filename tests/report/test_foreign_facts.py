"""What a report says of foreign systems: how they are driven, and what is approximated."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from adapters.foreign.catalogue import catalogue
from simulator.report.run_facts import foreign_facts, source_warnings


@pytest.mark.parametrize("name", catalogue())
@pytest.mark.parametrize("source", ["", ", source 0123456789ab"])
def test_how_a_foreign_system_is_driven_and_what_is_approximated_is_said(name: str, source: str) -> None:
    known = catalogue()[name]
    identity = {"implementation.mine": known.implementation + source, "memory.mine": "small", "seed": "0"}
    facts = foreign_facts(identity, catalogue())
    assert list(facts) == ["mine"]
    for said in (known.version + ", pins", source, known.ingest, known.search, *known.approximations):
        assert said in facts["mine"]


@pytest.mark.parametrize("name", catalogue())
def test_a_checkout_that_was_not_as_measured_is_warned_of(name: str) -> None:
    known = catalogue()[name]
    ran = f"{known.implementation}, source 0123456789ab"
    assert source_warnings({"implementation.mine": ran}, catalogue()) == []
    warned = source_warnings({"implementation.mine": ran + known.unlike}, catalogue())
    if known.source is None:
        assert warned == []
    else:
        (said,) = warned
        assert f"mine ran from a checkout of {known.title} that is not as at commit {known.version}" in said


def test_nothing_is_said_of_another_version_or_another_system() -> None:
    known = catalogue()["mem0"]
    older = replace(known, version=known.version + "9").implementation
    identity = {"implementation.older": older, "implementation.own": "mine 2.0"}
    assert foreign_facts(identity, catalogue()) == {}
