"""How many small faults the tests of the physics, the gates and the analysis notice.

    nice -n 15 python tests/development/mutants [--sample=400] [--seed=1] [--jobs=1] [PATH ...]

It clones the repository's last commit into a folder of its own, runs the rooms' tests there once under coverage (which
test runs which line), draws a sample of mutants (mutations.py; PATH draws from files whose path begins so), and runs
for each the tests that run its lines until one fails. A mutant that lives is tried again in a process of its own, and
is printed. Results are in FOLDER/results.json; `--again=results.json TEST ...` tries those that lived with these tests.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from development.mutants.trial import ROOMS, Broken, Candidate, Trial

#: What becomes of a mutant that a test notices, and of one that none does.
NOTICED, UNNOTICED = ("killed", "hangs"), ("lives", "no test")


def main() -> int:
    """Draw, try, say."""
    parser = argparse.ArgumentParser("mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sample", type=int, default=400, help="how many mutants (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes try them (default: %(default)s)")
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="keep copy and coverage here (default: a new one)")
    parser.add_argument("--again", type=Path, metavar="RESULTS", help="those of an earlier run that lived, no sample")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="pytest_llmroof/..., with --again tests")
    given = parser.parse_args()
    work = (given.work or Path(tempfile.mkdtemp(prefix="llmroof-mutants-"))).resolve()
    work.mkdir(parents=True, exist_ok=True)
    trial = Trial(work)
    try:
        if given.again:
            return _again(trial, json.loads(given.again.read_text(encoding="utf-8")), given.paths, given.jobs)
        print(f"mutants: the tests once under coverage, in {trial.folder}", flush=True)
        trial.map()
    except Broken as problem:
        print(f"mutants: {problem}", file=sys.stderr)
        return 1
    everything = trial.candidates(given.paths)
    chosen = random.Random(given.seed).sample(everything, min(given.sample, len(everything)))
    print(f"mutants: {len(chosen)} of {len(everything)}, seed {given.seed}", flush=True)
    became = _tried(trial, chosen, given.jobs)
    results = [{**one.said(), "room": one.room, "status": status} for one, status in zip(chosen, became, strict=True)]
    (work / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    _table(results)
    return 0


def _tried(trial: Trial, chosen: list[Candidate], jobs: int) -> list[str]:
    """What became of each, in the order drawn."""
    became = trial.forked(dict(enumerate(chosen)), jobs)
    for number, one in enumerate(chosen):
        if became.get(number) not in NOTICED:
            became[number] = trial.alone(one)
            if became[number] not in NOTICED:
                _say(one, became[number])
    return [became[number] for number in range(len(chosen))]


def _again(trial: Trial, results: list[dict[str, Any]], tests: list[str], jobs: int) -> int:
    """Those that lived, in the copy's present state, which may have other line numbers."""
    lived = [one for one in results if one["status"] in UNNOTICED]
    found = {}
    for number, one in enumerate(lived):
        alike = [
            each for each in trial.candidates([one["path"]])
            if all(each.said()[key] == one[key] for key in ("path", "inside", "kind", "before", "after"))
        ]  # fmt: skip
        if alike:
            found[number] = min(alike, key=lambda each: abs(each.mutant.line - one["line"]))
        else:
            print(f"gone     {one['path']}:{one['line']} {one['before']}", flush=True)
    became = trial.forked(found, jobs, tests)
    left = 0
    for number, each in found.items():
        status = became.get(number)
        if status not in NOTICED:
            status = trial.alone(each, tests)
        left += status in UNNOTICED
        _say(each, str(status))
    print(f"{left} of {len(lived)} still live")
    return 0


def _say(one: Candidate, status: str) -> None:
    mutant = one.mutant
    print(f"{status:8} {one.path}:{mutant.line} {mutant.inside}: {mutant.before}  =>  {mutant.after}", flush=True)


def _table(results: list[dict[str, Any]]) -> None:
    """Score by room."""
    print(f"{'room':10} {'tried':>6} {'killed':>7} {'hang':>5} {'live':>5} {'no test':>8} {'score':>7}")
    for room in (*ROOMS, "all"):
        count = Counter(one["status"] for one in results if room in (one["room"], "all"))
        tried = sum(count.values())
        if tried:
            score = sum(count[status] for status in NOTICED) / tried
            print(f"{room:10} {tried:6} {count['killed']:7} {count['hangs']:5} {count['lives']:5} "
                  f"{count['no test']:8} {score:7.1%}")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
