"""The benchmarks that ask once, by name: a path → streams and probes."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from producers.datasets import Progress
from producers.datasets.apm import read_apm
from producers.datasets.lifedialbench import read_lifedialbench
from producers.datasets.realmem import read_realmem
from producers.probes import Benchmark, ProbeSet
from simulator.errors import ConfigError


def read_probes(benchmark: str, path: str | Path, *, progress: Progress | None = None) -> ProbeSet:
    """Read a benchmark's data. Blocks. Raises DatasetError for data that can't be read, ConfigError for a benchmark
    that nobody knows (naming them) or a wrong `synthetic:` path."""
    readers = {"realmem": read_realmem, "lifedialbench": read_lifedialbench, "apm": read_apm}
    if benchmark not in readers:
        raise ConfigError(f"no benchmark {benchmark!r}; there is {', '.join(get_args(Benchmark))}")
    return readers[benchmark](path, progress=progress)
