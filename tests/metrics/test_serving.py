"""Metrics over real HTTP: of runs in this process and in others, while they go on and after."""

from __future__ import annotations

import socket
import subprocess
from functools import partial
from itertools import accumulate
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from prometheus_client.metrics_core import Metric

from consumers.exposition import METRICS
from consumers.follow import follow
from consumers.gauges import Gauges
from consumers.lags import STAGES
from consumers.metrics_server import MetricsServer, parse_address
from producers.arrivals import Load
from simulator.errors import ConfigError
from simulator.load.single import LoadOptions, execute_load, plan_load
from simulator.plan import RunOptions, plan_run
from simulator.run import execute
from tests.cli.helpers import SCRIPT, egostream, environment, one_line
from tests.load.test_latency import started
from tests.metrics.recount import bucketed, nonzero, recounted, said_by_the_end
from tests.metrics.scraping import DEADLINE_S, OPENMETRICS, announced, as_counted, fetch, histogram, values

DATA = "synthetic:seed=5,wearers=2,segments_per_day=6,observations_per_segment=4,anchors_per_day=4"
LOAD = Load(wearers=3, duration_s=1.5, rate=1500)


async def scrape(url: str, accept: str = "text/plain") -> list[Metric]:
    return await anyio.to_thread.run_sync(fetch, url, accept)


async def test_after_a_run_they_are_what_the_log_holds(tmp_path: Path) -> None:
    options = RunOptions(data=DATA, systems=("null", "rag_raw:retrieval=bm25"), out=tmp_path)
    with MetricsServer("127.0.0.1:0") as server:
        scores = await execute(plan_run(options), None, (partial(follow, tell=server.set),))
        for accept in ("text/plain", OPENMETRICS):
            families = await scrape(server.url, accept)
            assert nonzero(as_counted(families)) == nonzero(await recounted(tmp_path))
            assert values(families, "egostream_run_ended") == {(): 1.0}
            assert sum(values(families, "egostream_trajectories_begun_total").values()) == scores.trajectories
            judged = values(families, "egostream_verdicts_total")
            assert judged["null", "fidelity", "fail"] == scores.trajectories / 2
        assert {family.name for family in families} == {f"egostream_{metric.name}" for metric in METRICS}


async def test_after_a_load_the_histograms_are_its_latencies(tmp_path: Path) -> None:
    system = "tests.load.systems:FixedTime:service_ms=5,fails_at=2"
    plan = plan_load(LoadOptions(data=DATA, system=system, out=tmp_path, load=LOAD))
    late_us: list[int] = []
    with MetricsServer("127.0.0.1:0") as server:
        watcher = partial(follow, tell=server.set, remembered=late_us.append)
        report = await execute_load(plan, None, (watcher,))
        families = await scrape(server.url)
    served, held = nonzero(as_counted(families)), nonzero(await recounted(tmp_path))
    # The load's meter samples itself until all roles have returned: after run_ended, when the watcher may be done.
    samples = [served["events"].pop(("control",)), held["events"].pop(("control",))]
    assert await said_by_the_end(tmp_path) <= samples[0] <= samples[1]
    assert served == held
    for stage in STAGES:
        numbers = report.stages[stage]
        assert numbers is not None
        _, count, sum_s = histogram(families, "egostream_ingest_latency_seconds", stage=stage)
        assert count == numbers.n == report.remembered
        assert sum_s == pytest.approx(numbers.mean_us * numbers.n / 1e6)
    cumulative, *_ = histogram(families, "egostream_ingest_latency_seconds", stage="remembered")
    assert cumulative == list(accumulate(bucketed(late_us)))
    used = values(families, "egostream_process_resident_memory_bytes")
    assert used["load", "itself"] > 10e6
    assert set(values(families, "egostream_lag_event_time_seconds").values()) == {0.0}


async def test_while_a_load_goes_on_each_scrape_is_one_moment(tmp_path: Path) -> None:
    """Counters only rise, and what belongs together in a moment is together in a scrape."""
    system = "tests.load.systems:FixedTime:service_ms=500"  # twice what there is time for
    plan = plan_load(LoadOptions(data=DATA, system=system, out=tmp_path, load=LOAD))
    over, seen = anyio.Event(), list[dict[str, float]]()

    async def watch(server: MetricsServer) -> None:
        while not over.is_set():
            families = await scrape(server.url)
            if not families:
                continue
            published = values(families, "egostream_segments_published_total")
            done = values(families, "egostream_segments_remembered_total")
            lag = values(families, "egostream_lag_segments")
            for (found, stream), behind in lag.items():
                assert behind == published[stream,] - done[found, stream]
            seen.append({"published": sum(published.values()), "remembered": sum(done.values())})

    with MetricsServer("127.0.0.1:0") as server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch, server)
            await execute_load(plan, None, (partial(follow, tell=server.set),))
            over.set()
    for name in ("published", "remembered"):
        numbers = [moment[name] for moment in seen]
        assert numbers == sorted(numbers)
    assert max(m["published"] - m["remembered"] for m in seen) > 0


