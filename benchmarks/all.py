"""Every benchmark, one after the other, as one table.

    .ci/get_servers && python benchmarks/all.py [--check]

Takes some minutes. Fails where a row does not hold, or where something could not be measured. ``--check`` runs a few
cheap rows against the bounds of a regression instead (check.py).
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from rows import HEAD, table

HERE = Path(__file__).parent
#: The cheap ones first.
SCRIPTS = ("accounting.py", "startup.py", "parsing.py", "traces.py", "nsys.py", "gates.py", "fleet.py")


def main() -> int:
    """Run all, each in a process of its own, so that none measures what another left behind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="a few cheap rows, against the bounds of a regression")
    if parser.parse_args().check:
        return subprocess.run([sys.executable, HERE / "check.py"], check=False).returncode
    lines: list[str] = []
    failed: list[str] = []
    for script in SCRIPTS:
        done = subprocess.run([sys.executable, HERE / script], capture_output=True, text=True, check=False)
        # Each prints one table: a head, and its rows.
        rows = [line for line in done.stdout.splitlines() if line.startswith("| ")][1:]
        lines += rows
        if done.returncode or not rows:
            failed.append(script)
            lines += [] if rows else ["| " + " | ".join([script, *[""] * (len(HEAD) - 2), "NOT MEASURED"]) + " |"]
            print(done.stderr, file=sys.stderr)
        # Now, as somebody may not wait for the last one.
        print("\n".join([f"{script}: {'failed' if script in failed else 'done'}", *rows]), file=sys.stderr)
    print(f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, Python {platform.python_version()}\n")
    print("\n".join([*table([]).splitlines()[:2], *lines]))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
