"""What a run asks for: loads, gates and what they must come to, and the tests that a user would write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Prompt and output tokens, requests, and how many at a time.
DECODE: Final = {"prompt": 32, "output": 128, "requests": 24, "at_once": 8}
PREFILL: Final = {"prompt": 512, "output": 1, "requests": 12, "at_once": 4}

#: Gates and what they must come to: generous limits, one that nothing can hold, and what an engine does not tell.
COMMON: Final = {
    "decode.mbu >= 0.5%": "pass", "output.tokens_per_second >= 1": "pass",
    "output.tokens_per_second >= 1e9": "fail", "timeline.idle <= 50%": "no data",
}  # fmt: skip
GATES: Final[Mapping[str, Mapping[str, str]]] = {
    "vllm": {
        **COMMON, "decode.batch >= 2": "pass", "itl.mean <= 10s": "pass", "itl.p95 <= 20s": "pass",
        "ttft.mean <= 60s": "pass", "errors.rate <= 0%": "pass", "itl.mean <= 1us": "fail",
        "decode.mbu >= 100%": "fail",
    },
    "llama.cpp": {**COMMON, "decode.batch >= 2": "pass", "itl.mean <= 10s": "no data", "ttft.p95 <= 60s": "no data"},
}  # fmt: skip
PREFILL_GATES: Final[Mapping[str, Mapping[str, str]]] = {
    "vllm": {"prefill.mfu >= 0.1%": "pass", "ttft.p95 <= 1us": "fail", "errors.rate <= 0%": "pass"},
    "llama.cpp": {"prefill.tokens_per_second >= 1": "pass", "ttft.p95 <= 60s": "no data"},
}
#: Other prompts in each phase: a prefix that the server has cached would not be computed.
SEEDS: Final = {"prefill": "11", "decode": "12"}

LOADS_TEST: Final = '''"""A load in a test, measured by a window around it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = json.loads(Path(__file__).with_name("settings.json").read_text())


@pytest.mark.llmroof(telemetry=SETTINGS["telemetry"], interval="0.5s", **SETTINGS["served"])
def test_load(llmroof):
    with llmroof.window(phase="decode") as window:
        subprocess.run([sys.executable, *SETTINGS["load"]], check=True)
    window.check(*SETTINGS["gates"])
    assert window["output.tokens_per_second"].value > 1
'''

#: What the probe is asked for: prompts, rounds of the decode batch, and gates on its windows.
PROBED: Final = 6
ROUNDS: Final = 2
PROBE_GATES: Final = {
    "prefill": ["prefill.tokens_per_second >= 1", "ttft.mean <= 60s", "errors.rate <= 0%"],
    "decode": ["decode.mbu >= 0.5%", "decode.batch >= 2", "tpot.mean <= 10s", "errors.rate <= 0%"],
}

PROBE_TEST: Final = '''"""Loads of one phase each, sent by the plugin itself."""

import json
from pathlib import Path

import pytest

SETTINGS = json.loads(Path(__file__).with_name("settings-probe.json").read_text())
pytestmark = pytest.mark.llmroof(telemetry=SETTINGS["telemetry"], **SETTINGS["served"])


def test_prefill(llmroof_probe):
    llmroof_probe.prefill(**SETTINGS["prefill"]).check(*SETTINGS["gates"]["prefill"])


def test_decode(llmroof_probe):
    llmroof_probe.decode(**SETTINGS["decode"]).check(*SETTINGS["gates"]["decode"])
'''
