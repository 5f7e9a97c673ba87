#!/usr/bin/env python3
"""Real Kafka on loopback without Docker: start, stop, kill and restart clusters of one or three brokers.

    python dev/kafka/cluster.py start [--brokers 1|3] [--name NAME] [--sasl]
    python dev/kafka/cluster.py status | kill N | restart N | stop [--keep] | fetch

Needs Python 3.11 alone, Java 17 or newer, and (once, for the jars) Maven; Linux or macOS. All of a cluster is
in `.kafka/NAME`: its state (`cluster.json`), and each broker's settings, log and data. Clusters of different
names run side by side. Exit codes: 0 done; 1 not done, or (`status`) a broker is down; 2 something is missing
here, or an option is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[2])
)  # run as a script, only this folder is importable

from dev.kafka.brokers import DATA, START_TIMEOUT_S, BrokerStatus, Cluster, clusters, named, start
from dev.kafka.files import ClusterError, ToolError
from dev.kafka.settings import ADMIN, GUEST
from dev.kafka.tools import fetch_jars, missing_tools, need_tools

__all__ = [
    "ADMIN",
    "GUEST",
    "BrokerStatus",
    "Cluster",
    "ClusterError",
    "ToolError",
    "clusters",
    "fetch_jars",
    "main",
    "missing_tools",
    "named",
    "start",
]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except ClusterError as error:
        print(f"kafka: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _run(options: argparse.Namespace) -> int:
    if options.command == "fetch":
        need_tools()
        print(fetch_jars())
        return 0
    cluster = named(options.name, options.data)
    match options.command:
        case "start":
            cluster = start(
                options.name,
                brokers=options.brokers,
                sasl=options.sasl,
                data=options.data,
                timeout_s=options.timeout,
            )
        case "stop":
            for stopped in clusters(options.data) if options.all else [cluster]:
                stopped.stop(options.keep)
                print(f"cluster {stopped.name} is stopped")
            return 0
        case "kill":
            cluster.kill(options.broker)
        case "restart":
            cluster.restart(options.broker, options.timeout)
    brokers = cluster.status()
    _show(cluster, brokers, as_json=options.json)
    return 1 if options.command == "status" and not all(broker.running for broker in brokers) else 0


def _show(cluster: Cluster, brokers: Sequence[BrokerStatus], as_json: bool) -> None:
    state = cluster.state
    if as_json:
        shown = {
            "name": cluster.name,
            "folder": str(cluster.folder.path),
            "bootstrap": state.bootstrap,
            "sasl": state.sasl,
            "ca_file": str(cluster.ca_file) if state.sasl else None,
            "credentials_file": str(cluster.folder.credentials_file) if state.sasl else None,
            "brokers": [broker._asdict() for broker in brokers],
        }
        print(json.dumps(shown, indent=2))
    else:
        print(f"cluster {cluster.name}: bootstrap {state.bootstrap}")
        for broker in brokers:
            sees = f"sees {', '.join(map(str, broker.sees))}" if broker.sees else "does not answer"
            state_now = f"pid {broker.pid}, {sees}" if broker.running else "down"
            print(f"  broker {broker.id}  {broker.address}  {state_now}  {cluster.folder.log(broker.id)}")
        if state.sasl:
            print(
                "  SASL_SSL with SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN; users admin (all rights) and guest (none)"
            )
            print(f"  or TLS with a certificate at {cluster.tls_bootstrap}: {cluster.folder.client_cert}")
            print(f"  passwords {cluster.folder.credentials_file}  certificate {cluster.ca_file}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cluster.py", description="Apache Kafka's own brokers on loopback, without Docker."
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--name", default="dev", help="which cluster (default: dev)")
    common.add_argument(
        "--data", type=Path, default=DATA, metavar="DIR", help="where clusters are (default: .kafka)"
    )
    common.add_argument("--json", action="store_true", help="print the cluster as JSON (no passwords)")
    waiting = argparse.ArgumentParser(add_help=False)
    waiting.add_argument(
        "--timeout", type=float, default=START_TIMEOUT_S, metavar="S", help="seconds to wait until ready"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser(
        "start", parents=[common, waiting], help="start a cluster, or what is down of it"
    )
    command.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    command.add_argument(
        "--sasl", action="store_true", help="TLS, passwords or certificates, and access rights for clients"
    )
    command = commands.add_parser("stop", parents=[common], help="end a cluster and remove its data")
    command.add_argument("--keep", action="store_true", help="keep the data for the next start")
    command.add_argument("--all", action="store_true", help="every cluster in the folder")
    commands.add_parser(
        "status", parents=[common], help="how a cluster is; exit code 1 unless all brokers run"
    )
    command = commands.add_parser("kill", parents=[common], help="kill -9 one broker")
    command.add_argument("broker", type=int)
    command = commands.add_parser("restart", parents=[common, waiting], help="start one broker again")
    command.add_argument("broker", type=int)
    commands.add_parser("fetch", help="only fetch the jars, and print their folder")
    return parser


if __name__ == "__main__":
    sys.exit(main())
