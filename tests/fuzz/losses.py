"""What a page lost, systematically: each family, each series and each line of it, and figures that became others.

A window of each engine is given gates that are a quarter beyond what it claims: none of them passes as it is. None may
pass plainly where a part of its pages is gone, either, whether that was what the metric rests on or what speaks
against it.

    nice -n 10 python tests/fuzz/losses.py [WINDOW ...]

A figure that became another, plausible one is told and is no fault: where nothing else tells the same it is believed.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import engine_pages
import vllm_pages

from pytest_llmroof.analysis.measurement import Measurement
from pytest_llmroof.analysis.metrics import metric_names, metric_of
from pytest_llmroof.assess import assess
from pytest_llmroof.errors import LlmroofError
from pytest_llmroof.gates.assessment import Assessment
from pytest_llmroof.gates.build import window_spec
from pytest_llmroof.gates.spec import WindowSpec

START = engine_pages.START
DATA = Path(__file__).parents[1] / "data"
#: A gate is so much beyond what the whole window claims.
BEYOND = 1.25
_KEYS = {"gpu": "h100", "model": "llama-3.1-8b", "deployment": {"tensor_parallel": 1, "weights": "bf16"}}
_LESS = ("ttft", "tpot", "itl", "e2e", "queue", "decode.step_time", "kv_cache", "waiting", "running",
         "preemptions", "errors")  # fmt: skip
#: What is told, and is neither good nor bad.
_TOLD = ("decode.floor", "decode.batch", "decode.context", "decode.intensity", "prefill.intensity", "timeline",
         "hardware", "kernels", "hfu", "goodput")  # fmt: skip

#: Gates that nearly any figure passes, by unit and whether less is better.
_ANY = {("seconds", True): "<= 1e6 s", ("seconds", False): ">= 1e-9 s", ("fraction", True): "<= 1"}

#: Steps of one kind of a SGLang, and one rank's retractions, which look as if there had been none.
_UNTOLD = ("sglang:cuda_graph_passes{", "sglang:num_retracted_requests{")

Pages = Mapping[str, str]


@dataclass(frozen=True)
class Loss:
    """A part that is gone, or changed, and the pages that are left."""

    what: str
    pages: Pages


def _made(make: Callable[[float, float | None], str], first: float = 0.25) -> Pages:
    """Two scrapes in the middle of a server's life; from its start where ``first`` is 0."""
    return {"before.prom": make(first, START), "after.prom": make(first + 1.0, START + 60)}


def _vllm(load: vllm_pages.Load, first: float = 0.25) -> Pages:
    return _made(partial(vllm_pages.page, load), first)


def _captured(folder: str, before: str, after: str) -> Pages:
    texts = [(DATA / folder / name).read_text() for name in (before, after)]
    return {
        name: text if text.startswith("# scraped_at") else f"# scraped_at {START + 60 * number}\n{text}"
        for number, (name, text) in enumerate(zip(("before.prom", "after.prom"), texts, strict=True))
    }


def windows() -> Mapping[str, Pages]:
    """A window of every engine: made ones with known figures, in several states, and real ones."""
    made = engine_pages
    slow = vllm_pages.Load(model="meta-llama/Llama-3.1-8B-Instruct", started=START, hit_rate=0.5, preemptions=3)
    return {
        "vllm": _vllm(slow),
        "vllm idle at its ends": _vllm(vllm_pages.Load(started=START, running=0.0, hit_rate=0.5)),
        "sglang": _made(partial(made.sglang, hits=200, running=3.0)),
        "sglang of two ranks": _made(partial(made.sglang, hits=200, dp_ranks=2, tp_ranks=2)),
        "sglang 0.4.8": _made(partial(made.sglang, live=False, hits=200)),
        "sglang with drafts": _made(partial(made.sglang, accepted=2, verify_calls=20000)),
        "llama.cpp": _made(made.llamacpp),
        "llama.cpp with slots": _made(partial(made.llamacpp, prompt=5000, busy=3.0, running=2.0)),
        "tgi": _made(made.tgi), "tgi from its start": _made(made.tgi, 0.0),
        "trtllm": _made(made.trtllm), "trtllm from its start": _made(made.trtllm, 0.0),
        "lmdeploy": _made(made.lmdeploy),
        "dynamo": _made(made.dynamo), "dynamo from its start": _made(made.dynamo, 0.0),
        "sglang's collector": _captured("sglang-collector", "multiprocess-before.prom", "multiprocess-after.prom"),
        "lmdeploy's collector": _captured("lmdeploy-collector", "before.prom", "after.prom"),
    }  # fmt: skip