async def test_a_load_that_is_cut_short_is_shown_to_its_end(tmp_path: Path) -> None:
    asked = LoadOptions(
        data=DATA, system="tests.load.systems:FixedTime:hangs_at=2", out=tmp_path, load=LOAD, drain_s=0.1
    )
    with MetricsServer("127.0.0.1:0") as server:
        report = await execute_load(plan_load(asked), None, (partial(follow, tell=server.set),))
        families = await scrape(server.url)
    assert nonzero(as_counted(families)) == nonzero(await recounted(tmp_path))
    assert sum(values(families, "egostream_lag_segments").values()) == report.unfinished > 0
    assert values(families, "egostream_run_ended") == {(): 0.0}
    worker = ("worker", "metrics", "--listen", "127.0.0.1:0", "--log", tmp_path / "log.db", "--run", "any")
    ran = await anyio.to_thread.run_sync(partial(egostream, *worker, "--linger", 0, "-q", "--json"))
    assert (ran.code, ran.json["ended"]) == (0, True)


def test_another_process_serves_a_run_and_ends_once_its_end_was_fetched(tmp_path: Path) -> None:
    out, errors, log = tmp_path / "run", tmp_path / "errors.txt", tmp_path / "shared.db"
    where = ("--log", log, "--run", "any")
    with errors.open("w") as file:
        worker = subprocess.Popen(
            [SCRIPT, "worker", "metrics", "--listen", "127.0.0.1:0", "--linger", "90", *map(str, where)],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
        try:
            url = announced(errors)
            assert fetch(url) == []  # nothing has begun
            ran = egostream("run", "--data", DATA, "--system", "null", "--out", out, "--log", log, "-q")
            assert ran.code == 0
            while not (families := fetch(url)) or values(families, "egostream_run_ended") != {(): 1.0}:
                pass
            assert nonzero(as_counted(families)) == nonzero(anyio.run(recounted, out))
            assert worker.wait(DEADLINE_S) == 0
        finally:
            worker.kill()
            worker.communicate()


def test_the_option_serves_and_lingers(tmp_path: Path) -> None:
    load = ("load", "null", "--data", DATA, "--rate", 1500, "--duration", 1)
    ran = egostream(*load, "--out", tmp_path / "a", "--metrics", "127.0.0.1:0", "--linger", 0.2)
    assert ran.code == 0
    assert "metrics: http://127.0.0.1:" in ran.err
    assert "until they are fetched once more, 0.2 s at most" in ran.err
    assert "segments remembered." in ran.out
    quiet = ("--metrics", "127.0.0.1:0", "--linger", 0, "-q", "--json")
    for words in (
        (*load, "--out", tmp_path / "b"),
        ("run", "--data", DATA, "--system", "null", "--out", tmp_path / "c"),
        ("replay", "--data", DATA, "--rate", "inf", "--out", tmp_path / "d"),
        ("worker", "metrics", "--log", tmp_path / "c" / "log.db", "--run", "any"),
    ):
        given = tuple("--listen" if word == "--metrics" and words[0] == "worker" else word for word in quiet)
        ran = egostream(*words, *given)
        assert (ran.code, ran.err) == (0, "")
        assert ran.json


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("9100", "write HOST:PORT"),
        (":9100", "write HOST:PORT"),
        ("::1:9100", "write HOST:PORT"),
        ("127.0.0.1:70000", "write HOST:PORT"),
        ("no.such.host.invalid:9100", "can't serve metrics on no.such.host.invalid:9100"),
        ("192.0.2.1:9100", "can't serve metrics on 192.0.2.1:9100"),  # kept for examples: nobody's
    ],
)
def test_a_bad_address_is_one_line_and_nothing_begins(tmp_path: Path, address: str, says: str) -> None:
    load = ("load", "null", "--data", DATA, "--rate", 1500, "--out", tmp_path / "run")
    ran = egostream(*load, "--metrics", address)
    assert ran.code == 2
    assert says in one_line(ran)
    assert not (tmp_path / "run").exists()


def test_an_address_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = egostream(
            "worker", "metrics", "--listen", address, "--log", tmp_path / "none.db", "--run", "any"
        )
    assert ran.code == 2
    assert f"can't serve metrics on {address}: Address already in use" in one_line(ran)


def test_without_the_library_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "prometheus_client.py").write_text("raise ModuleNotFoundError(name='prometheus_client')\n")
    env = {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    ran = egostream("replay", "--data", DATA, "--out", tmp_path / "run", "--metrics", "127.0.0.1:0", env=env)
    assert ran.code == 2
    assert "pip install 'egostream[metrics]'" in one_line(ran)


def test_addresses() -> None:
    assert parse_address("127.0.0.1:0") == ("127.0.0.1", 0)
    assert parse_address("[::1]:9100") == ("::1", 9100)
    assert parse_address("metrics.example:9100") == ("metrics.example", 9100)


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_ipv6() -> None:
    try:
        server = MetricsServer("[::1]:0")
    except ConfigError as error:
        pytest.skip(str(error))
    with server:
        assert server.url.startswith("http://[::1]:")
        server.set(Gauges(started("A")).state(0))
        assert values(fetch(server.url), "egostream_segments_expected") == {("A",): 1.0}


def test_a_scrape_that_breaks_off_says_one_line_and_stops_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    with MetricsServer("127.0.0.1:0") as server:
        server.set(Gauges(started("A")).state(0))
        port = int(server.url.rpartition(":")[2].partition("/")[0])
        for said in (b"GET /metrics HTTP/1.1\r\n", b"\x16\x03nonsense\r\n\r\n", b""):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(said)
        assert fetch(server.url)
        assert server.linger(60)  # the client may have it all before the server knows
        server.set(Gauges(started("A")).state(1))
        assert not server.linger(0.01)
    assert "Traceback" not in "".join(capfd.readouterr())
