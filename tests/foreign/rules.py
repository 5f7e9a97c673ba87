"""What the scripted server answers foreign systems by: functions of a request's body. Judges are answered too."""

from __future__ import annotations

import json
import re
from typing import Any


def mem0(body: dict[str, Any]) -> str:
    """A memory for each line of what is new."""
    new = re.search(r"## New Messages\n(.*?)\n+## ", body["messages"][-1]["content"], re.DOTALL)
    lines = new[1].splitlines() if new else []
    found = [
        {"id": str(i), "text": line.removeprefix("user: ")} for i, line in enumerate(lines) if line.strip()
    ]
    return json.dumps({"memory": [{**memory, "attributed_to": "user"} for memory in found]})
