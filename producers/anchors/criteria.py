"""What an anchor is reviewed by: nine questions, the same for the reviewing model and for people who audit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

Criterion = Literal[
    "evidence_support",
    "subject_attribution",
    "type",
    "temporal_stability",
    "single_instance",
    "leak",
    "need",
    "naturalness",
    "different_scenarios",
]

CRITERIA: Final[tuple[Criterion, ...]] = get_args(Criterion)

QUESTIONS: Final[Mapping[Criterion, str]] = {
    "evidence_support": "Do the quoted lines alone, read in their segment, support all that the statement says?",
    "subject_attribution": "Is the subject the person whom the statement is about, and did that person say or do it?",
    "type": "Is the evidence type right: stated if it was said outright, inferred if it only follows?",
    "temporal_stability": "Will it still hold when the tasks are asked, hours or days later?",
    "single_instance": "Is it one piece of evidence, and not several facts that could be asked for one by one?",
    "leak": "Do both requests keep the evidence to themselves: could nobody guess it from what they say?",
    "need": "Does a good answer to each request need the evidence, so that without it the answer is another?",
    "naturalness": "Are both requests what a person would really ask, in words that a person would use?",
    "different_scenarios": "Are the two requests of different situations, and not one situation told twice?",
}
"""For people. Yes is always the good answer."""
