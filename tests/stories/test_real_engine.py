"""A real vLLM as it was recorded, gated live, probed and replayed by `python tests/development/real_engine`.

The archive holds every page as the server wrote it, the clients' own counts, and the reports of the live runs. (vLLM
0.32.0 on two busy CPU cores; a random Llama of 10 layers, hidden size 1,024, 16 heads of 64, 8 KV heads, 2,816 inside
the MLP, 1,024 words, bf16.)
"""

from __future__ import annotations

from pathlib import Path

import pytest
from development.real_engine import checks
from recorded_runs import Gate, counted, judging, report, unpacked

LIVE, TEST = "kept/live.llmroof/decode", "kept/test_loads/test_load-window-1"
BANDWIDTH = 27.2e9  # bytes/s, cpu.yaml


@pytest.fixture(scope="module")
def archive(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(data / "vllm-cpu-live", tmp_path_factory)


@pytest.fixture
def run(archive: Path, pytester: pytest.Pytester, gate: Gate) -> Gate:
    return judging(archive, pytester, gate, "random-llama")


@pytest.mark.parametrize(
    ("live", "folder", "phase"),
    [
        ("live", LIVE, "decode"),
        ("test", TEST, "decode"),
        ("probe", "kept/test_probe/test_decode-decode", "decode"),
        ("probe", "kept/test_probe/test_prefill-prefill", "prefill"),
    ],
)
def test_a_replay_gives_what_was_measured_live(archive: Path, run: Gate, live: str, folder: str, phase: str) -> None:
    then = report(archive, live, phase)
    gates = [gate["expression"] for gate in then["gates"]]
    now = run(folder, *gates, phase=phase).window
    found = {gate["expression"]: (gate["verdict"], gate["value"]) for gate in now["gates"]}
    assert found == {gate["expression"]: (gate["verdict"], gate["value"]) for gate in then["gates"]}
    values = {name: one["value"] for name, one in then["measurements"].items()}
    for name in [name for name in values if name.endswith(".max")]:
        # When this was recorded the largest value of a histogram was still its bucket's lower bound alone.
        values[name] = max(values[name], values.get(name.replace(".max", ".mean"), 0.0))
    # And prompts in flight at its ends, which are in no lower bound any more, were in that of their bytes.
    then_mbu, now_mbu = values.pop("prefill.mbu", None), now["measurements"].get("prefill.mbu")
    assert then_mbu is None or now_mbu["low"] <= then_mbu <= (now_mbu["high"] or 1.0)
    assert {name: now["measurements"][name]["value"] for name in values} == values


def test_counters_and_clients_agree(archive: Path) -> None:
    """24 requests of 128 tokens: 3,072 tokens in 24 x 127 = 3,048 intervals; prompts of 24 x 32 = 768 tokens."""
    pages, window = checks.Pages(archive / TEST), report(archive, "test")
    load = counted(archive / "test-load.json")
    assert load == {"requests": 24, "prompt_tokens": 768, "output_tokens": 3072, "failures": []}
    assert pages.grew("vllm:generation_tokens_total") == window["facts"]["generated_tokens"] == 24 * 128
    assert pages.grew("vllm:inter_token_latency_seconds_count") == 24 * 127
    assert pages.grew("vllm:iteration_tokens_total_sum") == 768 + 3072
    assert window["facts"]["prompt_tokens"] == 768
    assert window["facts"]["finished_requests"] == 24


def test_a_window_around_a_load(run: Gate) -> None:
    """3,048 intervals of 106.229 s in all, in 451 steps."""
    window = run(TEST, "itl.mean <= 1s").window
    measured = {name: one["value"] for name, one in window["measurements"].items()}
    assert measured["itl.mean"] == pytest.approx(106.22923169399792 / 3048)  # 34.85 ms
    assert measured["decode.batch"] == pytest.approx(3048 / 451)  # 6.758
    # 3,072 tokens between two scrapes that are 16.783 s apart.
    assert measured["output.tokens_per_second"] == pytest.approx(3072 / 16.783031940460205)
    assert measured["ttft.mean"] == pytest.approx(5.999392747879028 / 24)


def test_mbu_by_hand_and_by_the_engine_s_own_estimate(archive: Path, run: Gate) -> None:
    """Weights: 10 x (2 x 1024^2 + 2 x 1024 x 512 + 3 x 1024 x 2816) + 1024 x 1024 + 21 x 1024 = 119,034,880 values.

    With 6.758 rows of the input embedding 238.08 MB; cache: 6.758 x (97.97 + 1) x 20,480 B = 13.70 MB. In 34.85 ms at
    27.2 GB/s: 26.6 %. vLLM's own counter has 254.5 MB for each of the 451 steps.
    """
    window = run(TEST, "decode.mbu >= 20%", "decode.mbu >= 30%").window
    assert [gate["verdict"] for gate in window["gates"]] == ["pass", "fail"]
    batch = 3048 / 451
    measured = window["measurements"]
    context = measured["decode.context"]["value"]
    assert context == pytest.approx(32 + 128 / 2, rel=0.03)
    weights = 10 * (2 * 1024**2 + 2 * 1024 * 512 + 3 * 1024 * 2816) + 1024 * 1024 + 21 * 1024
    assert weights == 119_034_880
    moved = 2 * (weights + batch * 1024) + batch * (context + 1) * 10 * 2 * 512 * 2
    assert measured["decode.mbu"]["value"] == pytest.approx(moved / (BANDWIDTH * 106.22923169399792 / 3048))
    assert measured["decode.mbu"]["value"] == pytest.approx(0.266, abs=0.001)
    estimated = checks.Pages(archive / TEST).grew("vllm:estimated_read_bytes_per_gpu_total") / 451
    assert moved == pytest.approx(estimated, rel=0.02)
    # The model's FLOPs by its own estimator: 919.74 GFLOP for 3,840 tokens.
    assert checks.Pages(archive / TEST).grew("vllm:estimated_flops_per_gpu_total") == 919_741_661_184


def test_the_benchmark_and_the_server(archive: Path, run: Gate) -> None:
    """The client's 30.94 s are the load's: the 65.6 s of the recording hold its start and its imports, too."""
    result = counted(archive / "recordings/decode/bench.json")
    judged = run("recordings/decode", "output.tokens_per_second >= 1000", "goodput(ttft<=2s, tpot<=100ms) >= 95%")
    window = judged.window
    measured = window["measurements"]
    assert window["duration_seconds"] == pytest.approx(65.5798, abs=1e-4)
    assert window["facts"]["generated_tokens"] == result["total_output_tokens"] == 3072
    assert window["facts"]["finished_requests"] == result["completed"] == 24
    assert measured["output.tokens_per_second"]["value"] == pytest.approx(3072 / 30.941579373999957)  # 99.3 tok/s
    gaps = [gap for request in result["itls"] for gap in request]
    # The client saw 3,000 gaps for the server's 3,048: now and then two tokens came in one piece.
    assert measured["itl.mean"]["value"] == pytest.approx(229.81289921299958 / 3048)
    assert measured["itl.mean"]["other"]["value"] == pytest.approx(sum(gaps) / len(gaps))
    assert measured["ttft.mean"]["value"] == pytest.approx(result["mean_ttft_ms"] / 1e3)
    assert measured["ttft.mean"]["other"]["value"] == pytest.approx(16.580653190612793 / 24)
    assert [gate["verdict"] for gate in window["gates"]] == ["fail", "pass"]
    # What the recording held before and after the benchmark is no lack of load of the benchmark.
    assert window["gates"][0]["scenario"] != "G"
    assert "too little load" not in judged.text


def test_prompts_alone(archive: Path, run: Gate) -> None:
    """12 prompts of 512 tokens, 6,146 as the server reads them, 128 of them cached: 6,018 computed in 23.187 s."""
    judged = run("recordings/prefill", "prefill.mfu >= 1%", "itl.mean <= 1s", "tpot.p99 <= 1s", phase="prefill")
    window = judged.window
    assert window["facts"]["computed_prompt_tokens"] == 6_146 - 128
    rate = window["measurements"]["prefill.tokens_per_second"]["value"]
    assert rate == pytest.approx(6_018 / 23.18668455199986)
    # vllm bench serve wrote 0.0 for both: one token has no time between tokens, and zeros pass no gate.
    assert [gate["verdict"] for gate in window["gates"]] == ["pass", "no data", "no data"]


def test_the_probe(archive: Path, run: Gate) -> None:
    """2 rounds of 8: 16 x 127 = 2,032 intervals in 94.662 s, of which the server counted 258 steps."""
    folder = "kept/test_probe/test_decode-decode"
    pages = checks.Pages(archive / folder)
    window = run(folder, "itl.mean <= 1s", "errors.rate <= 0%").window
    facts, measured = window["facts"], window["measurements"]
    assert (facts["prompt_tokens"], facts["generated_tokens"], facts["finished_requests"]) == (512, 2048, 16)
    assert pages.grew("vllm:inter_token_latency_seconds_count") == 16 * 127
    assert pages.grew("vllm:iteration_tokens_total_sum") == 512 + 2048
    assert measured["itl.mean"]["value"] == pytest.approx(94.66208577000089 / 2032)
    assert measured["decode.batch"]["value"] == pytest.approx(8, abs=0.2)  # 2,032 / 258 = 7.88
    assert measured["errors.rate"]["value"] == 0


def test_the_whole_window_was_mostly_idle(run: Gate) -> None:
    """30.94 s of load in 65.58 s: 53 % idle, which `window.mfu` counts, and the benchmark's own rate does not."""
    judged = run("recordings/decode", "window.mfu >= 90%", "output.tokens_per_second >= 1000")
    whole, rate = judged.window["gates"]
    assert (whole["verdict"], whole["scenario"]) == ("fail", "G")
    assert rate["scenario"] != "G"
    assert "30.9 s of 65.6 s: 53 % idle" in judged.text
    assert "too little load" in judged.text
