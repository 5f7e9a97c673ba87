"""Memory systems by name: what stands after `--system`.

    rag_raw                                   a built-in system
    rag_raw:retrieval=bm25,top_k=5            with options
    bm25=rag_raw:retrieval=bm25               under a label of its own
    mypackage.module:MyMemory                 your own class
    mypackage.module:MyMemory:per_segment=20  with options
    notebook                                  one that an installed package brings (adapters/plugins.py)
    http:url=http://127.0.0.1:8000            an HTTP server, in any language (docs/http-agent.md)
    mem0:model=NAME                           a system that others have published (docs/systems.md)

A class is called as `MyMemory(context, **options)` with the lane's `LaneContext`; it keeps the
`MemorySystem` protocol. Its options are its keyword-only parameters (or, without any, all parameters after
the first); their values are converted to the annotated types and stay text where there is no annotation. It
may declare `capabilities: Capabilities` as a class attribute or, where they hang on its options, as a static
or class method that takes these and gives Capabilities; adapters/memory.py says what each asks of it. The
module is looked for where Python looks, and then in the current folder.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from adapters.foreign.memory import foreign_systems
from adapters.memory import Capabilities, Fork, LaneContext, MemorySystem
from adapters.plugins import plugins
from adapters.systems.full_context import FullContextMemory
from adapters.systems.graph import GraphMemory
from adapters.systems.http_agent import HttpMemory
from adapters.systems.null import NullMemory
from adapters.systems.oracle import OracleMemory
from adapters.systems.rag_ext import RagExtMemory
from adapters.systems.rag_raw import RagRawMemory
from adapters.systems.sessions import Bm25Memory, DenseMemory, HybridMemory, RecencyMemory
from simulator.errors import ConfigError, InputError

_BUILT_IN: Mapping[str, type[MemorySystem]] = MappingProxyType(
    {
        "null": NullMemory,
        "oracle": OracleMemory,
        "full_context": FullContextMemory,
        "rag_raw": RagRawMemory,
        "rag_ext": RagExtMemory,
        "graph": GraphMemory,
        "recency": RecencyMemory,
        "bm25": Bm25Memory,
        "dense": DenseMemory,
        "hybrid": HybridMemory,
        "http": HttpMemory,
    }
)
_NAMED: Mapping[str, type[MemorySystem]] = MappingProxyType({**_BUILT_IN, **foreign_systems()})
_ASYNC_METHODS = ("ingest", "answer", "commit", "aclose")


class SystemSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A memory system and its options as given. `label` names it in lanes and tables; `name` is that of a
    built-in or foreign system, one that a package brings, or `module:Class`."""

    label: str
    name: str
    options: dict[str, str] = {}


def available() -> dict[str, str]:
    """The built-in systems: name, and what each is in a sentence, the first of its docstring."""
    return {name: _about(cls) for name, cls in _BUILT_IN.items()}


def brought() -> dict[str, str]:
    """The systems that installed packages bring: name, and the packages with their versions. One that has the name of
    a built-in system is there as well, but that name stands for the built-in one."""
    return {name: plugin.packages for name, plugin in plugins().items()}


def describe(spec: SystemSpec) -> str:
    """What a system is in a sentence, empty where its class doesn't say. Raises ConfigError."""
    return _about(_class_of(spec))


def options_of(spec: SystemSpec) -> dict[str, str]:
    """A system's options: name, and what it may be with its default, as in `hybrid|bm25|dense = hybrid`. Raises
    ConfigError."""
    cls = _class_of(spec)
    types = typing.get_type_hints(cls.__init__)
    found: dict[str, str] = {}
    for parameter in _parameters(cls):
        kind = types.get(parameter.name, str)
        choices = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
        text = "|".join(map(str, choices)) or getattr(kind, "__name__", str(kind))
        if parameter.default is parameter.empty:
            text += ", needed"
        elif parameter.default not in (None, ""):
            text += f" = {parameter.default}"
        found[parameter.name] = text
    return found


def parse_spec(spec: str) -> SystemSpec:
    """Read `[label=]name[:option=value,...]`, where name is a built-in or foreign system, one that a package
    brings, or `module:Class`. Nothing is imported. Raises ConfigError."""
    before_colon = spec.partition(":")[0]
    label, given, rest = spec.partition("=") if "=" in before_colon else (spec, "", spec)
    if not given and "/" in spec and _is_name(before_colon):
        label = before_colon  # an address as an option would make a label that can't be
    if not label or any(c in "@/" or c.isspace() for c in label):
        hint = "" if given else f"; give it one, as in label={spec}"
        raise ConfigError(f"{spec!r}: {label!r} can't be a label: no '@', '/' or white space{hint}")
    name, _, options = rest.partition(":")
    first, _, after = options.partition(":")
    if name not in _NAMED and first and "=" not in first:
        name, options = f"{name}:{first}", after
    elif not _is_name(name):
        there_are = ", ".join(dict.fromkeys((*_NAMED, *plugins())))
        raise ConfigError(
            f"unknown memory system {name!r}: there are {there_are}, or your own as module:Class"
        )
    return SystemSpec(label=label, name=name, options=_parse_options(spec, options))


