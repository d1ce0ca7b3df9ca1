"""``python -m pytest_llmroof VERB``: what is done beside pytest."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pytest_llmroof import __version__, recorder
from pytest_llmroof.report import init_verb, render_verb


@dataclass(frozen=True)
class Verb:
    """A verb: one line of help, its options, and what it does. ``run`` gets what stands after ``--``, too."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Sequence[str] | None], int]


VERBS: Final[dict[str, Verb]] = {
    "record": Verb("scrape metrics while a load runs, for gates to judge", recorder.add_arguments, recorder.run),
    "init": Verb("write a gate file that reports support, or a first one", init_verb.add_arguments, init_verb.run),
    "render": Verb("make other reports from a JSON report", render_verb.add_arguments, render_verb.run),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb; the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    # Split by hand: argparse drops the "--" and would take options of the command for its own.
    own, command = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, None)
    parser = argparse.ArgumentParser(
        "python -m pytest_llmroof", description="Beside pytest: recordings, gate files and reports.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"pytest-llmroof {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, verb in VERBS.items():
        verb.add_arguments(verbs.add_parser(name, help=verb.help, description=verb.help, allow_abbrev=False))
    options = parser.parse_args(own)
    return VERBS[options.verb].run(options, command)


if __name__ == "__main__":
    sys.exit(main())
