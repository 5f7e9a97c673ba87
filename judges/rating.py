"""The judge of probes: one case and metric → votes of a model → one value in [0, 1].

It knows no events but the votes that it gives. docs/judges.md has the criteria and what is done with the votes.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low
from typing import Final, get_args

import msgspec

from adapters.metering import added
from adapters.model import Model
from adapters.prompt import Prompt, PromptLanguage, load_prompt
from judges.by_model import JUDGE_PROMPTS
from judges.judge import outcome_of
from judges.rubrics import RUBRICS, Opinion, RatedMetric, RatingCase, empty, unanswerable
from judges.votes import JUDGE_TEMPERATURE, ask_votes, failed_vote, failures, why_unjudged
from simulator.errors import ModelError
from simulator.events import Usage, Vote

RATED_METRICS: Final[tuple[RatedMetric, ...]] = get_args(RatedMetric)
"""What a judge of probes can rate."""


class Rated(msgspec.Struct, frozen=True, kw_only=True):
    """One rating. `value`: in [0, 1]. `mark`: the same on the metric's own scale: 0..3 (`qa`), covered items
    (`memory_recall`), 0..2 (`helpful`), 0 or 1 (`open_answer`), 1..5 (`rating`). `agreement`: share of all votes,
    failed ones counted, that gave this mark. Without `votes`, nobody had to be asked, and `reason` says why."""

    value: float
    mark: int
    reason: str
    agreement: float = 1.0
    votes: tuple[Vote, ...] = ()
    usage: Usage = Usage()


class UnratedError(ModelError):
    """The votes came to nothing: half of them or more failed, or a yes or no is tied. `reason` may be read by agents;
    what the model said stands in `votes`."""

    def __init__(self, failure: ModelError | None, reason: str, votes: Sequence[Vote], model: str) -> None:
        super().__init__(model, "nonsense" if failure is None else failure.failure, reason)
        self.votes = tuple(votes)


class ProbeJudge:
    """Rates answers and retrievals by one model, each case asked `votes` times at once. `label`: the name by which the
    model is configured.

    The value is the votes' median, the lower of the two in the middle of an even number; a yes or no needs more than
    half of all votes. Half of the votes failed, or more, and nothing is rated.
    """

    def __init__(self, model: Model, label: str, *, votes: int = 3, language: PromptLanguage = "en") -> None:
        if votes < 1:
            raise ValueError(f"{votes} votes: at least 1 is needed")
        self._model = model
        self._label = label
        self._votes = votes
        self._language = language
        self._prompts: dict[RatedMetric, Prompt] = {
            metric: load_prompt(JUDGE_PROMPTS, rubric.prompt, language) for metric, rubric in RUBRICS.items()
        }
        self.name: str = self._name(*self._prompts.values())

    def name_of(self, metric: RatedMetric) -> str:
        """The name with this metric's prompt alone: another one's new wording is not another judge of it."""
        return self._name(self._prompts[metric])

    async def rate(self, metric: RatedMetric, case: RatingCase) -> Rated:
        """Rate one case. An empty answer, or nothing retrieved, has the lowest mark without a call. Raises
        UnratedError, a ModelError, and ValueError with the reason where the case lacks the gold to judge by."""
        rubric = RUBRICS[metric]
        if reason := unanswerable(rubric, case):
            raise ValueError(f"{metric}: {reason}")
        if reason := empty(rubric, case):
            return Rated(value=0.0, mark=rubric.lowest, reason=reason)
        messages = self._prompts[metric].messages(**rubric.shown(case, self._language))
        said = await ask_votes(self._model, messages, self._votes, rubric.kind(case))
        opinions: list[Opinion] = []
        cast: list[Vote] = []
        for answer in said:
            if isinstance(answer, ModelError):
                cast.append(failed_vote(self._label, answer))
                continue
            opinion = rubric.opinion(answer.value)
            opinions.append(opinion)
            cast.append(
                Vote(
                    outcome=outcome_of(opinion.value),
                    value=opinion.value,
                    reason=opinion.reason,
                    judge=self._label,
                    usage=answer.usage,
                )
            )
        failed = failures(said)
        if 2 * len(opinions) <= self._votes:
            given = f"{len(opinions)} of {self._votes} votes" if opinions else "no vote"
            raise self._unrated(f"{self._label} gave {given}", failed, case, cast)
        mark = median_low(opinion.mark for opinion in opinions)
        agreement = sum(opinion.mark == mark for opinion in opinions) / self._votes
        if metric == "open_answer" and agreement <= 0.5:
            raise self._unrated(f"{self._label}: no majority for yes or no", failed, case, cast)
        chosen = next(opinion for opinion in opinions if opinion.mark == mark)  # by number, not by arrival
        return Rated(
            value=chosen.value,
            mark=mark,
            reason=chosen.reason,
            agreement=agreement,
            votes=tuple(cast),
            usage=added(*(vote.usage for vote in cast)),
        )

    def _unrated(
        self, tally: str, failed: Sequence[ModelError], case: RatingCase, cast: Sequence[Vote]
    ) -> UnratedError:
        reason = why_unjudged(tally, failed, (case.reference, *case.memories))
        return UnratedError(failed[0] if failed else None, reason, cast, self._label)

    def _name(self, *prompts: Prompt) -> str:
        told = ", ".join(map(str, prompts))
        how = f"votes={self._votes}, temperature={JUDGE_TEMPERATURE}"
        return f"probes by {self._label} ({self._model.name}; {told}; {how})"
