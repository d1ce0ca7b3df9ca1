"""Print one of the README's commands, so that what CI runs is what the README says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def command(name: str) -> str:
    """The fenced shell block that follows the marker ``<!-- command: NAME -->``."""
    fenced = rf"<!-- command: {re.escape(name)} -->\n+```sh\n(.*?)```"
    match = re.search(fenced, README.read_text(encoding="utf-8"), re.DOTALL)
    if match is None:
        raise SystemExit(f"README.md has no command {name!r}")
    return match.group(1)


if __name__ == "__main__":
    print(command(sys.argv[1]))
