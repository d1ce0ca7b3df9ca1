"""What to say where gates were asked for and none was found: where was looked, and what looks like a gate file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Final

import pytest

from pytest_llmroof.options import settings

#: How much a file's name must look like "llmroof", and how many folders and files are looked at.
_LIKENESS: Final = 0.75
_MOST_FILES: Final = 20_000
_MOST_SHOWN: Final = 3
_PASSED_BY: Final = ("node_modules", "venv")
_GATE_FILE: Final = re.compile(r"(.*\.)?llmroof\.ya?ml")


def no_gate_message(config: pytest.Config) -> str:
    """Which option asked for gates, where was looked, and which file to rename or to name."""
    options = settings(config)
    asked = ", ".join(options.asked) or "llmroof_required"
    places = [_shown(path, config.rootpath) for path in _places(config)]
    lines = [
        f"ERROR: no gate was collected, though {asked} asks for one; looked in {', '.join(places)} for llmroof.yaml,"
        " *.llmroof.yaml (or .yml), @pytest.mark.llmroof_gate and --llmroof-gate=EXPRESSION"
    ]
    lines += [f"  {advice}" for advice in _near_misses(config)]
    return "\n".join(lines)


def _near_misses(config: pytest.Config) -> list[str]:
    """The likeliest few: what lies nearest to the root directory first, and wrong names before other places."""
    places = _places(config)
    found = []
    for path in _files([config.rootpath, *places]):
        shown, depth = _shown(path, config.rootpath), _depth(path, config.rootpath)
        if _GATE_FILE.fullmatch(path.name):
            if not any(path.is_relative_to(place) for place in places):
                advice = f"{shown} is outside of what was collected: name it on the command line, or in testpaths"
                found.append((depth, 1, advice))
        elif name := _renamed(path):
            found.append((depth, 0, f"{shown} looks like a gate file: rename it to {name}"))
    found.sort()
    # Where a wrong name lies in the root directory itself, gate files elsewhere are other people's.
    meant = any(depth == kind == 0 for depth, kind, _advice in found)
    return [advice for _depth, kind, advice in found if kind == 0 or not meant][:_MOST_SHOWN]


def _depth(path: Path, root: Path) -> int:
    """How many folders lie between the root directory and a file; far where it is in none of them."""
    return len(path.relative_to(root).parts) - 1 if path.is_relative_to(root) else _MOST_FILES


def _renamed(path: Path) -> str | None:
    """The name that a file like ``llm-roof.yml`` or ``nightly.llmrof.yaml`` should have; None for any other."""
    if path.suffix.lower() not in (".yaml", ".yml"):  # a JSON file of that name is a report
        return None
    *front, last = path.stem.split(".")
    plain = re.sub(r"[^a-z]", "", last.lower())
    if SequenceMatcher(None, plain, "llmroof").ratio() >= _LIKENESS:
        return ".".join([*front, "llmroof", "yaml"])
    if "llmroof" in re.sub(r"[^a-z]", "", path.stem.lower()):
        return f"{path.stem}.llmroof.yaml"
    return None


def _places(config: pytest.Config) -> list[Path]:
    names = [argument.split("::", 1)[0] for argument in config.args]
    return [config.invocation_params.dir / name for name in names if name] or [config.rootpath]


def _files(places: list[Path]) -> Iterator[Path]:
    """Every file below some folders once, hidden and cache folders left out, up to a limit."""
    seen: set[Path] = set()
    for place in places:
        for folder, folders, files in os.walk(place):
            folders[:] = sorted(name for name in folders if name[0] not in "._" and name not in _PASSED_BY)
            for name in sorted(files):
                path = Path(folder, name)
                if path not in seen:
                    seen.add(path)
                    yield path
                if len(seen) > _MOST_FILES:
                    return


def _shown(path: Path, root: Path) -> str:
    if path == root:
        return "the root directory"
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
