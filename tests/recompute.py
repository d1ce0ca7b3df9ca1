"""Reads a failing text and recomputes every number in it from the others, as a doubtful reader would.

A printed number stands for the interval of everything that prints so; a relation holds if the intervals allow it.
What is not in the text comes from the accelerator catalogue, by the name that the text gives in brackets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pytest_llmroof.roofline.accelerator import Accelerator
from pytest_llmroof.roofline.catalogue import accelerator
from pytest_llmroof.units import SPELLINGS

_NUMBER = r"\d+(?: \d{3})*(?:\.\d+)?"

#: A window also holds first tokens, and steps at its edges: counted tokens may differ by so much from B t / ITL.
TOKENS_TOLERANCE = 0.05

WORDS = {
    "a tenth": 10, "a fifth": 20, "a quarter": 25, "a third": 33.3, "half": 50, "two thirds": 66.7,
    "three quarters": 75, "nine tenths": 90,
}  # fmt: skip


@dataclass(frozen=True)
class Printed:
    """The interval of numbers that are printed so, in the unit's canonical size."""

    low: float
    high: float

    def __mul__(self, other: Printed) -> Printed:
        return Printed(self.low * other.low, self.high * other.high)

    def __truediv__(self, other: Printed) -> Printed:
        return Printed(self.low / other.high, self.high / other.low)

    def widened(self, share: float) -> Printed:
        return Printed(self.low * (1 - share), self.high * (1 + share))

    def meets(self, other: Printed, slack: float = 1e-9) -> bool:
        return self.low <= other.high * (1 + slack) and other.low <= self.high * (1 + slack)


def printed(text: str) -> Printed:
    """``41.3 %`` -> [0.4125, 0.4135]; ``28 400`` -> [28399.5, 28400.5]; ``1.5k`` -> [1450, 1550]."""
    match = re.fullmatch(rf"({_NUMBER})(k)?(?: (\S+))?", text.strip())
    assert match, f"not a number: {text!r}"
    number, thousands, unit = match.groups()
    digits = number.replace(" ", "")
    half = 0.5 * 10 ** -len(digits.partition(".")[2])
    factor = 1000.0 if thousands else 1.0
    if unit == "TFLOP":
        factor *= 1e12
    elif unit == "GFLOP":
        factor *= 1e9
    elif unit is not None:
        factor *= SPELLINGS[unit][1]
    return Printed((float(digits) - half) * factor, (float(digits) + half) * factor)


@dataclass
class Recomputed:
    """What was checked (``checked``, by name), and what does not follow (``wrong``, one sentence each)."""

    checked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def expect(self, name: str, holds: bool, sentence: str) -> None:
        self.checked.append(name)
        if not holds:
            self.wrong.append(f"{name}: {sentence}")


def recompute(text: str) -> Recomputed:
    """Check one failing text."""
    result = Recomputed()
    rows = rows_of(text)
    facts = _Facts(rows)
    _headline(result, rows[""])
    _roofline(result, facts)
    _value(result, rows[""], facts)
    _tokens(result, rows.get("window", ""), facts)
    _shares(result, rows, facts)
    _words(result, rows, facts)
    _limit(result, rows)
    _targets(result, rows, facts)
    return result


def failing_texts(document: str) -> list[str]:
    """The failing texts in a page of documentation or a run's output: from ``found ...`` to the last labelled line."""
    texts, current = [], list[str]()
    for line in [*document.splitlines(), ""]:
        start = re.match(r"\s*(?:E\s+)?(found .*, expected .*)", line)
        if start or (current and not re.match(r"\s{2,}\S|[A-Z]{5,}\s|\s*[A-Z]{5,}\s", line)):
            texts.append("\n".join(current))
            current = []
        if start:
            current = [start.group(1)]
        elif current:
            current.append(line)
    return [text for text in texts if "\n" in text]


