"""Models by name: the tables `[models.NAME]` of a TOML file. docs/models.md has each key."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from adapters.http_client import checked_url
from simulator.errors import ConfigError

DEFAULT_FILE = Path("models.toml")
"""Read where no file is named, if it is in the current folder."""

Structured = Literal["schema", "json_object_schema", "json_object", "text"]
STRUCTURED: tuple[Structured, ...] = ("schema", "json_object_schema", "json_object", "text")
"""How an answer's form is asked for, the strictest first. `json_object_schema` is `json_object` with the schema
beside it, as llama-cpp-python has it."""

_KEYS = {"key", "api_key", "apikey", "api-key", "token", "secret", "password", "bearer"}
_KEY_HEADERS = {"authorization", "api-key", "x-api-key", "cookie", "proxy-authorization"}
_OWN_BODY = {
    *("model", "messages", "input", "stream", "stream_options", "response_format", "max_tokens"),
    *("max_completion_tokens", "temperature", "seed", "n", "tools", "encoding_format"),
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\t -~]*")
_QUICK = "openai:"


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a million tokens cost, in whatever currency all models of the file are priced in."""

    prompt: float = 0.0
    completion: float = 0.0


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model at one endpoint. What is None is not sent, and so is the server's own default.

    `api_key_env`: the name of the environment variable that holds the key. `timeout_s`: for one try, to the last byte;
    `attempts`: tries of a call whose server fails, `deadline_s`: for all of them and the pauses between; a 429 uses up
    no attempt. `max_in_flight`: an upper bound; below it the endpoint finds what the server bears. `body`: further
    parameters of the request, as they are. `dimensions`, `batch`: of embeddings, how long a vector is and how many
    texts one call has.
    """

    base_url: str
    model: str
    kind: Literal["chat", "embeddings"] = "chat"
    api_key_env: str = ""
    price_per_million: Price = Price()
    temperature: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    timeout_s: float = 120.0
    deadline_s: float = 480.0
    attempts: int = 8
    max_in_flight: int = 32
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    structured: Structured = "schema"
    stream: bool = False
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}
    dimensions: int | None = None
    batch: int = 32

    @property
    def name(self) -> str:
        """All that changes the answers, without any key: stands in a run's identity and in the cache's keys."""
        sampling = {
            "temperature": self.temperature,
            "seed": self.seed,
            "max_tokens": self.max_tokens,
            "dimensions": self.dimensions,
            **self.body,
        }
        if self.kind == "chat":
            sampling["structured"] = self.structured
        said = ", ".join(
            f"{name}={value if isinstance(value, str) else msgspec.json.encode(value, order='sorted').decode()}"
            for name, value in sorted(sampling.items())
            if value is not None
        )
        return f"{self.model} at {self.base_url}" + (f" ({said})" if said else "")


def read_models(path: Path | None = None) -> dict[str, ModelSettings]:
    """The models of a file; of `models.toml` in the current folder, if there is one, where none is named. Raises
    ConfigError, which names the file, the key and the reason."""
    if path is None:
        if not DEFAULT_FILE.exists():
            return {}
        path = DEFAULT_FILE
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: can't read the models: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: no TOML: {error}") from error
    tables = document.pop("models", None)
    if document:
        raise ConfigError(f"{path}: {next(iter(document))}: unknown; models stand in tables [models.NAME]")
    if not isinstance(tables, dict) or not tables:
        raise ConfigError(f"{path}: it has no table [models.NAME]")
    return {name: _settings(f"{path}: models.{name}", name, table) for name, table in tables.items()}


def find_model(models: Mapping[str, ModelSettings], name: str, kind: str = "chat") -> ModelSettings:
    """A model by its name in a file, or in the quick form `openai:MODEL@URL`. Raises ConfigError."""
    if name.startswith(_QUICK):
        found = _quick(name)
    elif name in models:
        found = models[name]
    else:
        there_are = (
            f"there are {', '.join(models)}"
            if models
            else f"there is no {DEFAULT_FILE} here, and no --models"
        )
        raise ConfigError(
            f"no model is called {name!r}: {there_are}; or write it as openai:MODEL@http://HOST:PORT/v1"
        )
    if found.kind != kind:
        raise ConfigError(f"the model {name!r} is one for {found.kind}, and {kind} is wanted")
    return found


def key_of(settings: ModelSettings, name: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The key from the environment; None where the model needs none. Raises ConfigError."""
    if not settings.api_key_env:
        return None
    key = environment.get(settings.api_key_env, "")
    if not key:
        raise ConfigError(f"model {name!r}: its key should be in ${settings.api_key_env}, which is not set")
    if not all("!" <= c <= "~" for c in key):  # h11 would refuse it, and show it while doing so
        raise ConfigError(
            f"model {name!r}: the key in ${settings.api_key_env} has a space, a line break or another character that "
            "no key has"
        )
    return key


