"""All memory systems at once, started as a user would, on a scripted model that answers each system's prompts by rule.
A foreign system that is not installed is left out, and named.

    python benchmarks/bench_systems.py [papers] [outage] [lanes]

papers: two days of A1_JAKE into every system in one run. outage: the same trajectories with a model that is sound, with
one of which a fifth of the calls fail, and with one that is gone for a while: what is told apart, what is lost, and
whether the verdicts are the same in the end. lanes: eight lanes of Mem0 on a slow model against the slowest one alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from adapters.foreign.catalogue import catalogue
from adapters.foreign.environment import installed
from adapters.foreign.sources import variable_of
from consumers.tables import new_table
from tests.cli.helpers import SCRIPT, environment
from tests.conftest import ROOT
from tests.foreign.hosts import SOURCES
from tests.models.server import Script, Server, Step, running_server

Run = dict[str, Any]

BUILT_IN: Final = (
    "null",
    "oracle",
    "full_context",
    "rag_raw",
    "rag_ext=rag_ext:model=rag_ext",
    "graph=graph:model=graph",
)
RELEASE: Final = Path("streammembench") / "streammembench_v1_en"
FIRST_TWO_DAYS: Final = 175
RULE: Final = "tests.foreign.rules:everyone"
OUT_OF_ORDER: Final = "this model is out of order"
BROKEN: Final = (
    Step(does="refuse", status=503, message=OUT_OF_ORDER, retry_after="0"),
    Step(does="hang"),
    Step(does="not_json"),
    Step(does="refuse", status=500, message=OUT_OF_ORDER),
    Step(does="wrong_shape"),
    Step(does="cut"),
    Step(does="refuse", status=429, message=OUT_OF_ORDER, retry_after="0"),
    Step(does="empty"),
)
ERROR_TEXT: Final = re.compile(
    rf"{OUT_OF_ORDER}|Traceback|Error:|could not get response|ConnectError|Connection (error|refused)|APIError"
    r"|Error code|model_error|status.?code|timed out",
    re.IGNORECASE,
)
"""What systems are known to store where a model fails them."""
COMMAND_S: Final = 6 * 3600.0
DOWN_S: Final = 8.0
"""Longer than the retries of `SHORT`."""
SHORT: Final = "attempts = 3\ntimeout_s = 2.0\n"
PATIENT: Final = "attempts = 12\ntimeout_s = 1.0\n"
CALL_S: Final = 0.75
LANES: Final = 8

console = Console(width=120)


class Ran(NamedTuple):
    code: int
    out: str
    err: str
    took_s: float


def systems(wanted: Sequence[str]) -> list[str]:
    """How `run` is told each of them; says which are left out."""
    places = sources()
    missing = [
        name
        for name, about in catalogue().items()
        if installed(about) is None or not Path(places.get(variable_of(about), ROOT)).is_dir()
    ]
    if left_out := [name for name in missing if not wanted or name in wanted]:
        console.print(f"not installed, or without its checkout, and left out: {', '.join(left_out)}")
    foreign = [f"{name}={name}:model={name}" for name in catalogue() if name not in missing]
    return [spec for spec in (*BUILT_IN, *foreign) if not wanted or name_of(spec) in wanted]


def sources() -> dict[str, str]:
    """Where the checkouts are."""
    folder = ROOT.parent / "shared" / "memsys"
    found = {variable_of(catalogue()[name]): str(folder / place) for name, place in SOURCES.items()}
    return {name: os.environ.get(name, place) for name, place in found.items()}


def egostream(*arguments: object) -> Ran:
    """A command to its end."""
    with started(*arguments) as process:
        began_s = time.perf_counter()
        out, err = process.communicate(timeout=COMMAND_S)
        return Ran(process.returncode, out, err, time.perf_counter() - began_s)


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A command under way."""
    command, pipe = [str(word) for word in (SCRIPT, *arguments)], subprocess.PIPE
    env = environment(sources()) | {"COLUMNS": "120"}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def models_file(folder: Path, url: str, names: Sequence[str], more: str = "") -> Path:
    """Each asks a model of its own name, so that the server knows who asks."""
    tables = (f'[models.{name}]\nbase_url = "{url}"\nmodel = "{name}"\n{more}' for name in names)
    path = folder / "models.toml"
    path.write_text("\n".join(tables))
    return path