def open_system(spec: str | SystemSpec, context: LaneContext) -> MemorySystem:
    """A new memory system for one lane. Raises ConfigError."""
    spec = parse_spec(spec) if isinstance(spec, str) else spec
    cls = _class_of(spec)
    options = _convert_options(spec, cls)
    constructor: Any = cls  # the protocol says nothing about construction
    try:
        system = constructor(context, **options)
    except InputError:
        raise
    except Exception as error:
        raise ConfigError(f"{spec.label}: {spec.name} could not be made: {_one_line(error)}") from error
    return typing.cast(MemorySystem, system)


def capabilities(spec: str | SystemSpec) -> Capabilities:
    """What a system declares; one that a package brings is another implementation with each version of it. Raises
    ConfigError where it is unknown, can't be imported or does not take an option as it is given."""
    spec = parse_spec(spec) if isinstance(spec, str) else spec
    declared = _declared(spec, _class_of(spec))
    if ":" in spec.name or spec.name in _NAMED or declared.implementation:
        return declared
    return msgspec.structs.replace(declared, implementation=plugins()[spec.name].packages)


def _declared(spec: SystemSpec, cls: type[MemorySystem]) -> Capabilities:
    declared, options = getattr(cls, "capabilities", Capabilities()), _convert_options(spec, cls)
    if callable(declared):
        try:
            declared = declared(**options)
        except InputError:
            raise
        except Exception as error:
            reason = f"{spec.name}.capabilities could not be asked: {_one_line(error)}"
            raise ConfigError(f"{spec.label}: {reason}") from error
    if not isinstance(declared, Capabilities):
        raise ConfigError(
            f"{spec.label}: {spec.name}.capabilities must be a Capabilities object, or give one"
        )
    if declared.fork not in typing.get_args(Fork):
        raise ConfigError(
            f"{spec.label}: {spec.name} declares fork={declared.fork!r}: there are {', '.join(typing.get_args(Fork))}"
        )
    return declared


def _about(cls: type[MemorySystem]) -> str:
    text = " ".join((cls.__doc__ or "").split())
    return text and text.partition(". ")[0].removesuffix(".") + "."


def _parse_options(spec: str, text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for item in text.split(",") if text else ():
        key, equals, value = item.partition("=")
        if not (key.isidentifier() and equals and value):
            raise ConfigError(f"{spec!r}: {item!r} is no option; options are written key=value,key=value")
        if key in options:
            raise ConfigError(f"{spec!r}: option {key!r} is given twice")
        options[key] = value
    return options


def _is_name(name: str) -> bool:
    return name in _NAMED or name in plugins()


def _class_of(spec: SystemSpec) -> type[MemorySystem]:
    if spec.name in _NAMED:
        return _NAMED[spec.name]
    cls = _imported(spec) if ":" in spec.name else _loaded(spec.name)
    declared = _declared(spec, cls).fork
    methods = (*_ASYNC_METHODS, "flush") if declared == "copy" else _ASYNC_METHODS
    wrong = [f"async {m}" for m in methods if not inspect.iscoroutinefunction(getattr(cls, m, None))]
    fork = getattr(cls, "fork", None)
    if declared == "cheap" and (not callable(fork) or inspect.iscoroutinefunction(fork)):
        wrong.append("fork (not async; or declare another way, see Capabilities)")
    if wrong:
        raise ConfigError(f"{spec.label}: {spec.name} is no memory system: it lacks {', '.join(wrong)}")
    return cls


@functools.cache  # branches may be made by the thousand
def _loaded(name: str) -> type[MemorySystem]:
    plugin = plugins().get(name)
    if plugin is None:  # read where it is installed, and sent to where it isn't
        raise ConfigError(f"no installed package brings the memory system {name!r}")
    return plugin.load()


def _imported(spec: SystemSpec) -> type[MemorySystem]:
    module_name, _, class_name = spec.name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a console script's path lacks it; last, so that it hides nothing
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the module's own code raises
        there_are = f"built in are {', '.join(_BUILT_IN)}"
        raise ConfigError(
            f"{spec.label}: can't import {module_name!r}: {_one_line(error)}; {there_are}"
        ) from error
    cls = getattr(module, class_name, None)
    if not isinstance(cls, type):
        classes = [
            n for n, c in vars(module).items() if isinstance(c, type) and c.__module__ == module.__name__
        ]
        raise ConfigError(
            f"{spec.label}: no class {class_name!r} in {module_name!r}; it has {', '.join(classes) or 'none'}"
        )
    return cls


def _convert_options(spec: SystemSpec, cls: type[MemorySystem]) -> dict[str, Any]:
    if not spec.options:
        return {}
    known = {p.name for p in _parameters(cls)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(cls).parameters.values())
    types = typing.get_type_hints(cls.__init__)
    converted: dict[str, Any] = {}
    for key, value in spec.options.items():
        if key not in known and not takes_any:
            there_are = f"there are {', '.join(sorted(known))}" if known else "it has none"
            raise ConfigError(f"{spec.label}: {spec.name} has no option {key!r}: {there_are}")
        try:
            converted[key] = msgspec.convert(value, types[key], strict=False) if key in types else value
        except msgspec.ValidationError as error:
            wanted = typing.get_args(types[key]) if typing.get_origin(types[key]) is typing.Literal else ()
            one_of = f"; one of {', '.join(map(str, wanted))}" if wanted else ""
            raise ConfigError(f"{spec.label}: option {key}={value}: {_one_line(error)}{one_of}") from error
    return converted


def _parameters(cls: type[MemorySystem]) -> list[inspect.Parameter]:
    """Those that are options."""
    parameters = list(inspect.signature(cls).parameters.values())[1:]
    named = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    return named or [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
