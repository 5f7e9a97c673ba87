"""What trajectories come to: denominators, labels, groups, and what is missing, whatever order the log is read in."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from consumers.anchor_scores import failure_label
from consumers.score_tables import summary_lines, to_csv
from consumers.scoreboard import NO_VERDICT, Scoreboard
from consumers.scores import Mark, Scores
from simulator.errors import InvariantError
from simulator.events import DeadLetterEvent, Metric, Outcome, VerdictEvent
from simulator.protocols.streammembench import BASIS, METRICS
from simulator.protocols.trajectory import input_of
from tests.protocols.scripted import Fate, anchor_of, run_through
from tests.scoreboard.helpers import ANCHORS, Plan, good, log_of, scores_of, shown, started, trajectory_events


def test_rates_have_the_denominators_of_the_paper() -> None:
    plans = [
        good(),
        good("fail", fi="pass", fur="fail"),
        good("fail", fi="fail"),
        good(fidelity="fail"),
        good("unjudged"),
        Plan(Fate("R_F", "fail"), dict.fromkeys(METRICS, "pass")),
    ]
    scores = scores_of(log_of(["rag_raw"], ANCHORS, plans))
    found = {rate.metric: (rate.passed, rate.judged, rate.unjudged, rate.rate) for rate in scores.scores}
    assert found == {
        "fidelity": (5, 6, 0, 5 / 6),
        "ieu": (2, 5, 1, 2 / 5),
        "fi": (1, 2, 1, 1 / 2),
        "fur": (3, 4, 2, 3 / 4),
    }
    (labels,) = scores.labels
    assert labels.no_failure == 2
    assert {label: count for label, count in labels.labels.items() if count} == {
        "correction consolidation failure": 1,
        "feedback incorporation failure": 1,
    }
    assert labels.unlabelled == {
        "fi unjudged: R_F failed: out of memory": 1,
        "ieu unjudged: judge down": 1,
    }
    assert not scores.complete
    first = summary_lines(scores)[0]
    assert first.startswith("1 system, 6 anchors, 6 trajectories: 2 of 6 trajectories unjudged (33.3%): ")
    assert "R_F failed: out of memory (1)" in first
    assert "judge down (1)" in first


def marks(fidelity: str, ieu: str, fi: str, fur: str) -> dict[Metric, Mark]:
    short: dict[str, Outcome] = {"1": "pass", "0": "fail", "?": "unjudged"}
    found: dict[Metric, Mark] = {
        "fidelity": Mark(outcome=short[fidelity], reason="why"),
        "ieu": Mark(outcome=short[ieu], reason="why"),
        "fur": Mark(outcome=short[fur], reason="why"),
    }
    return found | ({"fi": Mark(outcome=short[fi], reason="why")} if ieu == "0" else {})


@pytest.mark.parametrize(
    ("outcomes", "label", "hangs_on"),
    [
        ("11-1", None, ""),
        ("01-1", None, ""),
        ("00?0", "formation failure", ""),
        ("01-0", "formation failure", ""),
        ("001?", "formation failure", ""),
        ("0?-0", "formation failure", ""),
        ("1011", "initial evidence use failure", ""),
        ("1000", "feedback incorporation failure", ""),
        ("1001", "feedback incorporation failure", ""),
        ("100?", "feedback incorporation failure", ""),
        ("1010", "correction consolidation failure", ""),
        ("11-0", "evidence-use persistence failure", ""),
        ("?010", None, "fidelity"),
        ("?1-0", None, "fidelity"),
        ("10?0", None, "fi"),
        ("101?", None, "fur"),
        ("11-?", None, "fur"),
        ("1?-1", None, "ieu"),
        ("1?-0", None, "ieu"),
        ("0?-?", None, "ieu"),
    ],
)
def test_failure_labels_are_the_first_that_applies(outcomes: str, label: str | None, hangs_on: str) -> None:
    found, unlabelled = failure_label(marks(*outcomes))
    assert found == label
    assert unlabelled == (f"{hangs_on} unjudged: why" if hangs_on else "")


def test_thirds_go_by_the_segments_of_the_stream() -> None:
    events = log_of(["rag_raw"], ANCHORS, [good()] * 6)
    assert [row.third for row in scores_of(events).rows] == [
        "early",
        "early",
        "middle",
        "middle",
        "late",
        "late",
    ]
    events[0] = replace(started(["rag_raw"], ANCHORS), segments={"A": 27})
    scores = scores_of(events)
    assert [row.third for row in scores.rows] == ["early"] * 6
    fidelity = [(rate.group, rate.judged) for rate in scores.thirds if rate.metric == "fidelity"]
    assert fidelity == [("early", 6), ("middle", 0), ("late", 0)]


def test_groups_split_the_same_trajectories() -> None:
    anchors = [
        replace(anchor, evidence_type="inferred" if i else "stated") for i, anchor in enumerate(ANCHORS)
    ]
    scores = scores_of(log_of(["rag_raw"], anchors, [good()] * 6))
    found = [(r.group, r.passed, r.judged) for r in scores.by_evidence_type if r.metric == "fur"]
    assert found == [("inferred", 5, 5), ("stated", 1, 1)]


def test_what_has_no_verdict_yet_is_unjudged_and_never_failed() -> None:
    events = [started(["null", "oracle"], ANCHORS), *ANCHORS]
    scores = scores_of(events)
    assert scores.trajectories == 12
    assert scores.unjudged.reasons == {NO_VERDICT: 12}
    assert {(r.metric, r.judged, r.unjudged, r.rate) for r in scores.scores} == {
        ("fidelity", 0, 6, None),
        ("ieu", 0, 6, None),
        ("fi", 0, 0, None),
        ("fur", 0, 6, None),
    }
    assert "The run has not ended: these are the scores so far." in summary_lines(scores)
    assert all(cost.stored_bytes is None and cost.answer_seconds is None for cost in scores.costs)
    assert re.search(r"– \(0/0\).*\n.* 6 unjudged", shown(scores))


def test_before_the_run_starts_there_are_no_scores() -> None:
    assert Scoreboard().scores() is None


def test_the_first_line_of_a_whole_run_says_that_all_was_judged() -> None:
    scores = scores_of(log_of(["null", "oracle"], ANCHORS, [good()] * 12))
    assert summary_lines(scores) == ["2 systems, 6 anchors, 12 trajectories: every metric judged."]
    assert scores.complete


def test_failed_ingests_dead_letters_missing_anchors_and_strays_are_named() -> None:
    plans = [Plan(Fate("delta", "pass"), dict.fromkeys(METRICS, "pass")), *[good()] * 5]
    events = log_of(["null"], [*ANCHORS[:1], *ANCHORS[2:], anchor_of("A", 9)], plans)
    events[0] = replace(started(["null"], ANCHORS), anchors=7)
    events.append(
        DeadLetterEvent(
            id="dead/1",
            run="run",
            event_time_us=0,
            topic="t",
            partition=0,
            offset=1,
            reason="no JSON",
            value=b"{",
        )
    )
    events += trajectory_events("unknown", ANCHORS[0], good())
    scores = scores_of(events)
    lines = summary_lines(scores)
    assert "The run announced 7 anchors; the log has 6." in lines
    assert "null failed to ingest 1 segment: disk full (1)." in lines
    assert "1 dead letter: no JSON (1)." in lines
    assert any(line.startswith("1 trajectory in the log, but of no anchor") for line in lines)
    assert scores.strays == ("unknown@A/s0/e0",)
    assert not scores.complete


def test_two_verdicts_on_one_metric_break_an_invariant() -> None:
    events = log_of(["null"], ANCHORS[:1], [good()])
    verdict = next(event for event in events if isinstance(event, VerdictEvent))
    board = Scoreboard()
    board.feed(verdict)
    board.feed(verdict)
    with pytest.raises(InvariantError, match="two verdicts") as broken:
        board.feed(replace(verdict, outcome="fail"))
    assert broken.value.events == (verdict.id, verdict.id)


def test_ablation_pairs_the_two_arms() -> None:
    plans = [
        good(),
        good(fur_uncommitted="fail"),
        good(fur_uncommitted="fail"),
        good(fur="fail"),
        good(fur="fail", fur_uncommitted="fail"),
        Plan(Fate("R2-uncommitted", "pass"), dict.fromkeys(METRICS, "pass")),
    ]
    scores = scores_of(log_of(["rag_raw"], ANCHORS, plans, ablate=True))
    (arm,) = scores.ablation
    assert (arm.pairs, arm.unpaired) == (5, 1)
    assert (arm.passed_committed, arm.passed_uncommitted) == (3, 2)
    assert (arm.only_committed, arm.only_uncommitted, arm.difference) == (2, 1, 1 / 5)
    assert "+20.0 points" in shown(scores)
    assert scores.rows[0].marks.keys() == {"fidelity", "ieu", "fur", "fur_uncommitted"}


def test_without_texts_the_numbers_are_the_same() -> None:
    events = log_of(["null"], ANCHORS, [good("fail"), *[good()] * 5])
    board = Scoreboard(texts=False)
    for event in events:
        board.feed(event)
    slim, full = board.scores(), scores_of(events)
    assert slim is not None
    assert all(row.texts == {} for row in slim.rows)
    assert msgspec.structs.replace(slim, rows=()) == msgspec.structs.replace(full, rows=())


OUTCOMES: tuple[Outcome, ...] = ("pass", "fail", "unjudged")
PLANS = st.builds(
    Plan,
    st.builds(Fate, st.sampled_from([None, None, *BASIS.values(), "committed"]), st.sampled_from(OUTCOMES)),
    st.fixed_dictionaries({metric: st.sampled_from(OUTCOMES) for metric in METRICS}),
)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), ablate=st.booleans())
def test_the_fold_does_not_hang_on_the_order_of_events(data: st.DataObject, ablate: bool) -> None:
    systems = ["null", "oracle"]
    anchors = ANCHORS[: data.draw(st.integers(0, 4))]
    plans = data.draw(st.lists(PLANS, min_size=2 * len(anchors), max_size=2 * len(anchors)))
    events = log_of(systems, anchors, plans, ablate=ablate)
    if data.draw(st.booleans()):  # a run cut short
        events = events[: data.draw(st.integers(1, len(events)))]
    scores = scores_of(events)
    mixed = data.draw(st.permutations(events)) + data.draw(st.lists(st.sampled_from(events), max_size=5))
    assert scores_of(mixed) == scores
    assert to_csv(scores_of(mixed)) == to_csv(scores)
    check_denominators(scores)


def check_denominators(scores: Scores) -> None:
    for system in scores.systems:
        rows = [row for row in scores.rows if row.system == system]
        rates = {rate.metric: rate for rate in scores.scores if rate.system == system}
        for metric in ("fidelity", "ieu", "fur"):
            assert rates[metric].judged + rates[metric].unjudged == len(rows)
        failed_r1 = rates["ieu"].judged - rates["ieu"].passed
        assert rates["fi"].judged + rates["fi"].unjudged == failed_r1
        for rate in rates.values():
            failed = sum(
                rate.metric in row.marks and row.marks[rate.metric].outcome == "fail" for row in rows
            )
            assert rate.passed + failed == rate.judged
            assert rate.rate == (rate.passed / rate.judged if rate.judged else None)
            for groups in (scores.thirds, scores.by_evidence_type, scores.by_subject):
                parts = [g for g in groups if (g.system, g.metric) == (system, rate.metric)]
                assert sum(part.judged for part in parts) == rate.judged
                assert sum(part.unjudged for part in parts) == rate.unjudged
    for labels in scores.labels:
        counted = labels.no_failure + sum(labels.labels.values()) + sum(labels.unlabelled.values())
        assert counted * len(scores.systems) == scores.trajectories
    assert sum(scores.unjudged.reasons.values()) == scores.unjudged.trajectories
    for arm in scores.ablation:
        assert (arm.pairs + arm.unpaired) * len(scores.systems) == scores.trajectories


def test_inputs_cover_what_metrics_are_judged_on() -> None:
    _, took, _ = run_through(Fate(None, "fail"), ablate=True)
    assert set(BASIS.values()) <= {input_of(event) for event in took}
