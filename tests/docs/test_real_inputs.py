"""The table of real inputs: no kind is missing, and the tests that it names are there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from docpages import ROOT
from doctables import published_kinds, real_inputs


def test_every_published_kind_is_in_the_table() -> None:
    assert set(real_inputs()) == set(published_kinds())
    for kind, entry in real_inputs().items():
        assert entry["what"], kind
        assert entry["does"], kind
        assert entry["tests"], f"{kind}: which test shows it?"
        assert entry.keys() <= {"what", "does", "tests", "differs"}, kind


def test_every_named_test_is_collected(request: pytest.FixtureRequest) -> None:
    named = {f"tests/{test}" for entry in real_inputs().values() for test in entry["tests"]}
    missing = named - {_name(item.nodeid) for item in request.session.items}  # of a run of some tests only
    assert missing <= _collected_apart({test.partition("::")[0] for test in missing})


def _name(node_id: str) -> str:
    """File and function: a class, and what a parameter is, are no part of a name here."""
    file, _, rest = node_id.partition("[")[0].partition("::")
    return f"{file}::{rest.rpartition('::')[2]}"


def _collected_apart(files: set[str]) -> set[str]:
    """The tests of these files, collected in a process of its own."""
    if not files:
        return set()
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", *sorted(files)],
        cwd=ROOT, env={**os.environ, "PYTEST_ADDOPTS": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert collected.returncode == 0, collected.stdout[-2000:]
    return {_name(line) for line in collected.stdout.splitlines()}
