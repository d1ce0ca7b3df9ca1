"""vLLM's names, as data: every release's."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmroof.telemetry.engine_entries import engine_listing
from pytest_llmroof.telemetry.engines import EngineNames, known_engines, recognised
from pytest_llmroof.telemetry.exposition import parse_page
from pytest_llmroof.telemetry.page_engines import snapshots
from pytest_llmroof.telemetry.snapshot import Snapshot

VLLM = known_engines()["vllm"]


def only(text: str, engine: EngineNames = VLLM) -> Snapshot:
    (snapshot,) = snapshots(parse_page(text, "page.prom"), engine)
    return snapshot


@pytest.mark.parametrize("prefix", ["vllm:", "vllm_", "ray_vllm:", "ray_vllm_"])
@pytest.mark.parametrize("suffix", ["", "_total"])
def test_prefixes_and_counters_with_and_without_total(prefix: str, suffix: str) -> None:
    name = f"{prefix}generation_tokens{suffix}"
    snapshot = only(f'{name}{{model_name="m",SessionName="s"}} 7\n')
    assert snapshot.counters == {"generation_tokens": 7.0}
    assert snapshot.names == {"generation_tokens": name}
    assert snapshot.identity.model_name == "m"


@pytest.mark.parametrize(
    ("name", "quantity"),
    [
        ("kv_cache_usage_perc", "kv_usage"),
        ("gpu_cache_usage_perc", "kv_usage"),
        ("gpu_cache_usage_factor", "kv_usage"),  # found in articles
        ("num_requests_running", "running"),
        ("num_requests_waiting", "waiting"),
        ("num_requests_swapped", "swapped"),
        ("gpu_prefix_cache_hit_rate", "prefix_hit_rate"),
        ("spec_decode_draft_acceptance_rate", "acceptance_rate"),
    ],
)
def test_gauges_of_all_versions(name: str, quantity: str) -> None:
    assert only(f"vllm:{name} 0.5\n").gauges == {quantity: 0.5}


@pytest.mark.parametrize(
    ("name", "quantity", "scale"),
    [
        ("time_to_first_token_seconds", "ttft", 1.0),
        ("inter_token_latency_seconds", "itl", 1.0),
        ("time_per_output_token_seconds", "itl", 1.0),  # despite its name no TPOT: one sample per output
        ("request_time_per_output_token_seconds", "tpot", 1.0),
        ("time_in_queue_requests", "queue", 1.0),
        ("model_forward_time_milliseconds", "forward_time", 0.001),
        ("model_execute_time_milliseconds", "execute_time", 0.001),
        ("request_prefill_kv_computed_tokens", "computed_length", 1.0),
    ],
)
def test_histograms_of_all_versions(name: str, quantity: str, scale: float) -> None:
    snapshot = only(
        f'vllm:{name}_bucket{{le="500"}} 2\nvllm:{name}_bucket{{le="+Inf"}} 3\n'
        f"vllm:{name}_sum 900\nvllm:{name}_count 3\n"
    )
    buckets = snapshot.histograms[quantity]
    assert buckets.bounds == (500 * scale, float("inf"))
    assert list(buckets.counts) == [2, 3]
    assert buckets.total == pytest.approx(900 * scale)
    assert "tpot" not in snapshot.histograms or quantity == "tpot"


def test_tokens_per_step_are_a_histogram_despite_their_name() -> None:
    snapshot = only(
        'vllm:iteration_tokens_total_bucket{le="+Inf"} 5\nvllm:iteration_tokens_total_sum 40\n'
        "vllm:iteration_tokens_total_count 5\nvllm:iteration_tokens_total_created 1.7e9\n"
    )
    assert snapshot.counters == {"steps": 5.0, "step_tokens": 40.0}
    assert snapshot.histograms["step_tokens"].count == 5
    assert snapshot.created == {"vllm:iteration_tokens_total_created": 1.7e9}


def test_of_two_names_the_new_one_counts_once() -> None:
    """0.9.2 to 0.11 expose both names of one gauge and one counter."""
    snapshot = only(
        "vllm:kv_cache_usage_perc 0.4\nvllm:gpu_cache_usage_perc 0.4\n"
        "vllm:gpu_prefix_cache_hits_total 9\nvllm:prefix_cache_hits_total 9\n"
    )
    assert snapshot.gauges == {"kv_usage": 0.4}
    assert snapshot.counters == {"prefix_hits": 9.0}
    assert snapshot.names["prefix_hits"] == "vllm:prefix_cache_hits_total"


def test_a_name_that_is_fed_counts_before_one_that_is_not() -> None:
    snapshot = only(
        "vllm:inter_token_latency_seconds_sum 0\nvllm:inter_token_latency_seconds_count 0\n"
        "vllm:time_per_output_token_seconds_sum 2\nvllm:time_per_output_token_seconds_count 8\n"
    )
    assert snapshot.histograms["itl"].count == 8
    assert snapshot.names["itl"] == "vllm:time_per_output_token_seconds"


def test_a_hit_rate_of_minus_one_says_disabled() -> None:
    snapshot = only("vllm:gpu_prefix_cache_hit_rate -1\nvllm:num_requests_running 0\n")
    assert "prefix_hit_rate" not in snapshot.gauges
    assert snapshot.disabled == {"prefix_hit_rate"}


def test_a_gauge_that_is_not_a_number_is_no_sample() -> None:
    assert only("vllm:kv_cache_usage_perc NaN\nvllm:num_requests_running 1\n").gauges == {"running": 1.0}


def test_processes_repeat_a_gauge() -> None:
    """Two API servers in one multiprocess page (label `pid`) tell of the same engine."""
    text = 'vllm:num_requests_running{model_name="m",pid="7"} 5\nvllm:num_requests_running{model_name="m",pid="8"} 6\n'
    assert only(text).gauges == {"running": 6.0}


def test_finished_requests_by_reason() -> None:
    text = "".join(
        f'vllm:request_success_total{{finished_reason="{reason}",model_name="m"}} {count}\n'
        for reason, count in (("stop", 5), ("length", 3), ("abort", 1), ("error", 2))
    )
    assert only(text).finished == {"stop": 5.0, "length": 3.0, "abort": 1.0, "error": 2.0}


def test_only_harmless_facts_are_kept() -> None:
    text = (
        'vllm:cache_config_info{block_size="16",cache_dtype="auto",num_gpu_blocks="4096",sliding_window="None",'
        'engine="0",secret_path="/home/me",kv_cache_size_tokens="a b; rm"} 1\n'
        'vllm:num_requests_running{engine="0",model_name="m"} 1\n'
    )
    assert only(text).facts == {"block_size": "16", "cache_dtype": "auto", "num_gpu_blocks": "4096"}


def test_series_of_the_whole_server_are_no_engine() -> None:
    """0.32 counts rejected requests without the label `engine`."""
    text = (
        'vllm:admission_rejections_total{model_name="m",reason="full"} 4\n'
        'vllm:generation_tokens_total{engine="0",model_name="m"} 1\n'
        'vllm:generation_tokens_total{engine="1",model_name="m"} 2\n'
    )
    first, second = snapshots(parse_page(text, "page.prom"), VLLM)
    assert first.counters == {"generation_tokens": 1.0, "requests_rejected": 4.0}
    assert second.counters == {"generation_tokens": 2.0}


def test_engines_are_told_apart_by_rank_and_replica() -> None:
    text = (
        'ray_vllm_generation_tokens_total{engine="0",ReplicaId="a",model_name="m"} 1\n'
        'ray_vllm_generation_tokens_total{ReplicaId="b",engine="0",model_name="m"} 2\n'
    )
    first, second = snapshots(parse_page(text, "page.prom"), VLLM)
    assert (str(first.identity), str(second.identity)) == ("engine 0, ReplicaId a", "engine 0, ReplicaId b")


PROBLEMS = [
    ('x_bucket{le="1"} 5\nx_bucket{le="+Inf"} 3\nx_sum 1\nx_count 3\n', "x has buckets that are not cumulative"),
    ('x_bucket{le="1"} 1\nx_sum 1\n', "x has no +Inf bucket and no count"),
    ('x_bucket{le="1"} 1\nx_bucket{le="+Inf"} 1\n', "x has no sum"),
    ('x_bucket{le="one"} 1\nx_bucket{le="+Inf"} 1\nx_sum 1\n', "x has a bucket without a bound"),
    ('x_bucket{le="+Inf"} NaN\nx_sum 1\n', "x has a bucket that is not a number"),
    ('x_bucket{le="+Inf"} -1\nx_sum 1\n', "x has buckets that are not cumulative"),
    (
        'x_bucket{le="1",a="1"} 1\nx_bucket{le="+Inf",a="1"} 1\nx_bucket{le="+Inf",a="2"} 1\nx_sum{a="1"} 1\n',
        "x has series with different buckets",
    ),
]


@pytest.mark.parametrize(("text", "problem"), PROBLEMS)
def test_a_histogram_that_contradicts_itself_is_left_out_and_said(text: str, problem: str) -> None:
    name = "vllm:time_to_first_token_seconds"
    lines = "".join(line.replace("x_", f"{name}_", 1) for line in text.splitlines(keepends=True))
    snapshot = only(lines)
    assert snapshot.histograms == {}
    assert list(snapshot.damaged.values()) == [problem.replace("x ", f"{name} ", 1)]


def test_a_histogram_of_sum_and_count_alone_has_a_mean() -> None:
    buckets = only("vllm:inter_token_latency_seconds_sum 12.5\nvllm:inter_token_latency_seconds_count 500\n").histograms
    assert buckets["itl"].bounds == (float("inf"),)
    assert buckets["itl"].total / buckets["itl"].count == 0.025


def test_what_is_no_engine_is_not_recognised() -> None:
    assert recognised(parse_page("process_start_time_seconds 1\nhttp_requests_total 5\n", "x")) is None
    page = parse_page('vllm:num_requests_running{model_name="m"} 1\n', "x")
    assert recognised(page) is VLLM


def test_another_engine_is_data_only() -> None:
    other = EngineNames("other", {"title": "Other", "versions": "1", "prefixes": ["other_"], "counters": {
        "generation_tokens": ["tokens"]}})  # fmt: skip
    page = parse_page("other_tokens_total 5\n", "x")
    engine = recognised(page, {"vllm": VLLM, "other": other})
    assert engine is other
    assert only("other_tokens_total 5\n", other).counters == {"generation_tokens": 5.0}


def test_the_listing() -> None:
    assert engine_listing()["vllm"].startswith("vLLM 0.2.7 to 0.33")


def test_every_name_in_the_matrix_of_releases_is_known(shared_data: Path) -> None:
    lines = (shared_data / "engines" / "vllm_metric_matrix.txt").read_text(encoding="utf-8").splitlines()
    unknown = [line.split()[1] for line in lines if not VLLM.knows(line.split()[1])]
    assert unknown == []


def test_every_scrape_of_every_release_is_read(shared_data: Path) -> None:
    """Scrapes that the releases' own code wrote: every family is known, and the quantities that matter are found."""
    folder = shared_data / "engines" / "generated"
    for path in sorted(folder.glob("vllm-*.prom")):
        page = parse_page(path.read_bytes(), path.name)
        assert recognised(page) is VLLM
        families = [name for name in page.types if name.startswith("vllm:")]
        assert [name for name in families if not VLLM.knows(name)] == [], path.name
        for snapshot in snapshots(page, VLLM):
            counters = {"prompt_tokens", "generation_tokens", "steps", "prefix_hits", "draft_steps"}
            assert counters <= set(snapshot.counters)
            assert {"ttft", "itl", "e2e", "queue", "prefill_time", "step_tokens"} <= set(snapshot.histograms)
            assert {"running", "waiting", "kv_usage"} <= set(snapshot.gauges)
            assert snapshot.damaged == {}


def test_real_scrapes_of_old_releases(shared_data: Path) -> None:
    """The first from V0 0.5.0: one request, 5 tokens in, 7 out. The second was behind Ray."""
    folder = shared_data / "engines"
    (old,) = snapshots(parse_page((folder / "vllm-0.5.0-v0-opt125m.prom").read_bytes(), "old"), VLLM)
    assert old.identity.model_name == "facebook/opt-125m"
    assert (old.counters["prompt_tokens"], old.counters["generation_tokens"]) == (5.0, 7.0)
    assert old.histograms["itl"].count == 6  # an output after the first for each of 7 tokens
    assert old.facts["block_size"] == "16"
    ray = parse_page((folder / "vllm-v0-2024-12-ray2.32-llama70b-fp8-excerpt.prom").read_bytes(), "ray")
    (behind_ray,) = snapshots(ray, VLLM)
    assert behind_ray.identity.model_name == "neuralmagic/Meta-Llama-3.1-70B-Instruct-FP8"
    assert behind_ray.histograms["ttft"].count == 1