def rows_of(text: str) -> dict[str, str]:
    """Label -> text, continuation lines joined; the first line has the label ``""``."""
    lines = text.splitlines()
    rows, label = {"": lines[0].strip()}, ""
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    heading = any(re.match(r"\s*[A-Z]{5,}\s", line) for line in lines[1:])
    indent = margin if heading else max(margin - 2, 0)
    for line in lines[1:]:
        body = line[indent:]
        start = 0 if body[:1].strip() else 2
        if body[start : start + 1].strip():
            label, said = body[start : start + 15].strip(), body[start + 15 :].strip()
        else:
            said = body.strip()  # a continued line
        rows[label] = f"{rows[label]} {said}" if label in rows else said
    return rows


class _Facts:
    """The figures that several relations need; None where the text does not have them."""

    def __init__(self, rows: dict[str, str]) -> None:
        deployment, window, roofline = (rows.get(name, "") for name in ("deployment", "window", "roofline"))
        self.accelerator: Accelerator | None = None
        self.precision = "bf16"
        named = re.search(r"on (\d+) x [^(]*\(([\w-]+)(?:, dense (\w+) peak)?\)", deployment)
        if named:
            self.accelerator = accelerator(named.group(2))
            self.precision = named.group(3) or self.precision
        self.gpus = _integer(r"TP (\d+)", deployment, 1) * _integer(r"PP (\d+)", deployment, 1)
        self.step = _found(rf"(?:ITL mean|step) ({_NUMBER} \S+?)(?:$|[ ,])", window)
        self.floor = _found(rf"floor ({_NUMBER} \S+?)(?:$|[ ,;])", roofline)
        self.work = _found(rf"^({_NUMBER} \S+) per step", roofline)
        self.intensity = _found(rf"({_NUMBER} FLOP/B)", roofline)
        self.ridge = _found(rf"ridge ({_NUMBER})", roofline)
        self.side = next((side for side in ("memory", "compute") if f"{side}-bound side" in roofline), None)
        shares = re.findall(r"(\d+) %? ?([a-z][a-z' ]+[a-z])", _split_time(rows))
        self.shares = {name: int(percent) for percent, name in shares}


def _split_time(rows: dict[str, str]) -> str:
    """The row that splits a time into shares, whatever time it is."""
    return next((rows[label] for label in ("step time", "prefill time", "TTFT") if label in rows), "")


def _integer(pattern: str, text: str, default: int) -> int:
    match = re.search(pattern, text)
    return int(match.group(1)) if match else default


def _found(pattern: str, text: str) -> Printed | None:
    match = re.search(pattern, text)
    return printed(match.group(1)) if match else None


def _headline(result: Recomputed, line: str) -> None:
    match = re.match(
        rf"found ({_NUMBER}(?: [^\s,]+)?), expected (\S+) ([<>]=?) (.*?) \(({_NUMBER}) (points?|%) (short|over)", line
    )
    result.expect("length", len(line) <= 200, f"{len(line)} characters")
    if not match:
        return
    found, _, operator, limit, away, kind, side = match.groups()
    written, _, came_to = limit.rpartition(" = ")
    amount = re.search(rf"{_NUMBER}(?: (?:%|\S+))?", came_to)
    assert amount, line
    value, border = printed(found), printed(amount.group())
    _baseline(result, written, border, came_to)
    result.expect("side", (side == "short") == (operator[0] == ">"), line)
    # A limit that was written down is printed with every digit it has, one that was computed is rounded.
    exact = (border.low, border.high) if written else (_middle(border),)
    distance = printed(f"{away} %")
    ends = [
        abs(end - limit_end) if kind != "%" else abs(end / limit_end - 1)
        for end in (value.low, value.high)
        for limit_end in exact
    ]
    span = Printed(min(ends), max(ends))
    result.expect("distance", distance.meets(span), f"{found} is not {away} {kind} from {limit}")


