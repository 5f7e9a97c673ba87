"""Invariant 7: exactly one verdict for each trajectory and metric, on what it says it judged."""

from __future__ import annotations

from consumers.audit.certificate import Book, Kept, Place, fingerprint
from consumers.audit.parts import Judged, Told
from simulator.events import Outcome, VerdictEvent
from simulator.log.protocol import StoredRecord
from simulator.protocols.subjects import RATES, basis_of, metrics_of
from simulator.topics import wall_of


def take_verdict(told: Told | None, event: VerdictEvent, record: StoredRecord, book: Book) -> Judged | None:
    """Check a verdict by itself, and keep it with its trajectory."""
    book.checked["7"] += 1
    draft = event.feedback
    judged = Judged(
        event.id,
        Place.of(record),
        event.causes,
        event.as_of,
        event.event_time_us,
        wall_us=wall_of(record.headers),
        outcome=event.outcome,
        draft=None if draft is None else (draft.type, fingerprint(draft.text)),
    )
    if told is None or told.lane != event.lane:
        book.find(
            "7",
            "verdict_without_trajectory",
            f"{event.id} judges {event.trajectory}, and there is no such trajectory",
            judged,
        )
        return None
    if event.anchor != told.anchor.anchor:
        book.find("7", "verdict_anchor", f"{event.id} names another anchor, {event.anchor}", judged)
    if not _fits(event):
        value = "no value" if event.value is None else f"the value {event.value}"
        book.find("7", "value", f"{event.id} is {event.outcome} with {value}", judged)
    if event.outcome == "unjudged" and not event.reason:
        book.find("7", "no_reason", f"{event.id} is unjudged and does not say why", judged)
    fitting = {"pass": "affirm", "fail": "revise"}.get(event.outcome) if event.metric == "ieu" else None
    given = draft.type if draft is not None else None
    if given != fitting and (fitting is not None or event.metric != "ieu"):
        book.find(
            "7",
            "draft",
            f"{event.id} is {event.outcome}, and its feedback is {given or 'missing'}, not {fitting or 'none'}",
            judged,
        )
    if event.votes and any(vote.value is not None for vote in event.votes):
        _check_rating(event, judged, book)
    elif event.votes and event.outcome != _counted(event):
        book.find(
            "7",
            "votes",
            f"{event.id} says {event.outcome}; more than half of its votes say {_counted(event)}",
            judged,
        )
    known = told.verdicts.setdefault(event.metric, judged)
    if known is not judged:
        book.find("7", "verdict_twice", f"{told.id} has two verdicts on {event.metric}", judged, known)
    return judged


def _fits(event: VerdictEvent) -> bool:
    """A mean has a value in [0, 1] once it is judged, and passes where that is 1; a rate has none."""
    if event.metric in RATES or event.outcome == "unjudged":
        return event.value is None
    return (
        event.value is not None and 0 <= event.value <= 1 and (event.outcome == "pass") == (event.value == 1)
    )


def _check_rating(event: VerdictEvent, judged: Judged, book: Book) -> None:
    """Votes with a value have a median, the lower of two; a rate passes where that is 1, if more than half of all votes
    say the same. Where half of them failed, or more, nothing is judged."""
    values = sorted(vote.value for vote in event.votes if vote.value is not None)
    median = values[(len(values) - 1) // 2]
    rate, most = event.metric in RATES, len(event.votes)
    decided = 2 * len(values) > most and (not rate or 2 * values.count(median) > most)
    outcome = ("pass" if median == 1.0 else "fail") if decided else "unjudged"
    if event.outcome == outcome and event.value == (median if decided and not rate else None):
        return
    said = f"{event.outcome} with value {event.value}"
    counted = f"{outcome} with the median {median}" if decided else "that nothing is judged"
    book.find("7", "votes", f"{event.id} says {said}; its votes say {counted}", judged)


def _counted(event: VerdictEvent) -> Outcome:
    outcomes = [vote.outcome for vote in event.votes]
    for outcome in ("pass", "fail"):
        if 2 * outcomes.count(outcome) > len(outcomes):
            return outcome
    return "unjudged"


def check_verdicts(
    told: Told, book: Book, delta: Kept | None, delta_failed: bool, ablated: bool, *, ended: bool
) -> None:
    """A trajectory that has ended has its verdicts, each resting on what it judges."""
    ieu = told.verdicts.get("ieu")
    wanted = set(metrics_of(told.anchor, ieu.outcome if ieu is not None else None, ablate_commit=ablated))
    for unsaid in sorted(wanted - told.verdicts.keys()):
        if told.closed is not None and ended:
            book.find(
                "7",
                "verdict_missing",
                f"{told.id} has ended without a verdict on {unsaid}",
                f"{told.id}/{unsaid}",
            )
        elif told.closed is not None:
            book.leave_open(f"{told.id} has no verdict on {unsaid} yet")
    for metric, judged in told.verdicts.items():
        book.checked["7"] += 1
        basis = delta if metric == "fidelity" else told.parts.get(basis_of(metric))
        failed = (
            delta_failed if metric == "fidelity" else basis is not None and not told.alive(basis_of(metric))
        )
        if metric == "fi" and ieu is not None and ieu.outcome != "fail":
            book.find(
                "7", "fi_not_asked", f"{judged.id} is there, though R1 was judged {ieu.outcome}", judged, ieu
            )
        elif metric not in wanted and not (metric == "fi" and ieu is None):
            book.find(
                "7", "verdict_unexpected", f"{judged.id}: nothing asks for {metric} in this run", judged
            )
        elif judged.outcome != "unjudged" and (basis is None or failed):
            book.lacks(
                "7",
                "judged_nothing",
                f"{judged.id} says {judged.outcome}, and what it would judge is not there",
                judged,
            )
        else:
            allowed = {(basis.id,)} if basis is not None and not failed else set()
            if judged.outcome == "unjudged" and told.closed is not None:
                allowed |= {(told.closed.id,)} if metric in told.closed.unjudged else set()
            if judged.causes not in allowed:
                book.lacks(
                    "7",
                    "verdict_causes",
                    f"{judged.id} has causes {judged.causes}, not what it judges",
                    judged,
                )
        if judged.as_of != told.anchor.segment:
            book.find(
                "7",
                "as_of",
                f"{judged.id} is as of segment {judged.as_of}, not {told.anchor.segment}",
                judged,
            )
        if delta is not None and judged.event_time_us != told.at_us(delta):
            book.find(
                "7", "event_time", f"{judged.id} is not at the event time at which its segment ended", judged
            )
