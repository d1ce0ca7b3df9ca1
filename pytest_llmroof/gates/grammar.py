"""The gate expression: a metric, an operator, a limit. Read by hand, never evaluated.

    gate     := metric op limit
    metric   := NAME | "goodput(" condition {"," condition} ")" | "kernels(" PATTERN ")." NAME
    op       := ">=" | "<=" | ">" | "<"
    limit    := quantity ["of" "achievable"] | quantity "x" "baseline" | "baseline" [("+" | "-") quantity]
    quantity := number [unit]

A pattern is any text whose parentheses balance. A bare number is in the metric's own unit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NoReturn, cast

from pytest_llmroof.analysis.metrics import LATENCY_STATISTICS, METRICS, Metric, find_metric
from pytest_llmroof.errors import ConfigError, Position
from pytest_llmroof.gates.gate import Gate, Limit, Operator, Severity
from pytest_llmroof.gates.scanner import NUMBER, SHOWN, ExpressionError, Reader, amount, in_unit, quantity
from pytest_llmroof.near import did_you_mean
from pytest_llmroof.units import Unit

OPERATORS: Final = (">=", "<=", ">", "<")
_MEANT: Final = {"=>": ">=", "=<": "<=", "≥": ">=", "≤": "<="}

#: What the time of one request can be compared with, inside ``goodput(...)``.
CONDITIONS: Final = tuple(
    name for name, metric in METRICS.items() if metric.statistics == LATENCY_STATISTICS and "." not in name
)
#: The last part of a metric's name that has a figure for what real kernels reach.
_UTILISATIONS: Final = ("mfu", "mbu", "hfu")

_NAME: Final = re.compile(r"[^\s()<>=!≤≥~,]*")
_OPERATOR: Final = re.compile(r"[<>=!≤≥~]+")
_WORD: Final = re.compile(r"[^\s+-]+|[+-]")


@dataclass(frozen=True)
class Parsed:
    """What an expression says, without what its surroundings add."""

    metric: str
    operator: Operator
    limit: Limit
    unit: Unit
    canonical: str
    name: str


def parse_gate(
    expression: str,
    *,
    id: str | None = None,
    why: str | None = None,
    severity: Severity = "error",
    per: Literal["replica", "gpu"] | None = None,
    default: bool = False,
    position: Position | None = None,
    labels: Mapping[str, str] | None = None,
) -> Gate:
    """The gate of an expression that starts at ``position``. ConfigError names what is wrong and the column."""
    if id is not None and not (id.strip() and id.isprintable()):
        raise ConfigError(f"an id must not be empty or hold control characters: {id!r}", position)
    try:
        parsed = parse_expression(expression)
    except ExpressionError as error:
        if position is None:
            raise
        raise error.at(position) from None
    return Gate(
        metric=parsed.metric,
        operator=parsed.operator,
        limit=parsed.limit,
        unit=parsed.unit,
        expression=expression,
        canonical=parsed.canonical,
        name=parsed.name,
        id=id,
        why=why,
        severity=severity,
        per=per,
        default=default,
        position=position,
        labels=tuple(sorted((labels or {}).items())),
    )


@lru_cache(maxsize=65536)
def parse_expression(expression: str) -> Parsed:
    """Read an expression, each distinct one once. Raises ExpressionError."""
    reader = Reader(expression)
    metric, name = _metric(reader)
    operator = _operator(reader, name)
    limit, spelled = _limit(reader, metric, name)
    reader.end()
    canonical = f"{name} {operator} {spelled}"
    return Parsed(name, operator, limit, metric.unit, canonical, item_name(canonical))


def item_name(canonical: str) -> str:
    """The name of a gate's test item: pytest gives ``::`` and ``[`` in node ids a meaning of their own."""
    return canonical.replace("::", ".").replace("[", "{").replace("]", "}")


def _metric(reader: Reader) -> tuple[Metric, str]:
    """The metric and its canonical name, parameters included."""
    start = reader.at
    name = reader.take(_NAME)
    if reader.text.startswith("(", reader.at):
        return _parametrised(reader, name, start)
    if len(name) > SHOWN:
        reader.fail("no metric has so long a name", start)
    if not name:
        reader.fail("expected a metric, like decode.mbu")
    if name == "goodput":
        reader.fail("goodput names its limits in parentheses, like goodput(ttft<=2s, tpot<=50ms)", start)
    try:
        return find_metric(name)[0], name
    except ConfigError as error:
        reader.fail(error.problem, start)


def _parametrised(reader: Reader, family: str, start: int) -> tuple[Metric, str]:
    choices = [metric for metric in METRICS.values() if metric.parametrised and _family(metric) == family]
    if not choices:
        families = sorted({_family(metric) for metric in METRICS.values() if metric.parametrised})
        reader.fail(f"{family!r} takes no parentheses: only {' and '.join(families)} do", start)
    opened = reader.at
    inner = _parenthesised(reader)
    rest_at = reader.at
    rest = reader.take(_NAME)
    metric = METRICS.get(family + rest)
    if metric is None or not metric.parametrised:
        endings = [choice.name.removeprefix(family) for choice in choices]
        wanted = ", ".join(ending for ending in endings if ending) or "nothing"
        reader.fail(f"expected {wanted} after {family}(...), not {rest!r}{did_you_mean(rest, endings)}", rest_at)
    if family == "goodput":
        return metric, f"goodput({_conditions(reader, opened + 1, inner)})"
    if not inner.isprintable():
        reader.fail("a pattern must not hold control characters", opened + 1)
    if not inner.strip():
        reader.fail(f"{family}(...) needs a pattern of kernel names", opened + 1)
    return metric, f"{family}({inner.strip()}){rest}"


