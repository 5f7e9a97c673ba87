"""What a person is told of the checkouts that foreign systems run from."""

from __future__ import annotations

from collections.abc import Iterable

from adapters.foreign.catalogue import catalogue
from adapters.foreign.sources import source_warning
from adapters.registry import SystemSpec
from simulator.cli import common


def note_sources(specs: Iterable[SystemSpec], settings: common.Settings) -> None:
    """Warn, once each, of checkouts that are not what their systems were measured with."""
    if settings.quiet:
        return
    told = (
        source_warning(known, spec.options.get("source", ""))
        for spec in specs
        if (known := catalogue().get(spec.name)) is not None
    )
    for warning in filter(None, dict.fromkeys(told)):
        common.note(f"warning: {warning}")
