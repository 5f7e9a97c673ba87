"""The panel: one judge a metric, failures unjudged with a reason, votes counted."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.spending import cast_votes
from judges.deterministic import OfficialFidelityAuditor, official_judges
from judges.judge import Case, Judge, Judgment
from judges.panel import JudgePanel, majority
from simulator.errors import ConfigError
from simulator.events import FeedbackDraft, Metric, Outcome, Usage, Vote
from simulator.protocols.streammembench import METRICS
from tests.protocols.scripted import anchor_of


class Scripted:
    """A judge of one metric that gives or raises what it was made with; None: it never comes back."""

    def __init__(self, metric: Metric, result: Judgment | Exception | None, name: str = "scripted") -> None:
        self.name = name
        self.metrics = frozenset({metric})
        self.result = result

    async def judge(self, case: Case) -> Judgment:
        if self.result is None:
            await anyio.sleep_forever()
        if isinstance(self.result, Exception):
            raise self.result
        assert self.result is not None
        return self.result


async def judged(judge: Judge, metric: Metric = "fur", deadline_s: float = 60.0) -> Judgment:
    panel = JudgePanel([judge], [metric], deadline_s=deadline_s)
    return await panel.judge(Case(metric=metric, anchor=anchor_of(), text="text"))


def test_two_judges_of_one_metric_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"two judges claim fidelity: .* and second"):
        JudgePanel([*official_judges(), Scripted("fidelity", None, "second")], METRICS)


def test_a_metric_without_a_judge_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="no judge for fi, fur, fur_uncommitted, ieu"):
        JudgePanel([OfficialFidelityAuditor()], METRICS)


def test_the_panel_describes_its_judges_for_the_runs_identity() -> None:
    panel = JudgePanel(official_judges(), METRICS)
    identity = panel.describe()
    assert set(identity) == {f"judge.{metric}" for metric in METRICS}
    assert identity["judge.fur"] == panel.judge_of("fur").name
    assert "0.5" in identity["judge.fidelity"]
    assert "0.3" in identity["judge.ieu"]


async def test_what_a_judge_raises_is_unjudged_and_never_a_fail() -> None:
    judgment = await judged(Scripted("fur", RuntimeError("429 too many requests")))
    assert judgment.outcome == "unjudged"
    assert judgment.reason == "scripted failed: RuntimeError: 429 too many requests"


async def test_a_judge_that_never_answers_is_unjudged_at_the_deadline() -> None:
    judgment = await judged(Scripted("fur", None), deadline_s=0.01)
    assert judgment.outcome == "unjudged"
    assert "TimeoutError" in judgment.reason


async def test_cancelling_is_no_verdict() -> None:
    with anyio.move_on_after(0.01) as scope:
        await judged(Scripted("fur", None))
    assert scope.cancelled_caught


async def test_an_unjudged_case_always_has_a_reason() -> None:
    votes = (Vote(outcome="unjudged"),)
    judgment = await judged(Scripted("fur", Judgment(outcome="unjudged", votes=votes)))
    assert judgment.reason
    assert judgment.votes == votes
    own = await judged(Scripted("fur", Judgment(outcome="unjudged", reason="no JSON")))
    assert own.reason == "no JSON"


@pytest.mark.parametrize("feedback", [None, FeedbackDraft(type="affirm", text="fine")])
async def test_a_judged_r1_needs_feedback_that_fits(feedback: FeedbackDraft | None) -> None:
    judgment = await judged(Scripted("ieu", Judgment(outcome="fail", feedback=feedback)), "ieu")
    assert judgment.outcome == "unjudged"
    assert "revise" in judgment.reason


@pytest.mark.parametrize("outcome", ["pass", "fail"])
async def test_votes_behind_feedback_that_does_not_fit_are_kept_and_decide_nothing(outcome: Outcome) -> None:
    votes = (Vote(outcome=outcome, judge="m", usage=Usage(prompt_tokens=7, calls=1)),) * 3
    judgment = await judged(Scripted("ieu", Judgment(outcome=outcome, votes=votes)), "ieu")
    assert [vote.votes for vote in judgment.votes] == [votes]
    assert majority(judgment.votes).outcome == judgment.outcome == "unjudged"  # as the audit counts them
    assert tuple(cast_votes(judgment.votes)) == votes
    within = (Vote(outcome="unjudged", judge="several", votes=judgment.votes),)
    assert tuple(cast_votes(within)) == votes


async def test_a_fitting_judgment_is_passed_on_as_it_is() -> None:
    given_judgment = Judgment(outcome="fail", feedback=FeedbackDraft(type="revise", text="again"))
    assert await judged(Scripted("ieu", given_judgment), "ieu") is given_judgment


def votes_of(word: str) -> list[Vote]:
    outcomes = {"p": "pass", "f": "fail", "u": "unjudged"}
    return [Vote(outcome=outcomes[c], reason=f"{c}{i}") for i, c in enumerate(word)]  # type: ignore[arg-type]  # a table of literals


@pytest.mark.parametrize(
    ("word", "outcome", "agreement"),
    [
        ("ppp", "pass", 1.0),
        ("ppf", "pass", 2 / 3),
        ("pff", "fail", 2 / 3),
        ("ffu", "fail", 2 / 3),
        ("pf", "unjudged", 0.5),
        ("pfu", "unjudged", 1 / 3),
        ("puu", "unjudged", 1 / 3),
        ("uuu", "unjudged", 0.0),
        ("", "unjudged", 0.0),
    ],
)
def test_majority(word: str, outcome: str, agreement: float) -> None:
    judgment = majority(votes_of(word))
    assert judgment.outcome == outcome
    assert judgment.scores == {"agreement": pytest.approx(agreement)}


def test_a_verdict_without_majority_says_why() -> None:
    assert majority(votes_of("pfu")).reason == "no majority: 1 pass, 1 fail, 1 unjudged (u2)"
    assert majority(votes_of("fpp")).reason == "p1"


@given(st.lists(st.sampled_from("pfu"), max_size=9))
def test_majority_keeps_all_votes_and_does_not_hang_on_their_order(word: list[str]) -> None:
    votes = votes_of("".join(word))
    judgment = majority(votes)
    assert judgment.votes == tuple(votes)
    assert majority(votes[::-1]).outcome == judgment.outcome
    if judgment.outcome == "unjudged":
        assert judgment.reason
    else:
        assert sum(vote.outcome == judgment.outcome for vote in votes) * 2 > len(votes)
