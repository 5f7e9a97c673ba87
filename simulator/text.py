"""Tokens of a text, as the official deterministic path of StreamMemBench defines them: one definition for
judges and for lexical search."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"[A-Za-z0-9_]+|[\u4e00-\u9fff]")


def tokens(text: str) -> list[str]:
    """Lower-cased tokens in the order of the text, repeats included: runs of ASCII letters, digits and `_`,
    or one CJK character (U+4E00 to U+9FFF). Everything else separates."""
    return [token.lower() for token in _TOKEN.findall(text)]