def _baseline(result: Recomputed, written: str, border: Printed, came_to: str) -> None:
    """A limit in terms of a baseline follows from the median that is printed beside it."""
    factor, median = re.fullmatch(r"([\d.]+)x baseline", written), re.search(rf"median ({_NUMBER} \S+?)[,)]", came_to)
    if factor and median:
        of, times = printed(median.group(1)), float(factor.group(1))
        product = Printed(of.low * times, of.high * times)
        result.expect("baseline", border.meets(product), f"{came_to} is not {written}")


def _middle(number: Printed) -> float:
    return (number.low + number.high) / 2


def _roofline(result: Recomputed, facts: _Facts) -> None:
    gpu = facts.accelerator
    if gpu is None:
        return
    bandwidth, peak = gpu.memory_bandwidth_bytes_per_second, gpu.peak(facts.precision)
    rate = bandwidth if facts.side == "memory" else peak
    if facts.work and facts.floor and rate:
        roof = Printed(rate * facts.gpus, rate * facts.gpus)
        result.expect("floor", (facts.work / roof).meets(facts.floor), "floor is not work / (roof x GPUs)")
    if facts.ridge and bandwidth and peak:
        result.expect("ridge", facts.ridge.meets(Printed(peak / bandwidth, peak / bandwidth)), "ridge is not F / W")
    if facts.intensity and facts.ridge:
        below = _middle(facts.intensity) < _middle(facts.ridge)
        result.expect("binding side", below == (facts.side == "memory"), "the intensity lies on the other side")


def _value(result: Recomputed, line: str, facts: _Facts) -> None:
    match = re.match(rf"found ({_NUMBER} %), expected decode\.mbu ", line)
    if match and facts.side == "memory" and facts.floor and facts.step:
        share = facts.floor / facts.step
        result.expect("value", printed(match.group(1)).meets(share), f"{match.group(1)} is not floor / step")


def _tokens(result: Recomputed, window: str, facts: _Facts) -> None:
    tokens = _found(rf"({_NUMBER}) output tokens", window)
    batch = _found(rf"batch ({_NUMBER})", window)
    seconds = _found(rf"of which ({_NUMBER} s) busy", window) or _found(rf"^\w+, ({_NUMBER} s)", window)
    if not (tokens and batch and seconds and facts.step) or not window.startswith("decode"):
        return
    replicas = _found(rf"({_NUMBER}) replicas", window) or Printed(1, 1)
    emitted = _found(rf"({_NUMBER}) tokens per step", window) or Printed(1, 1)
    counted = (batch * replicas * emitted * seconds / facts.step).widened(TOKENS_TOLERANCE)
    result.expect("tokens", tokens.meets(counted), "output tokens are not batch x window / ITL")


def _shares(result: Recomputed, rows: dict[str, str], facts: _Facts) -> None:
    row = _split_time(rows)
    if not row:
        return
    outer = [int(percent) for percent in re.findall(r"(\d+) %", row)]
    result.expect("shares", abs(sum(outer) - 100) <= 1, f"they add up to {sum(outer)}")
    rest = re.search(r"(\d+) % rest \((.*?)\)", row)
    if rest:
        inner = sum(int(percent) for percent in re.findall(r"\d+", rest.group(2)))
        result.expect("rest", inner == int(rest.group(1)), f"{inner} inside, {rest.group(1)} outside")
    if facts.floor and facts.step and "memory floor" in facts.shares:
        share = facts.floor / facts.step
        near = share.low * 100 - 1 <= facts.shares["memory floor"] <= share.high * 100 + 1
        result.expect("floor's share", near, "it is not floor / step")
    if re.search(_OF_IDLE_TIME, rows[""]):
        # Explained by idle time's own cause, whatever else took more.
        host = "Scenario D:" not in rows.get("DIAGNOSIS", "") or facts.shares.get("idle", 0) > 0
        result.expect("idle share", host, "D explains it, and no idle time is printed")
    else:
        _largest(result, rows.get("DIAGNOSIS", ""), facts)


