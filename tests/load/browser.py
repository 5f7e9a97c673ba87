"""A real browser: Debian's chromium, driven by playwright."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from tests.conftest import skip_without

FLAGS = (
    "--no-sandbox",  # continuous integration is root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DEADLINE_MS = 90_000
"""Ends a hang; measures nothing."""


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser with a profile of its own, or a skipped test."""
    path = shutil.which("chromium")
    if path is None:
        skip_without("browser", "there is no chromium (Debian package chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        skip_without("browser", "playwright is not installed (pip install playwright)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS), timeout=DEADLINE_MS)
        try:
            yield browser
        finally:
            browser.close()


class Seen(NamedTuple):
    """A page, what it asked for, and what it said on its console."""

    page: Any
    requests: list[str]
    said: list[str]


@contextmanager
def looking(browser: Any) -> Iterator[Callable[..., Seen]]:
    """Opens addresses, each in a context of its own, and closes them all at the end."""
    contexts = []

    def opened(address: str, width: int = 1200, scheme: str = "light") -> Seen:
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
        contexts.append(context)
        context.set_default_timeout(DEADLINE_MS)
        page = context.new_page()
        seen = Seen(page, [], [])
        page.on("request", lambda request: seen.requests.append(request.url))
        page.on("console", lambda message: seen.said.append(message.text))
        page.on("pageerror", lambda error: seen.said.append(str(error)))
        page.goto(address)
        # Alone, it may come while a slow browser still reads the page.
        page.wait_for_load_state("networkidle")
        return seen

    yield opened
    for context in contexts:
        context.close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        """Nobody reads it."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A folder's address over HTTP."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
