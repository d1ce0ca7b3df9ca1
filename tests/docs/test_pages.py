"""Everything that README and docs show: run, loaded, or held against the parsers."""

from __future__ import annotations

import argparse
import difflib
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from docpages import PAGES, ROOT, Block, Desk, blocks, desk_for, normalised, run_before, same, shown_runs
from doctables import TABLES
from recompute import failing_texts, recompute

from pytest_llmroof import declarations, hookspecs
from pytest_llmroof.__main__ import VERBS
from pytest_llmroof.analysis.binomial import needed
from pytest_llmroof.data import load
from pytest_llmroof.errors import ConfigErrors
from pytest_llmroof.gates.file import load_gate_file
from pytest_llmroof.gates.grammar import parse_gate
from pytest_llmroof.gates.judge import HEADROOM
from pytest_llmroof.gates.schema import place_schema

#: Marks that say what is to be done with a block, and languages of blocks that are only read.
MARKERS: Final = {
    "file", "not run", "command", "exits with", "output of", "refused", "not a gate file", "generated", "end",
}  # fmt: skip
ONLY_READ: Final = {"text", "json", "ini", "toml"}

every_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)


@every_page
def test_every_block_does_what_the_page_shows(path: Path, tmp_path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    with desk_for(tmp_path) as desk:
        for block in blocks(page):
            place = f"{path.relative_to(ROOT)}:{block.line}"
            assert block.markers.keys() <= MARKERS, f"{place}: unknown marker"
            run_before(desk, block)
            if block.runs:
                _hold(desk, block, place)


def _hold(desk: Desk, block: Block, place: str) -> None:
    if block.language == "console":
        _console(desk, block, place)
    elif block.language == "sh":
        assert "pip install" not in block.text, f"{place}: an installation needs the marker `not run: ...`"
        _script(desk, "set -euo pipefail\n" + block.text, block, place)
    elif block.language == "python":
        _python(desk, block, place)
    elif block.language == "yaml":
        _yaml(desk, block, place)
    elif "output of" in block.markers:
        printed = desk.shell(block.markers["output of"]).stdout
        assert normalised(block.text) in normalised(printed), f"{place}:\n{printed}"
    else:
        assert block.language in ONLY_READ, f"{place}: what is to be done with ```{block.language}?"


def _console(desk: Desk, block: Block, place: str) -> None:
    shown = shown_runs(block)
    assert shown, f"{place}: a console block starts with `$ command`"
    for (command, output), (_, real) in zip(shown, desk.console(block), strict=True):
        if not same(output, real):
            difference = difflib.unified_diff(output.splitlines(), real.splitlines(), "shown", "printed", lineterm="")
            pytest.fail("\n".join([f"{place}: $ {command}", *difference, "(python tests/docpages.py rewrites it)"]))


def _script(desk: Desk, script: str, block: Block, place: str) -> None:
    done = desk.shell(script)
    assert done.returncode == block.exit_code, f"{place} exited with {done.returncode}:\n{done.stdout}"


def _python(desk: Desk, block: Block, place: str) -> None:
    """A test is run by pytest, a script by Python; a conftest serves what follows."""
    name = block.markers.get("file", f"test_block_{block.line}.py")
    if name.endswith("conftest.py"):
        compile(block.text, place, "exec")
        return
    desk.write(name, block.text)
    program = "pytest -q --llmroof-gpu=h100" if "def test_" in block.text else "python"
    _script(desk, f"{program} {name}", block, place)


def _yaml(desk: Desk, block: Block, place: str) -> None:
    """A gate file, or the keys of a window, or a list of gates, loads."""
    if "not a gate file" in block.markers:
        return
    name = f"block-{block.line}.llmroof.yaml"
    path = desk.write(name, _whole(block.text))
    try:
        load_gate_file(path, desk.folder)
        refused = ""
    except ConfigErrors as error:
        refused = str(error)
    assert bool(refused) == ("refused" in block.markers), f"{place}: {refused or 'this gate file is accepted'}"
    path.unlink()


def _whole(text: str) -> str:
    value = yaml.safe_load(text)
    if isinstance(value, list):
        return _whole("gates:\n" + text)
    if "windows" in value:
        return text
    indented = "".join(f"    {line}\n" for line in text.splitlines())
    gates = "" if "gates" in value else "    gates: [ttft.p99 <= 2s]\n"
    return f"windows:\n  w:\n{indented}{gates}"


@every_page
def test_numbers_in_failing_texts_follow_from_each_other(path: Path) -> None:
    for text in failing_texts(path.read_text(encoding="utf-8")):
        found = recompute(text)
        assert found.checked
        assert not found.wrong, f"{found.wrong}\n{text}"


@every_page
def test_options_that_a_page_names_exist(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    known = {f"--llmroof-{name}" for name in declarations.declared_options()}
    assert set(re.findall(r"--llmroof-[a-z-]*[a-z]", page)) <= known
    for verb, words in re.findall(r"pytest_llmroof (record|init|render)((?: [^\n`]|\\\n)*)", page):
        own = words.partition(" -- ")[0]
        assert set(re.findall(r" (--[a-z-]+)", own)) <= VERB_OPTIONS[verb], f"{verb}{words}"
    assert set(re.findall(r"\bllmroof_[a-z]+ =", page)) <= {f"llmroof_{name} =" for name, _, _ in declarations.INI}


def _verb_options(verb: str) -> set[str]:
    parser = argparse.ArgumentParser()
    VERBS[verb].add_arguments(parser)
    return {option for action in parser._actions for option in action.option_strings}


VERB_OPTIONS: Final = {verb: _verb_options(verb) for verb in VERBS}


@every_page
def test_gates_in_running_text_are_gates(path: Path) -> None:
    page = re.sub(r"(?ms)^```.*?^```$", "", path.read_text(encoding="utf-8"))
    for expression in re.findall(r"`([a-z][\w.]*(?:\([^`]*\))?[\w.]* (?:>=|<=|>|<) [^`]+)`", page):
        parse_gate(expression)


@every_page
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", path.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        to = (path.parent / name).resolve() if name else path
        assert to.exists(), target
        if anchor:
            headings = re.findall(r"(?m)^#+ (.*)$", to.read_text(encoding="utf-8"))
            assert anchor in {_anchor(heading) for heading in headings}, target


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("name", TABLES)
def test_generated_tables_are_those_of_the_code(name: str) -> None:
    found = [
        match
        for path in PAGES
        for match in re.findall(
            rf"<!-- generated: {re.escape(name)} -->\n(.*?)<!-- end -->", path.read_text(encoding="utf-8"), re.DOTALL
        )
    ]
    assert found, f"no page shows the table {name!r}"
    assert all(table == TABLES[name]() for table in found), "python tests/docpages.py rewrites it"


@pytest.mark.parametrize("place", ["file", "window", "gate"])
def test_every_key_of_a_gate_file_is_explained(place: str) -> None:
    page = (ROOT / "docs" / "gate-file.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_0-9]+)`", page)) | set(re.findall(r"\b([a-z_0-9]+):", page))
    schema = dict(place_schema(place))  # type: ignore[arg-type]  # one of the three
    assert _keys(schema) <= named


def _keys(schema: dict[str, Any]) -> set[str]:
    found = set()
    for name, child in dict(schema.get("properties", {})).items():
        found |= {name, *_keys(child)}
    return found


def test_every_metric_has_its_paragraph() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    headings = " ".join(re.findall(r"(?m)^### (.*)$", page))
    for row in re.findall(r"(?m)^\| `([^`]+)` \| [a-z/A-Z]+ \| ", page):
        name = row.removesuffix(".STAT").removesuffix(".per_gpu").replace("(...)", "")
        assert re.search(rf"`{re.escape(name)}`", headings), f"no section explains {name}"


def test_every_page_is_on_the_map() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for path in PAGES:
        assert path.name in ("README.md", "index.md") or f"({path.name})" in index, path.name


def test_every_hook_is_explained() -> None:
    page = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")
    hooks = [name for name in vars(hookspecs) if name.startswith("pytest_llmroof_")]
    assert hooks == re.findall(r"(?m)^## (.*)$", page)


def test_every_option_of_the_recorder_is_explained() -> None:
    page = (ROOT / "docs" / "recording.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"(?m)^\| `(--[a-z-]+)", page))
    assert explained == VERB_OPTIONS["record"] - {"--help", "-h"}


def test_every_key_of_a_report_is_explained() -> None:
    """What the page's console block prints (and other tests hold against real reports) stands in its tables."""
    page = (ROOT / "docs" / "report-json.md").read_text(encoding="utf-8")
    (console,) = [block for block in blocks(page) if block.language == "console"]
    keys = {key for _, output in shown_runs(console) for key in output.split()}
    assert keys <= set(re.findall(r"`(\w+)`", page))


def test_files_that_the_architecture_names_exist() -> None:
    page = (ROOT / "docs" / "developing.md").read_text(encoding="utf-8")
    for name in re.findall(r"`([\w./]+(?:\.py|\.yaml|\.md|/))`", page):
        assert (ROOT / name).exists() or (ROOT / "pytest_llmroof" / name).exists(), name


def _docs(name: str) -> str:
    return " ".join((ROOT / "docs" / name).read_text(encoding="utf-8").split())


def test_numbers_of_requests_that_bound_a_percentile_are_those_of_the_binomial() -> None:
    rows = {(0.5, 0.75, 0.9): "| p50, p75, p90 | {} |", (0.95, 0.99, 0.999): "| p95, p99, p99.9 | {} |"}
    for quantiles, row in rows.items():
        assert row.format(", ".join(str(needed(quantile)) for quantile in quantiles)) in _docs("metrics.md")
    sentence = "A p95 is bounded from above by {} requests, a p99 by {}, a p99.9 by {}."
    assert sentence.format(needed(0.95), needed(0.99), needed(0.999)) in _docs("recording.md")


def test_thresholds_in_the_text_are_those_of_the_data() -> None:
    decides, measures = load("thresholds.yaml"), load("measuring.yaml")["thresholds"]
    diagnosis, effects = decides["diagnosis"], decides["remedies"]
    budget = load("measuring.yaml")["step_budget"]
    typical = load("ceilings.yaml")["typical"]
    near = f"{diagnosis['near_achievable']:.0%}"
    said = {
        "scenarios.md": (
            f"at least {diagnosis['lost_share']:.0%} of it and {diagnosis['lost_lead']} times the next",
            f"decode MBU is above {diagnosis['memory_bound_mbu']:.0%}, or above {near} of",
            f"prefill MFU is above {diagnosis['compute_bound_mfu']:.0%}, or above {near} of",
            f"move more than {effects['least_effect']:.0%} are shown",
            f"(over {diagnosis['cache_full']:.0%} used while requests wait)",
        ),
        "metrics.md": (
            f"more than {measures['interleaved']:.0%} of their time",
            f"at least {measures['gauge_samples']} samples under load",
            f"({budget['low']} to {budget['high'] / 1000:.3f}, value {budget['value'] / 1000:.3f})".replace(".", " "),
        ),
        "how-the-numbers-are-made.md": (
            f"at least {measures['prefill_only']:.0%} of its work's",
            f"by more than {measures['impossible']:.0%} plus the error of the clock",
            f"x {measures['boost']:.2f} for boost clocks",
            f"typical: {typical['memory']} memory, {typical['bf16']} bf16, {typical['fp8']} fp8",
            f"low end of the interval less {HEADROOM:.0%}",
        ),
    }
    for page, sentences in said.items():
        text = _docs(page).replace(" %", "%")
        for sentence in sentences:
            assert sentence in text, f"{page}: {sentence}"
