"""The keys of ``deployment``: checked values with their places, or all problems at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pytest_llmroof.errors import ConfigError, Position
from pytest_llmroof.near import did_you_mean
from pytest_llmroof.roofline.accelerator import PRECISIONS
from pytest_llmroof.roofline.deployment import ELEMENT_BYTES
from pytest_llmroof.roofline.models.precisions import precision_name
from pytest_llmroof.units import UnitError, parse_as

_TRUTH: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class _WrongValueError(ValueError):
    """What is wrong with a value: what was expected."""


def _positive(value: object) -> int:
    count = _whole(value)
    if count < 1:
        raise _WrongValueError(f"a positive whole number, not {value!r}")
    return count


def _whole(value: object) -> int:
    try:
        number = parse_as(value, "count")
    except UnitError:
        raise _WrongValueError(f"a whole number, not {value!r}") from None
    if number < 0 or number != int(number):
        raise _WrongValueError(f"a whole number, not {value!r}")
    return int(number)


def _flag(value: object) -> bool:
    if isinstance(value, str) and value.casefold() in _TRUTH:
        return _TRUTH[value.casefold()]
    if not isinstance(value, bool):
        raise _WrongValueError(f"true or false, not {value!r}")
    return value


def _precision(value: object) -> str:
    return _word(precision_name(value) if isinstance(value, str) else None, value, tuple(ELEMENT_BYTES))


def _compute(value: object) -> str:
    name = precision_name(value) if isinstance(value, str) else None
    return _word(name if name in PRECISIONS else None, value, PRECISIONS)


def _interconnect(value: object) -> str:
    name = value.casefold() if isinstance(value, str) else None
    return _word(name if name in ("nvlink", "pcie") else None, value, ("nvlink", "pcie"))


def _word(found: str | None, value: object, valid: tuple[str, ...]) -> str:
    if found is None:
        near = did_you_mean(value, valid) if isinstance(value, str) else ""
        raise _WrongValueError(f"one of {', '.join(valid)}, not {value!r}{near}")
    return found


def _bandwidth(value: object) -> float:
    try:
        number = parse_as(value, "bytes/s")
    except UnitError as error:
        raise _WrongValueError(f"a bandwidth (50GB/s): {error}") from None
    if number <= 0:
        raise _WrongValueError("a bandwidth of more than zero")
    return number


#: A key: the field of a Deployment that it sets, and how its value is read.
KEYS: Final[Mapping[str, tuple[str, Callable[[object], object]]]] = {
    "tensor_parallel": ("tensor_parallel", _positive),
    "pipeline_parallel": ("pipeline_parallel", _positive),
    "data_parallel": ("data_parallel", _positive),
    "expert_parallel": ("expert_parallel", _flag),
    "gpus_per_node": ("gpus_per_node", _positive),
    "internode": ("internode_bytes_per_second", _bandwidth),
    "weights": ("weights", _precision),
    "kv_cache": ("kv_cache", _precision),
    "compute": ("compute", _compute),
    "interconnect": ("interconnect", _interconnect),
    "speculative_tokens": ("speculative_tokens", _whole),
}
_DRAFT: Final = "draft_model"


def read_keys(
    deployment: Mapping[str, object], position: Callable[[str], Position | None]
) -> tuple[dict[str, object], list[ConfigError]]:
    """Fields of a Deployment as given, and what is wrong. ``position`` takes a key path, ``deployment.weights``."""
    fields: dict[str, object] = {}
    errors: list[ConfigError] = []
    for key, value in deployment.items():
        path = f"deployment.{key}"
        if key in KEYS:
            field, read = KEYS[key]
            try:
                fields[field] = read(value)
            except _WrongValueError as error:
                errors.append(ConfigError(f"{path}: expected {error}", position(path)))
        elif key != _DRAFT:
            names = (*KEYS, _DRAFT)
            near = did_you_mean(str(key), names) or f"; known are {', '.join(names)}"
            errors.append(ConfigError(f"{path}: unknown key {str(key)!r}{near}", position(path)))
    return fields, errors