def losses(pages: Pages, *, families: bool = False, lines: bool = False) -> Iterator[Loss]:
    """Every family and every series of these pages, gone from the last, the first and all.

    Of ``families`` alone, or single ``lines``, too.
    """
    first, last = pages
    parts: dict[str, Callable[[str], bool]] = {}
    for text in pages.values():
        for line in text.splitlines():
            if not line or line.startswith("#"):
                continue
            name, series = _family(line), _series(line)
            parts.setdefault(name, partial(_is_family, name))
            if series != name and not families:
                parts.setdefault(series, partial(_is_series, series))
            if lines:
                parts.setdefault(_head(line), partial(_is_line, _head(line)))
    for what, lost in parts.items():
        for where in ((last,), (first,), (first, last)):
            cut = {name: _without(text, lost) if name in where else text for name, text in pages.items()}
            yield Loss(f"{what} of {' and '.join(where)}", cut)


def accepted(what: str) -> bool:
    """Losses that nothing else on their pages tells of (docs/security.md, what exporters leave out)."""
    return what.startswith(_UNTOLD)


def changes(pages: Pages, figures: tuple[str, ...]) -> Iterator[Loss]:
    """Every line of the last page with figures that are none, or other ones (``x0.1``)."""
    first, last = pages
    lines = pages[last].splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.startswith("#") or not line.strip():
            continue
        head, _, value = line.rstrip().rpartition(" ")
        for figure in figures:
            other = repr(float(value) * float(figure[1:])) if figure.startswith("x") else figure
            text = "".join([*lines[:number], f"{head} {other}\n", *lines[number + 1 :]])
            yield Loss(f"{head} is {figure}", {first: pages[first], last: text})


def gated(pages: Pages, folder: Path) -> WindowSpec:
    """The window's specification with a gate on each metric that is a quarter beyond its claim."""
    _write(pages, folder)
    whole = assess(_spec(folder, [])).outcomes
    gates = [gate for name in metric_names() if "(" not in name for gate in _gate(name, whole[name])]
    return _spec(folder, gates)


def passes(spec: WindowSpec, pages: Pages, folder: Path) -> list[str]:
    """The gates that pass plainly on these pages, each with its value."""
    _write(pages, folder)
    try:
        found: Assessment = assess(spec)
    except LlmroofError:
        return []
    return [
        f"{one.gate.expression} at {one.value!r}"
        for one in found.verdicts if one.word == "pass" and not one.approximate
    ]  # fmt: skip


def main(names: list[str]) -> int:
    """Every loss of the windows named, of all without; tells what passes, and exits with 1 where something does."""
    wrong = 0
    for name, pages in windows().items():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            spec = gated(pages, folder)
            changed = changes(pages, ("x0.1", "x10", "NaN", "-1", "+Inf", "-Inf"))
            every = [*losses(pages, lines=True), *changed]
            for loss in every:
                for told in passes(spec, loss.pages, folder):
                    known = accepted(loss.what) or loss.what.endswith((" is x0.1", " is x10"))
                    wrong += not known
                    print(f"{'believed' if known else 'PASSES'}  {name}: {loss.what}: {told}", flush=True)
            print(f"{name}: {len(spec.gates)} gates, {len(every)} losses", flush=True)
    return 1 if wrong else 0


def _gate(name: str, outcome: object) -> Iterator[str]:
    if name.startswith(_TOLD):
        return
    less = name.startswith(_LESS)
    if not isinstance(outcome, Measurement) or outcome.doubted:
        most = "<= 1e6" if less else ">= 1e-9"
        yield f"{name} {_ANY.get((metric_of(name).unit, less), most)}"
        return
    low, value, high = outcome.bounded.low, outcome.bounded.value, outcome.bounded.high
    unit = " s" if outcome.unit == "seconds" else ""
    others = [other.value for other in outcome.alternatives]
    if less:
        claim = max([high, *others])
        limit = min(claim / BEYOND, value) if claim < 1e300 else value / 2
        if limit > 0:
            yield f"{name} <= {limit!r}{unit}"
    else:
        claim = min([low, *others])
        limit = max(claim * BEYOND, value) if claim > 0 else value
        if limit > 0 and not (outcome.unit == "fraction" and limit > 1):
            yield f"{name} >= {limit!r}{unit}"


def _spec(folder: Path, gates: list[str]) -> WindowSpec:
    keys = {**_KEYS, "telemetry": ["before.prom", "after.prom"], **({"gates": gates} if gates else {})}
    return window_spec(keys, id="w", name="w", base=folder)


def _write(pages: Pages, folder: Path) -> None:
    for name, text in pages.items():
        (folder / name).write_text(text)


def _without(text: str, lost: Callable[[str], bool]) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith("#") or not lost(line))


def _head(line: str) -> str:
    return line.rpartition(" ")[0]


def _family(line: str) -> str:
    return re.sub(r"_(bucket|sum|count|total|created)$", "", re.split(r"[{ ]", line)[0])


def _series(line: str) -> str:
    labels = re.search(r"\{.*\}", line)
    kept = re.sub(r'le="[^"]*",?', "", labels[0]) if labels else ""
    return _family(line) + kept.replace(",}", "}")


def _is_family(name: str, line: str) -> bool:
    return _family(line) == name


def _is_series(series: str, line: str) -> bool:
    return _series(line) == series


def _is_line(head: str, line: str) -> bool:
    return _head(line) == head


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
