"""A certificate as people read it."""

from __future__ import annotations

from textwrap import wrap

from consumers.audit.certificate import INVARIANTS, Certificate
from consumers.rebuild import differing_line, same_line

_WIDTH = 100
_SHOWN = 10
"""Open things and findings of one rule that are shown."""


def one_line(certificate: Certificate) -> str:
    """What `egostream run` says of its audit."""
    events = f"Audit: {sum(certificate.events.values()):,} events"
    if not certificate.sound:
        n = certificate.violations
        return f"{events}, {n} violation{'s'[: n - 1]} of the invariants"
    state = "invariants 1-7 hold" if certificate.ended else "invariants 1-7 hold so far"
    return f"{events}, {state}; digest {certificate.digest[:12]}"


def render(certificate: Certificate) -> str:
    """What was checked and what came of it, or each violation."""
    state = "has ended" if certificate.ended else "has not ended"
    lines = [f"{certificate.run} {state}."]
    if certificate.canaries:
        lines.append(f"It holds {certificate.canaries} canaries: its scores are not those of a plain run.")
    lines.append(one_line(certificate))
    lines += ["", "Invariant                                                     Checked  Violations"]
    for name, says in INVARIANTS.items():
        lines.append(
            f"{name:>4}  {says:<55} {certificate.checked[name]:>8,}  {certificate.found.get(name, 'none'):>10}"
        )
    lines.append("")
    events = ", ".join(f"{n:,} {name}" for name, n in certificate.events.items() if n)
    lines += wrap(events, _WIDTH, initial_indent="Events: ", subsequent_indent=" " * 8)
    lines += filter(None, (differing_line(certificate.rebuilds), same_line(certificate.rebuilds)))
    lines.append(f"Digest: {certificate.digest}")
    lines.append(f"        of {', '.join(certificate.digest_topics)}")
    lines += [f"        without {name}: {why}" for name, why in certificate.digest_left_out.items()]
    if certificate.buried:
        lines.append(
            f"Buried: {certificate.buried} records that could not be used; `egostream tap RUN dead` shows them"
        )
    lines += [f"Ignored, {n} times: {why}" for why, n in certificate.ignored.items()]
    lines += [f"Unproved, {n} times: {why}" for why, n in certificate.unproved.items()]
    if certificate.open:
        lines += ["", "Open:", *(f"  {what}" for what in certificate.open[:_SHOWN])]
        more = len(certificate.open) - _SHOWN + certificate.open_not_shown
        lines += [f"  and {more} more"] if more > 0 else []
    if not certificate.sound:
        lines += ["", *_violations(certificate)]
    return "\n".join(lines)


def _violations(certificate: Certificate) -> list[str]:
    lines: list[str] = []
    for rule in dict.fromkeys(finding.rule for finding in certificate.findings):
        found = [finding for finding in certificate.findings if finding.rule == rule]
        for finding in found[:_SHOWN]:
            lines.append(f"Violation of {finding.invariant} ({rule}): {finding.explanation}.")
            lines += [f"    event {event}" for event in finding.events]
            lines += [
                f"    record {place.topic}/{place.partition}/{place.offset}" for place in finding.records
            ]
        more = len(found) - _SHOWN + certificate.not_shown.get(rule, 0)
        if more > 0:
            lines.append(f"    and {more} more of {rule}")
    return lines
