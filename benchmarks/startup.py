"""What an installed plugin costs a run that does not use it.

    python benchmarks/startup.py

pytest runs one test that does nothing, in processes of their own, in turns with the plugin and with
``-p no:llmroof``; no other plugin is loaded. The least CPU time of thirty runs counts. Prints both and their
difference, which must not exceed 3 ms.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from subprocess import DEVNULL, Popen

RUNS = 30
MOST_SECONDS = 0.003

#: The plugin is handed over: finding it among what is installed is work that pytest does for any plugin.
WITH = "import pytest, sys; from pytest_llmroof import plugin; sys.exit(pytest.main(sys.argv[1:], [plugin]))"
WITHOUT = "import pytest, sys; sys.exit(pytest.main([*sys.argv[1:], '-p', 'no:llmroof']))"
OPTIONS = ("-q", "--disable-plugin-autoload", "-p", "no:cacheprovider")


def main() -> int:
    """Run both in turns."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "tests")
        folder.mkdir()
        (folder / "pytest.ini").touch()
        (folder / "test_it.py").write_text("def test_it(): pass\n", encoding="utf-8")
        # The first run compiles, as it does once for every user; the cache is ours, so that it is there for sure.
        run(folder, WITH), run(folder, WITHOUT)
        times = [(run(folder, WITH), run(folder, WITHOUT)) for _ in range(RUNS)]
    used, bare = (min(column) for column in zip(*times, strict=True))
    print(f"a run of one test with the plugin: {used * 1e3:.1f} ms of CPU")
    print(f"the same without it: {bare * 1e3:.1f} ms of CPU")
    print(f"difference {(used - bare) * 1e3:.1f} ms (at most {MOST_SECONDS * 1e3:.0f} ms)")
    return int(used - bare > MOST_SECONDS)


def run(folder: Path, script: str) -> float:
    """CPU seconds of one run. It must pass."""
    command = [sys.executable, "-c", script, *OPTIONS]
    environment = {**os.environ, "PYTEST_ADDOPTS": "", "PYTHONPYCACHEPREFIX": str(folder.parent / "cache")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = Popen(command, cwd=folder, stdout=DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"exit code {process.returncode} from {script}")
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
