"""Memory systems that break one demand each, and the whole ones that they are made of."""

from __future__ import annotations

from tests.conformance.stand_ins import failing, finding, isolating, repeating
from tests.conformance.stand_ins.whole import Asks, AsksLate, AsksVectors, OnDisk, Server, Whole

WHOLE: tuple[type[Whole], ...] = (Whole, Asks, AsksLate, AsksVectors, OnDisk, Server)

BROKEN: dict[type[Whole], str] = {
    finding.NewestFirst: "retrieval",
    finding.AddsTwice: "delta",
    finding.UpdatesUnknown: "delta",
    finding.Secretive: "delta",
    finding.Rewrites: "delta",
    finding.Boastful: "kept",
    finding.Generous: "top_k",
    finding.AsciiOnly: "chinese",
    finding.WantsTwo: "single",
    finding.Cuts: "large",
    finding.NeedsOne: "nothing",
    finding.Mixes: "lanes",
    isolating.ForksLate: "fork",
    isolating.SharesCommits: "commit",
    isolating.Deaf: "commit",
    isolating.Commits1Late: "commit",
    repeating.StampsNow: "times",
    repeating.StampsLate: "times",
    repeating.WritesYear: "times",
    repeating.DatesPrompts: "times",
    repeating.Warms: "answers",
    repeating.CountsCalls: "answers",
    repeating.DrawsIds: "rebuild",
    failing.StartsAnew: "kill",
    failing.Swallows: "outage",
    failing.SwallowsLate: "outage",
    failing.StoresHalf: "outage",
    failing.ShrugsIt: "outage",
    failing.LeaksThread: "close",
    failing.LeaksFile: "close",
    failing.LeaksTask: "close",
    failing.LeaksProcess: "close",
    isolating.KeepsBack: "capabilities",
    isolating.Undeclared: "capabilities",
    isolating.OwnAnswers: "capabilities",
}
"""Each, and the one case that it fails."""
