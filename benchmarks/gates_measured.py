"""Gates measured: how often they err, on loads whose means and percentiles are known.

    python benchmarks/gates_measured.py [--loads=100] [--seed=1] [--workers=2]

Loads are drawn (tests/drawn.py), written as a client's results and as pages of a server with vLLM's own buckets and
with eight times as many, read and judged as those of a gate file, by limits up to 20 % on either side of the truth. A
plain verdict is wrong where it passes what breaches (a miss) or fails what holds (a false alarm). Percentiles, and
every figure of five repeats, are held against the load that was drawn from; means, rates and utilisation of one window,
which is all that it tells of them, against the window itself. Fails where plain verdicts at any limit are wrong in more
than 5 %.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from gate_errors import MOST_WRONG, OF_THE_WINDOW, OFF, Judged, Setting, Truth, measured, rates, settings
from rows import Row, reported

WHAT = ("right", "false alarm", "miss", "approximate", "no data")


def table(found: Sequence[Judged], truth: Truth, by: str) -> str:
    """Shares of outcomes by what a setting, a metric or a limit is."""
    groups: dict[str, list[Judged]] = {}
    for one in found:
        key = f"{one.off:+.0%}" if by == "limit" else one.metric if by == "metric" else str(getattr(one.setting, by))
        groups.setdefault(key, []).append(one)
    lines = ["| " + " | ".join((by, "verdicts", *WHAT)) + " |", "|" + "---|" * (len(WHAT) + 2)]
    for key, group in groups.items():
        shares = rates(group, truth)
        lines.append(f"| {key} | {len(group)} | " + " | ".join(f"{shares[name]:.1%}" for name in WHAT) + " |")
    return "\n".join(lines)


def worst(name: str, found: Sequence[Judged], truth: Truth) -> Row:
    """The largest share of wrong plain verdicts at one limit: the false alarms and the misses there."""
    at = {off: rates([one for one in found if one.off == off], truth) for off in OFF}
    wrong = {off: shares["false alarm"] + shares["miss"] for off, shares in at.items()}
    off = max(wrong, key=lambda key: wrong[key])
    shown = f"{wrong[off]:.2%} of {sum(one.off == off for one in found)} (limit {off:+.0%})"
    return Row(name, shown, "", f"{wrong[off]:.2%}", f"at most {MOST_WRONG:.0%}", wrong[off] <= MOST_WRONG)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--loads", type=int, default=100, help="of each setting")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(argv)
    with ProcessPoolExecutor(options.workers) as pool:
        parts = pool.map(partial(_all, loads=options.loads, seed=options.seed), settings())
        found = [one for part in parts for one in part]
    single = [one for one in found if one.windows == 1]
    percentiles = [one for one in single if one.metric not in OF_THE_WINDOW]
    means = [one for one in single if one.metric in OF_THE_WINDOW]
    repeated = [one for one in found if one.windows > 1 and one.metric in OF_THE_WINDOW]
    shown: list[tuple[str, list[Judged], Truth]] = [
        ("percentiles of one window", percentiles, "load"),
        ("means, rates and MBU of one window, held against the window", means, "window"),
        ("the same, held against the load (not claimed)", means, "load"),
        ("means, rates and MBU of five repeats", repeated, "load"),
    ]
    for name, group, truth in shown:
        print(f"\n{name}:\n")
        for by in ("limit", "metric", "source", "requests", "variation"):
            print(table(group, truth, by) + "\n")
    claimed = [one for one in shown if "not claimed" not in one[0]]
    # What histograms leave open must not hide what single requests decide.
    of_requests = [one for one in percentiles if one.setting.source == "requests"]
    claimed.append(("percentiles of one window, from single requests", of_requests, "load"))
    return reported([worst(name, group, truth) for name, group, truth in claimed])


def _all(setting: Setting, loads: int, seed: int) -> list[Judged]:
    return list(measured(setting, loads, seed))


if __name__ == "__main__":
    sys.exit(main())
