"""The shape of a gate file: the packaged JSON Schema is the validator, and its annotations steer what is read how.

Beside draft-07 it uses ``x-quantity`` (a number or text with a unit; ``zero``: 0 is allowed), ``x-literal`` and
``x-expression`` (no variables, or variables that need a value at once), ``x-check`` (a text that must hold for one of
``_CHECKS``), ``writeOnly`` (secret: never shown) and ``errorMessage`` (words for a keyword whose failure explains
nothing by itself). Structure never hides in ``anyOf``:
every place has one schema, so that errors are about what was meant.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

from pytest_llmroof.errors import ConfigError
from pytest_llmroof.gates.sources import check_end, check_source, shown_url
from pytest_llmroof.near import did_you_mean
from pytest_llmroof.telemetry.promql import matchers
from pytest_llmroof.units import UnitError, describe, parse_as

Schema = Mapping[str, Any]
Path = tuple[str | int, ...]
Place = Literal["file", "window", "gate"]

_CHECKS: Final[Mapping[str, Callable[[str], object]]] = {
    "url": shown_url, "end": check_end, "source": check_source, "selector": matchers,
}  # fmt: skip

_TYPE_WORDS: Final = {
    "string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "object": "a mapping", "array": "a list", "null": "nothing",
}  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """What is wrong at a path; ``on_key`` where the key itself is, and ``path`` ends with it."""

    path: Path
    text: str
    on_key: bool = False


@cache
def document_schema() -> Schema:
    """The schema of a whole gate file, its references resolved."""
    text = files("pytest_llmroof.data").joinpath("gatefile.schema.json").read_text(encoding="utf-8")
    whole = json.loads(text)
    definitions = whole.pop("definitions")

    def inline(node: Any) -> Any:
        if isinstance(node, list):
            return [inline(entry) for entry in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return inline(definitions[node["$ref"].rpartition("/")[2]])
        return {key: inline(value) for key, value in node.items()}

    resolved: Schema = inline(whole)
    return resolved


def child(schema: Schema, step: str | int) -> Schema:
    """The schema of a key's or an element's value; empty where nothing is known of it."""
    if isinstance(step, int):
        found = schema.get("items", {})
    else:
        found = schema.get("properties", {}).get(step, schema.get("additionalProperties"))
    return found if isinstance(found, dict) else {}


def types(schema: Schema) -> tuple[str, ...]:
    """The types that a value may have; any where the schema does not say."""
    named = schema.get("type", ())
    return (named,) if isinstance(named, str) else tuple(named)


def problems(value: object, place: Place, shown: Callable[[Path], str | None]) -> list[Problem]:
    """Everything that is wrong with a value that should be a whole file, a window or a gate.

    ``shown`` gives what may be printed for the value at a path where that is not the value itself (a variable).
    """
    found: dict[Problem, None] = {}
    for error in _validator(place).iter_errors(value):
        path: Path = tuple(error.absolute_path)
        if error.validator == "additionalProperties":
            found.update(dict.fromkeys(_unknown_keys(path, error.instance, error.schema)))
        elif error.validator != "oneOf" or isinstance(error.instance, Mapping):
            found[Problem(path, _explain(error, shown(path)))] = None
    return list(found)


def place_schema(place: Place) -> Schema:
    """The schema of a whole file, of a window (the keys of the head are among its own), or of a gate."""
    window = child(child(document_schema(), "windows"), "any")
    return {"file": document_schema(), "window": window, "gate": child(child(window, "gates"), 0)}[place]


@cache
def _validator(place: Place) -> Any:
    """A validator (jsonschema is imported only here, where a gate file is met)."""
    from jsonschema import Draft7Validator, validators

    extend: Any = validators.extend
    return extend(Draft7Validator, {"x-quantity": _check_quantity, "x-check": _check_text})(place_schema(place))


def _check_quantity(_validator: object, rule: Mapping[str, Any], value: object, _schema: Schema) -> Iterator[Exception]:
    from jsonschema import ValidationError

    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return  # the type is checked beside
    try:
        quantity = parse_as(value, rule["unit"])
    except UnitError as error:
        text = str(error)
        kind = f"expected {describe(rule['unit'])}, not {value!r}: "
        yield ValidationError(text if text.startswith("expected") else kind + text)
        return
    if quantity < 0 or (quantity == 0 and not rule["zero"]):
        yield ValidationError(f"expected {describe(rule['unit'])} {'of 0 or more' if rule['zero'] else 'above 0'}")


def _check_text(_validator: object, rule: str, value: object, _schema: Schema) -> Iterator[Exception]:
    from jsonschema import ValidationError

    try:
        if isinstance(value, str) and value:
            _CHECKS[rule](value)
    except ConfigError as error:
        yield ValidationError(error.problem)


def _unknown_keys(path: Path, instance: Mapping[str, object], schema: Schema) -> Iterator[Problem]:
    valid = list(schema["properties"])
    for key in instance:
        if key not in schema["properties"]:
            yield Problem((*path, key), f"unknown key {key!r}{_hint(key, valid, path)}", on_key=True)


def _hint(key: str, valid: list[str], path: Path) -> str:
    if any(sign in key for sign in "<>="):
        return ": put an expression that holds a comma in quotes"
    homes = _homes().get(key, ())
    near = did_you_mean(key, valid)
    if not near and homes:
        return f": it belongs to {' or '.join(homes)}"
    if near:
        return near
    return f": valid here are {', '.join(valid)}"


@cache
def _homes() -> Mapping[str, tuple[str, ...]]:
    """Where a key that stands in the wrong place belongs."""
    window = place_schema("window")
    places = {
        "a window": window,
        "'deployment'": child(window, "deployment"),
        "a gate": place_schema("gate"),
        "a mapping under 'telemetry'": child(window, "telemetry"),
        "'gpu'": child(window, "gpu"),
        "'model'": child(window, "model"),
    }
    homes: dict[str, tuple[str, ...]] = {}
    for place, schema in places.items():
        for key in schema["properties"]:
            homes[key] = (*homes.get(key, ()), place)
    homes["windows"] = ("the file's head",)
    return homes


def _explain(error: Any, shown: str | None) -> str:
    """One validation error in words, without a value that must not be shown."""
    keyword, rule, value, schema = error.validator, error.validator_value, error.instance, error.schema
    if keyword in schema.get("errorMessage", {}):
        return str(schema["errorMessage"][keyword])
    found = _found(value, schema, shown)
    if keyword == "type":
        return f"expected {expectation(schema)}, not {found}"
    if keyword == "enum":
        names = schema.get("examples", rule)  # where the rest are other words for them
        near = did_you_mean(value, names) if isinstance(value, str) and shown is None else ""
        return f"expected {' or '.join(filter(None, (', '.join(names[:-1]), names[-1])))}, not {found}{near}"
    if keyword == "required":
        missing = [key for key in rule if key not in value]
        return f"needs the key {missing[0]!r}"
    if keyword == "dependencies":
        return "; ".join(
            f"{key!r} goes with {' and '.join(map(repr, needed))}"
            for key, needed in rule.items() if key in value and not set(needed) <= set(value)
        )  # fmt: skip
    if keyword in ("minLength", "minItems", "minProperties", "maxItems"):
        return "is empty" if not value else f"expected {rule} entries, not {len(value)}"
    if keyword == "minimum":
        return f"expected {expectation(schema)} of at least {rule}, not {found}"
    if keyword == "exclusiveMinimum":
        return f"expected {expectation(schema)} above {rule}, not {found}"
    if keyword == "x-quantity" and shown is not None:
        return f"expected {describe(rule['unit'])}, not {found}"
    return str(error.message)


def expectation(schema: Schema) -> str:
    """What a place takes, in words."""
    if "x-quantity" in schema:
        return describe(schema["x-quantity"]["unit"])
    words = [_TYPE_WORDS[name] for name in types(schema)]
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def _found(value: object, schema: Schema, shown: str | None) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if schema.get("writeOnly"):
        return "what stands here"
    if shown is not None:
        return f"what {shown} stands for"
    return repr(value) if isinstance(value, str) else str(value).lower()