def run_arguments(folder: Path, out: str, data: str, specs: Sequence[str], *more: object) -> list[object]:
    where = ("--models", folder / "models.toml", "--cache", folder / f"{out}.db", "--out", folder / out)
    named = [word for spec in specs for word in ("--system", spec)]
    return ["run", "--data", data, *named, *where, *more, "-q"]


def name_of(spec: str) -> str:
    return spec.partition("=")[0]


def scores_of(run: Path) -> Run:
    scores: Run = json.loads((run / "scores.json").read_text())
    return scores


def tap(run: Path, topic: str, *more: str) -> list[Run]:
    """All events of a topic."""
    return [json.loads(line) for line in egostream("tap", run, topic, "--json", "-q", *more).out.splitlines()]


class Checks:
    """What was looked at, and what did not hold."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def __call__(self, holds: bool, what: str, else_: object = "") -> None:
        console.print(f"  {'yes' if holds else 'NO '} {what}" + ("" if holds else f": {else_}"), markup=False)
        if not holds:
            self.failed.append(what)


# --- papers -----------------------------------------------------------------------------------------------------------


def papers(folder: Path, wanted: Sequence[str], segments: int, check: Checks) -> None:
    """Every system on the release."""
    data = Path(os.environ.get("EGOSTREAM_DATA") or ROOT.parent / "shared" / "data") / RELEASE
    if not data.is_dir():
        console.print(f"papers: skipped, there is no release at {data}; set EGOSTREAM_DATA")
        return
    specs = systems(wanted)
    with running_server(Script(rule=RULE, keep=False)) as server:
        models_file(folder, server.url, [name_of(spec) for spec in specs])
        ran = egostream(*run_arguments(folder, "papers", str(data), specs, "--segments", segments))
    console.print(ran.out or ran.err, markup=False)
    scores = scores_of(folder / "papers")
    show_costs(scores)
    first = ran.out.splitlines()[0]
    console.print(
        f"{segments} segments of A1_JAKE, {scores['anchors']} of the release's 44 anchors; {ran.took_s:.0f} s"
    )
    check(ran.code == 0 and first.endswith("every metric judged."), "all trajectories are judged", first)
    check(not scores["failed_ingests"], "every segment was taken in", scores["failed_ingests"])
    audit = egostream("audit", folder / "papers")
    check(audit.code == 0, "the audit finds every invariant kept", audit.out)


def show_costs(scores: Run) -> None:
    """What each system took of a segment."""
    titles = ("Stored", "Seconds", "Model calls", "Tokens")
    table = new_table("Per segment", "System", *titles, numbers=titles)
    calls = Counter[str]()
    for spent in scores["spending"]:
        calls[spent["system"]] += spent["calls"] if spent["role"] == "ingest" else 0
    for cost in scores["costs"]:
        seconds, stored = cost["ingest_seconds"], cost["stored_bytes"]
        tokens = cost["ingest_tokens"]
        table.add_row(
            cost["system"],
            f"{stored['mean']:,.0f} B",
            f"{seconds['mean']:.3f}",
            f"{calls[cost['system']] / seconds['n']:.2f}",
            f"{tokens['mean']:,.0f}" if tokens else "–",
        )
    console.print(table)


# --- outage -----------------------------------------------------------------------------------------------------------

OUTAGE_SYSTEMS: Final = ("rag_ext", "graph", "mem0", "amem", "memskill")
OUTAGE_DATA: Final = (
    "synthetic:seed=5,wearers=1,days=1,segments_per_day=30,observations_per_segment=10,anchors_per_day=12"
)
BY_MODELS: Final = ("--judge", "judge", "--votes", 1, "--answers", "answers")


def outage(folder: Path, wanted: Sequence[str], data: str, check: Checks) -> None:
    """The same run, undisturbed and disturbed in two ways."""
    specs = systems(wanted or OUTAGE_SYSTEMS)
    names = [*map(name_of, specs), "judge", "answers"]
    sound, failing = Script(rule=RULE), Script(rule=RULE, faults=BROKEN, fault_share=0.2)
    for out, script in (("sound", sound), ("failing", failing)):
        with running_server(script) as server:
            models_file(folder, server.url, names, PATIENT)
            ran = egostream(*run_arguments(folder, out, data, specs, *BY_MODELS))
            calls = did(server)
        show_run(out, ran, calls)
        check(ran.code == 0, "all is judged", ran.err)
        check_kept(folder, out, check)
        if out == "sound":
            enough = calls.total() // 3
    check_same(folder, "failing", check)
    with running_server(sound) as server:
        models_file(folder, server.url, names, SHORT)
        ran, port = gone_for_a_while(run_arguments(folder, "gone", data, specs, *BY_MODELS), server, enough)
    show_run(f"gone for {DOWN_S:g} s", ran, None)
    check(ran.code == 4, "what it cost is unjudged, and the exit code says so", ran)
    check_kept(folder, "gone", check)
    with running_server(sound, port) as server:
        ran = egostream("retry", folder / "gone", "-q")
        show_run("retry", ran, did(server))
    check(ran.code == 0, "all is judged", ran.err)
    check_kept(folder, "gone/retry-1", check)
    egostream("scores", folder / "gone", "--write", "-q")
    check_same(folder, "gone", check)


def did(server: Server) -> Counter[str]:
    """What became of the calls so far."""
    asked = httpx.get(server.url.removesuffix("/v1") + "/asked", trust_env=False, timeout=60).json()
    return Counter(call["did"] for call in asked)


def show_run(name: str, ran: Ran, calls: Counter[str] | None) -> None:
    met = "" if calls is None else "; calls: " + ", ".join(f"{did} {n}" for did, n in calls.most_common())
    console.print(f"{name}: exit code {ran.code}, {ran.took_s:.0f} s{met}", markup=False)
    console.print("".join(f"  {line}\n" for line in ran.out.splitlines()[:8]), markup=False, end="")


def gone_for_a_while(arguments: Sequence[object], server: Server, enough: int) -> tuple[Ran, int]:
    """A run whose server is killed after so many calls, and comes back later. Gives its port, too."""
    port = int(server.url.rpartition(":")[2].partition("/")[0])
    with started(*arguments) as run:
        began_s = time.perf_counter()
        while did(server).total() < enough:
            assert run.poll() is None, "it ended before its server was killed"
            time.sleep(0.1)
        server.process.kill()
        server.process.wait()
        time.sleep(DOWN_S)
        with running_server(Script(rule=RULE), port):
            out, err = run.communicate(timeout=COMMAND_S)
        return Ran(run.returncode, out, err, time.perf_counter() - began_s), port


def check_kept(folder: Path, out: str, check: Checks) -> None:
    """Each segment has one delta in each lane, with records or with an error, and nobody wrote an error down."""
    deltas = [event for event in tap(folder / out, "deltas") if event["kind"] == "delta"]
    segments: dict[str, Counter[int]] = defaultdict(Counter)
    for delta in deltas:
        segments[delta["lane"]][delta["segment"]] += 1
    lost = {lane: found for lane, found in segments.items() if found != Counter(range(len(found)))}
    errors = Counter(delta["error"] for delta in deltas if delta.get("error"))
    check(not lost, f"each segment has its delta, once ({len(deltas)}, {errors.total()} with an error)", lost)
    for error, times in errors.most_common(3):
        console.print(f"      {times} x {error}", markup=False)
    told = [event for topic in ("responses", "feedback", "commits") for event in tap(folder / out, topic)]
    found = [said for event in (*deltas, *told) if (said := error_text(event))]
    check(not found, "no record, answer or conversation holds an error's text", found[:3])


def error_text(event: Run) -> str:
    """A text in an event that looks as if it were an error; empty where there is none."""
    said = json.dumps({name: value for name, value in event.items() if name not in ("error", "reason")})
    match = ERROR_TEXT.search(said)
    return (
        "" if match is None else f"{event['id']}: ...{said[max(0, match.start() - 80) : match.end() + 80]}..."
    )


def check_same(folder: Path, out: str, check: Checks) -> None:
    """The same verdicts as the undisturbed run."""
    sound, other = outcomes(folder / "sound"), outcomes(folder / out)
    differ = [
        f"{name}: {sound.get(name)} {other.get(name)}"
        for name in sound | other
        if sound.get(name) != other.get(name)
    ]
    passed = Counter(sound.values())["pass"]
    check(not differ, f"the verdicts of the undisturbed run ({len(sound)}, {passed} passed)", differ)


def outcomes(run: Path) -> dict[str, str]:
    lines = (run / "verdicts.jsonl").read_text().splitlines()
    return {verdict["id"]: verdict["outcome"] for verdict in map(json.loads, lines)}


# --- lanes ------------------------------------------------------------------------------------------------------------


def lanes(folder: Path, wanted: Sequence[str], segments: int, check: Checks) -> None:
    """Eight lanes at once on a slow model, and each alone."""
    (spec,) = systems(wanted or ("mem0",)) or (None,)
    if spec is None:
        return
    load = os.getloadavg()[0]
    data = (
        f"synthetic:seed=8,wearers={LANES},days=1,segments_per_day={segments},observations_per_segment=10,"
        "anchors_per_day=2"
    )
    streams = json.loads(egostream("inspect", data, "--json").out)["streams"]
    table = new_table(
        "", "Lanes", "Whole command", "First to last delta", numbers=("Whole command", "First to last delta")
    )
    alone: list[float] = []
    with running_server(Script(rule=RULE, delay_s=CALL_S, keep=False)) as server:
        models_file(folder, server.url, [name_of(spec)])
        for out, more in (("all", ()), *((name, ("--stream", name)) for name in streams)):
            ran = egostream(*run_arguments(folder, out, data, [spec], *more))
            assert ran.code == 0, ran
            took_s = ingesting_s(folder / out)
            table.add_row(out, f"{ran.took_s:.1f} s", f"{took_s:.1f} s")
            if out == "all":
                together_s = took_s
            else:
                alone.append(took_s)
    console.print(table)
    console.print(f"{segments} segments a lane, {CALL_S:g} s a call; load of the machine before: {load:.1f}")
    ratio = together_s / max(alone)
    check(ratio <= 1.3, f"{LANES} lanes take as long as the slowest alone: {ratio:.2f} times (goal <= 1.3)")


def ingesting_s(run: Path) -> float:
    """From the first ingest's beginning to the last one's end, by the wall clock."""
    headers = [
        tapped["record"]["headers"]
        for tapped in tap(run, "deltas", "--meta")
        if tapped["event"]["kind"] == "delta"
    ]
    return (max(int(h["ended_us"]) for h in headers) - min(int(h["began_us"]) for h in headers)) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description="All memory systems at once: scores, outages, lanes.")
    parser.add_argument("parts", nargs="*", metavar="PART", help="papers, outage, lanes (default: all)")
    parser.add_argument(
        "--system", action="append", default=[], help="only these (default: all, or the part's own)"
    )
    parser.add_argument(
        "--segments", type=int, default=FIRST_TWO_DAYS, help="of A1_JAKE (default: two days, 175; all: 653)"
    )
    parser.add_argument("--data", default=OUTAGE_DATA, help="of the outage (default: made up)")
    parser.add_argument("--lane-segments", type=int, default=40, help="of each of eight lanes (default 40)")
    parser.add_argument("--out", type=Path, help="keep the runs in this folder")
    args = parser.parse_args()
    check = Checks()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for part in args.parts or ("papers", "outage", "lanes"):
            console.rule(part)
            match part:
                case "papers":
                    papers(folder, args.system, args.segments, check)
                case "outage":
                    outage(folder, args.system, args.data, check)
                case "lanes":
                    lanes(folder, args.system, args.lane_segments, check)
                case _:
                    parser.error(f"there is no part {part}")
    return int(bool(check.failed))


if __name__ == "__main__":
    sys.exit(main())
