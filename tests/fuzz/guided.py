"""The same targets under a coverage-guided fuzzer, which no test needs: pip install atheris

    python tests/fuzz/guided.py --target=profiles --inputs=100000 [--seed=1] [--corpus=FOLDER]

The fuzzer mutates the seeds of a reader, and keeps what reaches new lines of the package. It stops at the first fault,
prints it and leaves its input beside. The first byte of an input tells which seed's files stand beside it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


def main() -> None:
    """Fuzz one target."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", required=True, help="a reader, as tests/fuzz/run.py names it")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, help="keep what reached new lines there, and begin with what it holds")
    options = parser.parse_args()

    import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]

    with atheris.instrument_imports(include=["pytest_llmroof"]):
        from fuzz.targets import TARGETS
        from fuzz.worker import MOST_BYTES, MOST_SECONDS, Feeder

    target = TARGETS[options.target]
    with tempfile.TemporaryDirectory() as made:
        corpus = options.corpus or Path(made) / "corpus"
        corpus.mkdir(parents=True, exist_ok=True)
        feeder = Feeder(target, Path(made) / "files", options.seed)
        places = [feeder.input(number) for number in range(len(target.seeds()))]
        for number, (_, _, content) in enumerate(places):
            (corpus / f"seed-{number}").write_bytes(bytes([number % 256]) + content)

        def one(data: bytes) -> None:
            folder, seed, _ = places[data[0] % len(places)] if data else places[0]
            target.read(folder, seed, data[1:])

        atheris.Setup(
            [
                sys.argv[0], str(corpus), f"-runs={options.inputs}", f"-seed={options.seed}", "-max_len=65536",
                f"-timeout={MOST_SECONDS:.0f}", f"-rss_limit_mb={MOST_BYTES >> 20}", "-print_final_stats=1",
                f"-artifact_prefix={os.getcwd()}/fault-",
            ],
            one,
        )  # fmt: skip
        atheris.Fuzz()


if __name__ == "__main__":
    main()