def _quick(text: str) -> ModelSettings:
    model, at, url = text.removeprefix(_QUICK).partition("@http")
    if not (model and at):
        raise ConfigError(f"{text!r} names no model: write it as openai:MODEL@http://HOST:PORT/v1")
    return ModelSettings(model=model, base_url=checked_url("http" + url))


def _settings(where: str, name: str, table: Any) -> ModelSettings:
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: must be a table [models.{name}]")
    if not re.fullmatch(r"[\w.-]+", name):
        raise ConfigError(f"{where}: a model's name has letters, digits, '.', '-' and '_' only")
    for key in table:
        if key.lower() in _KEYS:
            raise ConfigError(
                f"{where}.{key}: keys don't belong into files: put it into an environment variable, and its name "
                "into api_key_env"
            )
    try:
        settings = msgspec.convert(table, ModelSettings)
        settings = msgspec.structs.replace(settings, base_url=checked_url(settings.base_url))
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        raise ConfigError(f"{where}{place.rstrip('`')}: {_plain(reason)}") from error
    except ConfigError as error:
        raise ConfigError(f"{where}.base_url: {error}") from error
    key, reason = _wrong(settings)
    if key:
        raise ConfigError(f"{where}.{key}: {reason}")
    return settings


def _wrong(settings: ModelSettings) -> tuple[str, str]:
    """The first key whose value can't be, and why."""
    if not settings.model:
        return "model", "is empty"
    if settings.api_key_env and not _VARIABLE.fullmatch(settings.api_key_env):
        return (
            "api_key_env",
            "is no name of an environment variable; the key itself does not belong into a file",
        )
    for name in ("timeout_s", "deadline_s", "requests_per_minute", "tokens_per_minute"):
        value = getattr(settings, name)
        if value is not None and not 0 < value < float("inf"):
            return name, f"is {value:g}, and must be above 0"
    for name in ("attempts", "max_in_flight", "max_tokens", "dimensions", "batch"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            return name, f"is {value}, and must be at least 1"
    if settings.temperature is not None and not 0 <= settings.temperature <= 2:
        return "temperature", f"is {settings.temperature:g}, and must be from 0 to 2"
    for name in ("prompt", "completion"):
        if not 0 <= getattr(settings.price_per_million, name) < float("inf"):
            return f"price_per_million.{name}", "must not be below 0"
    if settings.kind == "embeddings" and settings.dimensions is None:
        return (
            "dimensions",
            "is missing: an embeddings model has to say how long its vectors are (bge-m3: 1024)",
        )
    for header, value in settings.headers.items():
        if header.lower() in _KEY_HEADERS:
            return (
                f"headers.{header}",
                "carries a key, which belongs into the variable that api_key_env names",
            )
        if not _HEADER.fullmatch(header) or not _HEADER_VALUE.fullmatch(value):
            return f"headers.{header}", "has characters that no header can have"
    for name in settings.body:
        if name.lower() in _KEYS:
            return f"body.{name}", "is a key, which belongs into the variable that api_key_env names"
        if name in _OWN_BODY:
            return f"body.{name}", "is set by egostream, from the keys beside it"
    return "", ""


def _plain(reason: str) -> str:
    return reason.replace("Object contains unknown field", "there is no key").replace(
        "Object missing required field", "it lacks the key"
    )
