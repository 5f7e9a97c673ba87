"""Values of our types out of what a model said: the schema that it is told, and tolerant reading. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn, TypeVar

import msgspec

T = TypeVar("T")

_DROPPED = ("default", "title", "discriminator")
_THOUGHTS = re.compile(r"^\s*<think>.*?</think>", re.DOTALL)


class UnfitError(ValueError):
    """A text in which no value of the kind stands; the message says why, for a person and for the model."""


def schema_of(kind: type) -> dict[str, Any]:
    """The JSON schema of a struct, in the narrow form that servers with strict schemas take: an object at its root,
    every field required, nothing beside them. Its own defaults are for callers, and a model has to say each. Not to be
    changed. Raises TypeError for what is no object."""
    schema = msgspec.json.schema(kind)
    definitions: dict[str, Any] = _narrow_all(schema.pop("$defs", {}))
    name = schema.get("$ref", "").rpartition("/")[2]
    narrow = definitions.pop(name) if name else _narrow(schema)
    if narrow.get("type") != "object" or "properties" not in narrow:
        raise TypeError(f"a model is asked for a struct with fields, not for {kind!r}")
    narrow = {"title": kind.__name__, **narrow}
    if name and f'"#/$defs/{name}"' in json.dumps([narrow, definitions]):  # it has itself in it
        definitions[name] = narrow
    return {**narrow, "$defs": definitions} if definitions else narrow


def _narrow_all(schemas: dict[str, Any]) -> dict[str, Any]:
    return {name: _narrow(schema) for name, schema in schemas.items()}


def _narrow(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_narrow(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    narrow = {name: _narrow(value) for name, value in schema.items() if name not in _DROPPED}
    if isinstance(schema.get("properties"), dict):
        # by name, so that a field called "title" or "default" stays
        narrow["properties"] = _narrow_all(schema["properties"])
        narrow["required"] = list(schema["properties"])
        narrow["additionalProperties"] = False
        narrow.pop("description", None)  # the docstring, which is for whoever reads our code
    return narrow


def parse(text: str, kind: type[T]) -> T:
    """The one value of a kind that stands in a text, bare, in a fence, or between other words. JSON that doesn't fit
    is passed over; values that fit and differ are no answer. Raises UnfitError."""
    fitting: list[T] = []
    reasons: list[str] = []
    for region in regions(_THOUGHTS.sub("", text)):
        try:
            # not strict: models break lines in strings
            plain = json.loads(region, parse_constant=_no_constant, strict=False)
            found = msgspec.json.decode(msgspec.json.encode(plain), type=kind)
        except (ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            reasons.append(str(error))
            continue
        if found not in fitting:
            fitting.append(found)
    return _only(fitting, reasons)


def _only(fitting: list[T], reasons: list[str]) -> T:
    """The one value that fits. `reasons`: why others don't. Raises UnfitError."""
    if not fitting:
        raise UnfitError(reasons[0] if reasons else "there is no whole JSON value in it")
    if len(fitting) > 1:
        raise UnfitError(f"there are {len(fitting)} different values in it, and one is wanted")
    return fitting[0]


def json_text(text: str, schema: dict[str, Any]) -> str:
    """The JSON that stands in a text, as it stands there if that is all: for askers with a schema of their own. It is
    held against the schema's type and its required fields, not to the last field. Raises UnfitError."""
    try:
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        alone = False
    else:
        alone = True
    candidates = [text] if alone else list(regions(_THOUGHTS.sub("", text)))
    fitting: list[Any] = []
    reasons: list[str] = []
    for candidate in candidates:
        try:
            found = json.loads(candidate, parse_constant=_no_constant, strict=False)
        except (ValueError, RecursionError) as error:
            reasons.append(str(error))
            continue
        if reason := _misfit(found, schema):
            reasons.append(reason)
        elif found not in fitting:
            fitting.append(found)
    found = _only(fitting, reasons)
    return text if alone else json.dumps(found, ensure_ascii=False)


def _misfit(value: Any, schema: dict[str, Any]) -> str:
    """What is wrong with it at first sight; empty where nothing is."""
    kind = schema.get("type")
    if kind in ("object", "array") and not isinstance(value, dict if kind == "object" else list):
        return f"it should be one JSON {kind}"
    missing = [name for name in schema.get("required", ()) if isinstance(value, dict) and name not in value]
    return f"it lacks {', '.join(missing)}" if missing else ""


def regions(text: str) -> Iterator[str]:
    """The outermost bracketed parts of a text, in order. One that doesn't end is left out with all that stands in it:
    what is inside a broken answer is no answer."""
    begin, open_brackets, in_string, place = 0, 0, False, 0
    while (mark := _MARKS.search(text, place)) is not None:
        place = mark.end()
        match mark[0]:
            case _ if mark[0][0] == "\\" and not in_string:
                place = mark.start() + 1  # it escapes nothing there: what follows may be a bracket
            case "{" | "[" if not in_string:
                begin = begin if open_brackets else mark.start()
                open_brackets += 1
            case "}" | "]" if not in_string and open_brackets:
                open_brackets -= 1
                if not open_brackets:
                    yield text[begin : mark.end()]
            case '"' if open_brackets:
                in_string = not in_string


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_MARKS = re.compile(r'\\.|[{}\[\]"]', re.DOTALL)
