"""Prompts as files: versioned by name, and known by the digest of what they say.

A prompt is `NAME.LANGUAGE.md` with a section `# system` and a section `# user`; `{{name}}` stands for what is filled
in. Its digest stands in the run's identity and beside every verdict, so that a changed prompt is another judge.
"""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path
from typing import Final, Literal

import msgspec

from adapters.model import Message

PromptLanguage = Literal["en", "zh"]
ADAPTER_PROMPTS: Final = Path(__file__).with_name("prompts")

_SECTIONS = re.compile(r"\A# system\n(?P<system>.+?)\n# user\n(?P<user>.+)\Z", re.DOTALL)
_PLACE = re.compile(r"\{\{(\w+)\}\}")


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt. `digest`: the first 12 hex digits of its file's SHA-256."""

    name: str
    language: PromptLanguage
    digest: str
    system: str
    user: str

    @property
    def places(self) -> frozenset[str]:
        """The names of what has to be filled in."""
        return frozenset(_PLACE.findall(self.system) + _PLACE.findall(self.user))

    def messages(self, **values: str) -> tuple[Message, Message]:
        """The two messages. What is filled in is not looked at again, whatever it holds. Raises ValueError where other
        names are given than there are places."""
        if values.keys() != self.places:
            raise ValueError(f"{self} has the places {sorted(self.places)}, not {sorted(values)}")

        def fill(text: str) -> str:
            return _PLACE.sub(lambda place: values[place[1]], text)

        return Message(role="system", content=fill(self.system)), Message(
            role="user", content=fill(self.user)
        )

    def __str__(self) -> str:
        return f"{self.name}.{self.language} {self.digest}"


@functools.cache
def load_prompt(folder: Path, name: str, language: PromptLanguage) -> Prompt:
    """Read a prompt that is shipped. Blocking, and short."""
    content = (folder / f"{name}.{language}.md").read_bytes()
    sections = _SECTIONS.match(content.decode())
    assert sections is not None, f"{name}.{language}.md lacks its sections"
    return Prompt(
        name=name,
        language=language,
        digest=hashlib.sha256(content).hexdigest()[:12],
        system=sections["system"].strip(),
        user=sections["user"].strip(),
    )


def prompt_language(language: str) -> PromptLanguage:
    """The language in which models are asked, by the run's."""
    return "zh" if language == "zh" else "en"
