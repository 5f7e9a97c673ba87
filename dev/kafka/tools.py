"""The Java that runs a broker, and Apache Kafka's own jars from Maven Central."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from dev.kafka.files import PROJECT, ClusterError, ToolError, locked, tail

POM = Path(__file__).with_name("pom.xml")
JAVA_AT_LEAST = 17  # Kafka 4 brokers run on nothing older
FETCH_TIMEOUT_S = 300.0


def jars_folder() -> Path:
    """Where the jars of this pom are, or will be: under `$EGOSTREAM_KAFKA_JARS`, else `.kafka/jars`."""
    cache = Path(os.environ.get("EGOSTREAM_KAFKA_JARS") or PROJECT / ".kafka" / "jars")
    return cache.absolute() / hashlib.sha256(POM.read_bytes()).hexdigest()[:12]


def missing_tools() -> list[str]:
    """What this machine lacks to run a broker, in words for a person; empty where nothing is missing.
    Maven is needed only until the jars have been fetched."""
    missing = []
    java = _java_tool("java")
    version = _java_version(java) if java else None
    if version is None:
        missing.append(f"Java {JAVA_AT_LEAST} or newer")
    elif version < JAVA_AT_LEAST:
        missing.append(f"Java {JAVA_AT_LEAST} or newer ({java} is {version})")
    if not _java_tool("keytool"):
        missing.append("keytool (part of Java)")
    if not jars_folder().is_dir() and not shutil.which("mvn"):
        missing.append("mvn (Apache Maven)")
    return missing


def need_tools() -> None:
    """Raises ToolError naming all that `missing_tools` finds."""
    if missing := missing_tools():
        raise ToolError(f"a Kafka broker needs {', '.join(missing)}: install that, or use compose.yaml")


def fetch_jars(timeout_s: float = FETCH_TIMEOUT_S) -> Path:
    """The folder with the jars; fetched with Maven (about 50 MB) when this pom's are not there yet.

    Processes that ask at once wait for one download. Raises ToolError when Maven can't get them.
    """
    folder = jars_folder()
    if folder.is_dir():
        return folder
    with locked(folder.parent, timeout_s):
        if folder.is_dir():
            return folder
        part = Path(tempfile.mkdtemp(prefix="part-", dir=folder.parent))
        try:
            _copy_dependencies(part, timeout_s)
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return folder


def _copy_dependencies(folder: Path, timeout_s: float) -> None:
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-Dstyle.color=never"]
    command = ["mvn", "-q", "-B", "-f", str(POM), *goal]
    failed = "the Kafka jars could not be fetched from Maven Central"
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"{failed} within {timeout_s:.0f} s; check the network and try again") from error
    except OSError as error:
        raise ToolError(f"{failed}: mvn does not start ({error.strerror})") from error
    if done.returncode:
        output = (done.stdout + done.stderr).splitlines()
        reasons = [line for line in output if line.startswith("[ERROR]")] or output or ["no reason given"]
        raise ToolError(f"{failed}: {reasons[0].removeprefix('[ERROR]').strip()}")
    if not list(folder.glob("kafka_2.13-*.jar")):
        raise ToolError(f"{failed}: Maven succeeded, but copied no broker")


def java_command(jars: Path, options: Sequence[str], main: str, arguments: Sequence[str]) -> list[str]:
    """The command that runs one of Kafka's main classes."""
    return [_tool("java"), *options, "-cp", f"{jars}/*", main, *arguments]


def run_tool(
    command: Sequence[str], log: Path, timeout_s: float, env: Mapping[str, str] | None = None
) -> None:
    """Run a short Java tool, its output to `log`. Raises ClusterError with the log's end when it fails."""
    name = Path(command[0]).name
    with log.open("ab") as out:
        try:
            code = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
                env={**os.environ, **(env or {})},
            ).returncode
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"{name} did not end within {timeout_s:.0f} s; see {log}") from error
    if code:
        raise ClusterError(f"{name} failed with code {code}; the end of {log}:\n{tail(log)}")


def keytool() -> str:
    """The path of `keytool`. Raises ToolError where there is none."""
    return _tool("keytool")


def openssl() -> str:
    """The path of `openssl`, which makes the client's certificate. Raises ToolError where there is none."""
    if (path := shutil.which("openssl")) is None:
        raise ToolError("openssl is not on the path: a secured cluster needs it for the client's certificate")
    return path


def _tool(name: str) -> str:
    path = _java_tool(name)
    if path is None:
        raise ToolError(f"{name} is not on the path: install Java {JAVA_AT_LEAST} or newer")
    return path


def _java_tool(name: str) -> str | None:
    home = os.environ.get("JAVA_HOME")
    return (shutil.which(name, path=f"{home}/bin") if home else None) or shutil.which(name)


def _java_version(java: str) -> int | None:
    """The major version, or None where this is no working Java (macOS ships a stub)."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr)
    if done.returncode or not found:
        return None
    major, minor = int(found[1]), found[2]
    return int(minor) if major == 1 and minor else major  # Java 8 calls itself 1.8
