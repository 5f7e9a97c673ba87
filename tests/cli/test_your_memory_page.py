"""docs/your-memory.md: what stands there works, in its order, and its table is the suite's."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from adapters.conformance import CASES
from tests.cli.helpers import egostream
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "your-memory.md").read_text()
BLOCK = re.compile(r"^```(\w+)(?: (\S+)( \+)?)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps"]


def test_every_command_works_in_the_order_of_the_page(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "memory_package", tmp_path / "examples" / "memory_package")
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT)])
    codes: dict[str, list[int]] = {}
    said = ""
    for language, name, more, content in BLOCK.findall(PAGE):
        if name:
            with (tmp_path / name).open("a" if more else "w") as file:
                file.write(content)
        elif language == "text":
            for line in content.splitlines():
                assert line in re.sub(" +$", "", said, flags=re.MULTILINE).splitlines()
        elif language == "sh":
            for command in content.splitlines():
                program, *words = shlex.split(command)
                if program == "pip":
                    subprocess.run(
                        [*PIP, "--target", "site", *words[1:]], cwd=tmp_path, check=True, timeout=100
                    )
                    continue
                assert program == "egostream"
                ran = egostream(*words, cwd=tmp_path, env={"PYTHONPATH": path, "COLUMNS": "120"})
                codes.setdefault(command, []).append(ran.code)
                said = ran.out
                assert ran.code == 0 or len(codes) == 2, f"{command}: {ran.out}{ran.err}"
    assert len(codes) >= 8
    # the page says that the first check fails, and what to change
    assert codes["egostream systems check my_memory:SharedWords"] == [1, 0]


def test_page_lists_every_demand() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.partition("## 3.")[0], re.MULTILINE)
    assert rows == [(case.name, case.demand) for case in CASES.values()]
