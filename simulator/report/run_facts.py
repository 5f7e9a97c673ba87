"""What was run, and whether its log was audited, in words. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from adapters.foreign.catalogue import Known
from consumers.audit import Certificate
from consumers.audit import one_line as audit_line
from consumers.scores import Scores
from simulator.marks import IDENTITY_FIELD


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """What `audit.json` says of a run; `sound` is None where there is none that counts."""

    sound: bool | None
    says: str
    digest: str = ""


def audited(where: str, scores: Scores, certificate: Certificate | None) -> Audited:
    """What the certificate in a run's folder, if there is one, says of the run as it is now."""
    hint = f"`egostream audit {where}` does that"
    if certificate is None:
        return Audited(sound=None, says=f"Not audited: {hint}")
    if certificate.run != scores.run:
        return Audited(sound=None, says=f"Not audited: audit.json is that of {certificate.run}; {hint}")
    if scores.ended and not certificate.ended:
        return Audited(sound=None, says=f"Not audited since the run ended: {hint}")
    line = audit_line(certificate).removeprefix("Audit: ").partition("; digest")[0]
    says = f"{'sound' if certificate.sound else 'not sound'}: {line}"
    return Audited(sound=certificate.sound, says=says, digest=certificate.digest)


def facts_of_run(where: str, scores: Scores, identity: Mapping[str, str], audit: Audited) -> dict[str, str]:
    """What was run, by the run's own identity."""
    streams = identity.get("streams", "").split(",")
    names = ", ".join(streams[:6]) + (f" and {len(streams) - 6} more" if len(streams) > 6 else "")
    segments = identity.get("segments", "all")
    facts = {
        "Run": f"{scores.run}, at {where}",
        "Data": f"{identity.get('layout', '')}, {identity.get('language', '')}: {names}"
        + ("" if segments == "all" else f"; the first {segments} segments of each"),
        "Data digest": identity.get("dataset", ""),
        "Systems": ", ".join(identity.get("systems", "").split()),
        "Isolation": _isolation(scores),
        "Judges": _judges(identity),
        "Answers": _answers(scores, identity),
        "Top-k": f"{identity.get('top_k', '')} records, {identity.get('word_budget', '')} words",
        "Seed": identity.get("seed", ""),
    }
    if "asked" in identity:
        facts["Asked"] = {"online": "when due", "offline": "at the end of the stream"}.get(
            identity["asked"], "when due and at the end of the stream"
        )
    if IDENTITY_FIELD in identity:
        facts["Canaries"] = f"{identity[IDENTITY_FIELD]}: its scores are not those of a plain run"
    facts["egostream"] = identity.get("code", "")
    facts["Audit"] = audit.says
    if audit.digest:
        facts["Log digest"] = audit.digest
    return {name: said for name, said in facts.items() if said}


def foreign_of(identity: Mapping[str, str], catalogue: Mapping[str, Known]) -> dict[str, Known]:
    """By label: what is known of each foreign system of a run. Nothing of one whose version or pins are no longer those
    of the catalogue."""
    return {
        label: known
        for label, implementation in _implementations(identity).items()
        for known in catalogue.values()
        if (implementation + ",").startswith(f"{known.implementation},")
    }


def foreign_facts(identity: Mapping[str, str], catalogue: Mapping[str, Known]) -> dict[str, str]:
    """By label: how the authors of each foreign system of a run drive it, and what is different here."""
    ran = _implementations(identity)
    return {
        label: f"{ran[label]}; {known.driven}. Here: {' '.join(known.approximations)}"
        for label, known in foreign_of(identity, catalogue).items()
    }


def source_warnings(identity: Mapping[str, str], catalogue: Mapping[str, Known]) -> list[str]:
    """Of each foreign system of a run whose checkout was not what its driver was written for."""
    ran = _implementations(identity)
    return [
        f"{label} ran from a checkout of {known.title} that {known.unmeasured}"
        for label, known in foreign_of(identity, catalogue).items()
        if known.source is not None and ran[label].endswith(known.unlike)
    ]


def _implementations(identity: Mapping[str, str]) -> dict[str, str]:
    kept = "implementation."
    return {name.removeprefix(kept): said for name, said in identity.items() if name.startswith(kept)}


def _isolation(scores: Scores) -> str:
    if scores.isolation == "shared":
        return "shared: trajectories leave traces in the one memory"
    ways: dict[str, list[str]] = defaultdict(list)
    for system, means in scores.means.items():
        ways[means].append(system)
    made = "; ".join(f"{means}: {', '.join(systems)}" for means, systems in ways.items())
    return f"branch: each trajectory on a memory of its own ({made})" if made else "branch"


def _judges(identity: Mapping[str, str]) -> str:
    by_judge: dict[str, list[str]] = defaultdict(list)
    for name, judge in identity.items():
        if name.startswith("judge."):
            by_judge[judge].append(name.removeprefix("judge."))
    return "; ".join(f"{judge}: {', '.join(metrics)}" for judge, metrics in by_judge.items())


def _answers(scores: Scores, identity: Mapping[str, str]) -> str:
    if "answers" not in identity:
        return "by extraction, without a model"
    apart = f"; {', '.join(scores.answered_apart)}: by itself" if scores.answered_apart else ""
    return f"by {identity['answers']}, {identity.get('answer_tokens', '')} tokens at most{apart}"
