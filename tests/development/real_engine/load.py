"""A load of one's own: completions with prompts of exact length, several at a time. Standard library only.

    python load.py URL MODEL --prompt=32 --output=128 --requests=32 --at-once=8 [--result=FILE]

With ``--requests=0`` it goes on until it is interrupted. What came back is counted and written; a request that failed
makes the exit code 1.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any


class Load:
    """Requests that still have to be sent, and what came back."""

    def __init__(self, url: str, model: str, prompt: int, output: int, requests: int) -> None:
        self.url, self.model, self.prompt, self.output = url, model, prompt, output
        self.left: float = requests or float("inf")
        self.lock = threading.Lock()
        self.answers: list[dict[str, Any]] = []
        self.failures: list[str] = []

    def work(self, seed: int) -> None:
        """Send one request after another, until none is left."""
        chance = random.Random(seed)
        while self._take():
            body = {
                "model": self.model, "prompt": [chance.randint(10, 900) for _ in range(self.prompt)],
                "max_tokens": self.output, "ignore_eos": True, "temperature": 0.8, "cache_prompt": False,
            }  # fmt: skip
            request = urllib.request.Request(
                f"{self.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=300) as answer:
                    usage = json.load(answer)["usage"]
            except (OSError, ValueError, KeyError) as problem:
                self.failures.append(f"{type(problem).__name__}: {problem}")
                self.left = 0
                return
            self.answers.append({"prompt": usage["prompt_tokens"], "output": usage["completion_tokens"]})

    def _take(self) -> bool:
        with self.lock:
            self.left -= 1
            return self.left >= 0

    def stop(self, *_: object) -> None:
        """No more requests; those under way are waited for."""
        self.left = 0

    def result(self) -> dict[str, Any]:
        """What the client knows."""
        return {
            "requests": len(self.answers),
            "prompt_tokens": sum(answer["prompt"] for answer in self.answers),
            "output_tokens": sum(answer["output"] for answer in self.answers),
            "failures": self.failures,
        }


def main() -> int:
    """Send, wait, say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("model")
    for name, default in (("prompt", 32), ("output", 128), ("requests", 32), ("at-once", 8), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--result", type=Path)
    given = parser.parse_args()
    load = Load(given.url, given.model, given.prompt, given.output, given.requests)
    signal.signal(signal.SIGINT, load.stop)
    signal.signal(signal.SIGTERM, load.stop)
    # Different prompts each time this runs: a prefix that the server has cached would not be computed.
    seed = given.seed or time.time_ns()
    workers = [threading.Thread(target=load.work, args=(seed + number,)) for number in range(given.at_once)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    text = json.dumps(load.result())
    print(text)
    if given.result:
        given.result.write_text(text + "\n")
    return 1 if load.failures else 0


if __name__ == "__main__":
    sys.exit(main())
