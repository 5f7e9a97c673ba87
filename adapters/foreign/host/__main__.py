"""A host process: `python -s -P path/to/host`, and its task as one line of JSON on standard input.

It says `listening on http://127.0.0.1:PORT` once, on standard output, and lives as long as standard input is open: so
it ends with whoever started it, in whatever way that ends. What the system prints goes to standard error.
"""

import atexit
import importlib.util
import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import ModuleType

GRACE_S = 5.0
"""So long what the system has started has to end by itself."""

HERE = Path(__file__).resolve().parent
NAME = "egostream_host"


def load(name: str, path: Path) -> ModuleType:
    """A module of ours from its file. It is found by nothing on `sys.path`, where it could hide the system's own."""
    places = [str(path.parent)] if path.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=places)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _end_group(asked_to_end: threading.Event) -> None:
    """Kill what the system has started and left; and this process, whose work is done."""
    if asked_to_end.is_set() and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Serve until standard input ends."""
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != HERE]
    asked_to_end = threading.Event()
    atexit.register(_end_group, asked_to_end)  # the first to be registered is the last to be called
    ready = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    load(NAME, HERE / "__init__.py")
    load(f"{NAME}.drivers", HERE / "drivers" / "__init__.py")
    memories_module = importlib.import_module(f"{NAME}.memories")
    task = memories_module.Task(**json.loads(sys.stdin.readline()))
    path = Path(task.driver)
    driver = load(f"{NAME}.drivers.{path.stem}", path)
    memories = memories_module.Memories(driver.DRIVER, task)
    server = importlib.import_module(f"{NAME}.server").Server(memories)

    def watch() -> None:
        while sys.stdin.read(4096):
            pass
        asked_to_end.set()
        overdue = threading.Timer(GRACE_S, os.kill, (os.getpid(), signal.SIGKILL))
        overdue.daemon = True
        overdue.start()
        server.shutdown()

    threading.Thread(target=watch, daemon=True).start()
    print(f"listening on http://127.0.0.1:{server.server_port}", file=ready, flush=True)
    ready.close()
    server.serve_forever()
    memories.close_all()


if __name__ == "__main__":
    main()
