"""The table of real inputs: no kind is missing, and the tests that it names are there."""

from __future__ import annotations

import os
import subprocess
import sys

from docpages import ROOT
from doctables import published_kinds, real_inputs


def test_every_published_kind_is_in_the_table() -> None:
    assert set(real_inputs()) == set(published_kinds())
    for kind, entry in real_inputs().items():
        assert entry["what"], kind
        assert entry["does"], kind
        assert entry["tests"], f"{kind}: which test shows it?"
        assert entry.keys() <= {"what", "does", "tests", "differs"}, kind


def test_every_named_test_is_collected() -> None:
    named = {f"tests/{test}" for entry in real_inputs().values() for test in entry["tests"]}
    files = sorted({test.partition("::")[0] for test in named})
    assert [file for file in files if not (ROOT / file).is_file()] == []
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", *files],
        cwd=ROOT, env={**os.environ, "PYTEST_ADDOPTS": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert collected.returncode == 0, collected.stdout[-2000:]
    found = set()
    for line in collected.stdout.splitlines():
        file, _, rest = line.partition("[")[0].partition("::")
        found.add(f"{file}::{rest.rpartition('::')[2]}")  # a class is no part of a name here
    assert named <= found, sorted(named - found)