def _family(metric: Metric) -> str:
    return metric.name.partition(".")[0]


def _parenthesised(reader: Reader) -> str:
    """The text between this parenthesis and the one that closes it."""
    opened = reader.at
    at = depth = 0
    for at in range(opened, len(reader.text)):
        depth += {"(": 1, ")": -1}.get(reader.text[at], 0)
        if depth == 0:
            break
    if depth:
        reader.fail("this parenthesis is never closed", opened)
    reader.at = at + 1
    return reader.text[opened + 1 : at]


def _conditions(reader: Reader, start: int, inner: str) -> str:
    """The limits of ``goodput``, in canonical spelling; ``start`` is where ``inner`` stands in the expression."""
    spelled: dict[str, str] = {}
    for part in inner.split(","):
        name, text = _condition(reader, start, part)
        if name in spelled:
            reader.fail(f"goodput names {name} twice", start)
        spelled[name] = text
        start += len(part) + 1
    return ", ".join(spelled.values())


def _condition(outer: Reader, start: int, part: str) -> tuple[str, str]:
    reader = Reader(outer.text[: start + len(part)])
    reader.at = start
    reader.skip()
    named_at = reader.at
    name = reader.take(_NAME)
    if name not in CONDITIONS:
        base = name.rpartition(".")[0]
        hint = f" (each request is looked at: write {base!r})" if base in CONDITIONS else did_you_mean(name, CONDITIONS)
        outer.fail(f"goodput takes limits on {', '.join(CONDITIONS)}, not {name!r}{hint}", named_at)
    reader.skip()
    operator_at = reader.at
    operator = reader.take(_OPERATOR)
    if operator not in ("<=", "<"):
        outer.fail(f"expected <= or < after {name}, not {operator!r}", operator_at)
    try:
        text = amount(reader, METRICS[name].unit, name)
        reader.end()
    except ExpressionError as error:
        raise ExpressionError(error.detail, outer.text, error.column) from None
    return name, f"{name}{operator}{text}"


def _operator(reader: Reader, name: str) -> Operator:
    reader.skip()
    start = reader.at
    found = reader.take(_OPERATOR)
    if found in _MEANT:
        reader.fail(f"no operator {found!r}: did you mean {_MEANT[found]!r}?", start)
    if found not in OPERATORS:
        what = f"not {found!r}" if found else "found none"
        reader.fail(f"expected an operator ({', '.join(OPERATORS)}) after {name}, {what}", start)
    return cast(Operator, found)


def _limit(reader: Reader, metric: Metric, name: str) -> tuple[Limit, str]:
    """The limit and its canonical spelling."""
    reader.skip()
    if NUMBER.match(reader.text, reader.at):
        return _measured_limit(reader, metric, name)
    start = reader.at
    word = reader.take(_WORD)
    if word != "baseline":
        _no_limit(reader, start, word)
    return _baseline_limit(reader, metric, name)


def _no_limit(reader: Reader, start: int, word: str) -> NoReturn:
    if not word:
        reader.fail("expected a limit, like 75%, 50ms or 1.05x baseline")
    if word == "-":
        reader.fail("a limit must not be negative", start)
    if word.strip(".").casefold() in ("inf", "infinity", "nan"):
        reader.fail(f"a limit must be a finite number, not {word!r}", start)
    reader.fail(f"expected a number or baseline, not {word!r}{did_you_mean(word, ['baseline'])}", start)


def _measured_limit(reader: Reader, metric: Metric, name: str) -> tuple[Limit, str]:
    start = reader.at
    found, text = quantity(reader)
    reader.skip()
    word_at = reader.at
    word = reader.take(_WORD)
    if word == "x":
        _expect(reader, "baseline", "x")
        if found.unit not in (None, "fraction") or found.value <= 0:
            reader.fail(f"expected a factor above 0 before x baseline, not {text!r}", start)
        return Limit("x baseline", found.value), f"{text}x baseline"
    if word == "of":
        _expect(reader, "achievable", "of")
        if metric.name.rpartition(".")[2] not in _UTILISATIONS:
            reader.fail(f"'of achievable' fits utilisations ({', '.join(_UTILISATIONS)}), not {name}", word_at)
        value = in_unit(reader, start, found, text, "fraction", name)
        return Limit("of achievable", value), f"{text} of achievable"
    reader.at = word_at
    return Limit("absolute", in_unit(reader, start, found, text, metric.unit, name)), text


def _expect(reader: Reader, word: str, after: str) -> None:
    reader.skip()
    start = reader.at
    found = reader.take(_WORD)
    if found != word:
        reader.fail(f"expected '{word}' after '{after}', not {found!r}", start)


def _baseline_limit(reader: Reader, metric: Metric, name: str) -> tuple[Limit, str]:
    reader.skip()
    sign = reader.text[reader.at : reader.at + 1]
    if not sign:
        return Limit("baseline", 0.0), "baseline"
    if sign not in "+-":
        reader.fail(f"expected + or - after baseline, not {reader.text[reader.at :].strip()!r}")
    reader.at += 1
    reader.skip()
    start = reader.at
    found, text = quantity(reader)
    relative = found.unit == "fraction"
    value = found.value if relative else in_unit(reader, start, found, text, metric.unit, name)
    if relative and sign == "-" and value >= 1:
        reader.fail(f"baseline - {text} leaves no limit", start)
    return Limit("baseline", -value if sign == "-" else value, relative), f"baseline {sign} {text}"