#: Gates on a part of the time, of which the rest of the step says nothing.
_OF_IDLE_TIME = r"expected (?:timeline\.(?:busy|idle|host_bound_idle|gap\.\S+)|hardware\.(?:idle|utilization)) "
#: The scenario that a printed share speaks for.
_LOST = {"exposed communication": "C", "idle": "D", "slow kernels": "F"}


def _largest(result: Recomputed, diagnosis: str, facts: _Facts) -> None:
    """C, D and F are named alone only where their share is at least 1.3 times the next one."""
    scenario = re.match(r"Scenario ([CDF]):", diagnosis)
    if not scenario or not any(name in facts.shares for name in _LOST):
        return
    lost = {letter: facts.shares.get(name, 0) for name, letter in _LOST.items()}
    own = lost.pop(scenario.group(1))
    following = max(lost.values())
    result.expect("largest share", own + 1 >= 1.3 * following, f"{own} % is not 1.3 times {following} %")


def _words(result: Recomputed, rows: dict[str, str], facts: _Facts) -> None:
    words = rows.get("in words", "")
    ratio = re.search(rf"({_NUMBER}) times slower than this hardware's (?:memory|arithmetic)", words)
    if ratio and facts.floor and facts.step:
        result.expect("times", printed(ratio.group(1)).meets(facts.step / facts.floor), "it is not step / floor")
    share = re.search(rf"({'|'.join(WORDS)}|\d+ %) of each step", words)
    scenario = re.match(r"Scenario ([CDF]):", rows.get("DIAGNOSIS", ""))
    if share and scenario and facts.shares:
        name = next(name for name, letter in _LOST.items() if letter == scenario.group(1))
        said = WORDS.get(share.group(1)) or float(share.group(1).removesuffix(" %"))
        result.expect("share in words", abs(said - facts.shares.get(name, 0)) <= 2.6, f"{share.group(1)} of each step")


def _limit(result: Recomputed, rows: dict[str, str]) -> None:
    row = rows.get("limit", "")
    found = re.match(rf"found ({_NUMBER}(?: [^\s,]+)?), expected", rows[""])
    supported = re.search(rf"supports: .* ([<>]=?) ({_NUMBER}(?: \S+)?)$", row)
    if found and supported:
        value, limit = printed(found.group(1)), printed(supported.group(2))
        worse = limit.low <= value.high if supported.group(1)[0] == ">" else limit.high >= value.low
        result.expect("supported limit", worse, f"{supported.group(2)} is not supported by {found.group(1)}")
    known = re.search(rf"Known for .*: ({_NUMBER}) to ({_NUMBER}) %", row)
    if known:
        result.expect("known range", float(known.group(1)) < float(known.group(2)), row)


def _targets(result: Recomputed, rows: dict[str, str], facts: _Facts) -> None:
    """``step 26.2 ms toward 17.3 .. 19.0 ms`` starts at this step and names its ends in order.

    ``at most: step 26.2 ms toward 15.2 ms`` takes away a share of the step that the text names.
    """
    pattern = rf"(at most: )?step ({_NUMBER} \S+) toward ({_NUMBER})(?: \.\. ({_NUMBER}))? ([a-zµ]+)"
    effects = re.findall(pattern, rows.get("REMEDIATION", ""))
    for at_most, start, low, high, unit in effects:
        if facts.step:
            result.expect("remedy's start", printed(start).meets(facts.step), f"{start} is not the step")
        target = printed(f"{low} {unit}")
        in_order = target.low <= printed(f"{high or low} {unit}").high
        result.expect("remedy's range", in_order, f"{low} .. {high}")
        if at_most and facts.step:
            left = [Printed(1 - (share + 0.6) / 100, 1 - (share - 0.6) / 100) for share in facts.shares.values()]
            holds = any(target.meets(facts.step * part) for part in left)
            result.expect("remedy's target", holds, f"{low} {unit} is not the step less one of its shares")
