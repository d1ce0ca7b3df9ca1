"""SGLang, llama.cpp, TensorRT-LLM, LMDeploy, TGI, Dynamo and vLLM's other forms, read to the figures of their loads."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from engine_pages import (
    START,
    Exposition,
    Page,
    dynamo,
    dynamo_worker,
    llamacpp,
    lmdeploy,
    sglang,
    tgi,
    trtllm,
    write,
)
from vllm_pages import Load, page

from pytest_llmroof.data import load
from pytest_llmroof.errors import ConfigError, SourceError
from pytest_llmroof.telemetry.engine_entries import engine_from_mapping, engine_listing, with_engines
from pytest_llmroof.telemetry.engines import known_engines, recognised
from pytest_llmroof.telemetry.exposition import parse_page
from pytest_llmroof.telemetry.page_engines import snapshots
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.window import Engine, Window


def read(*paths: Path, **options: Any) -> Window:
    return read_window([(path, path.name) for path in paths], **options)


def load_of(folder: Path, page: Page, **options: Any) -> Window:
    return read(*write(folder, page, **options))


def only(window: Window) -> Engine:
    (engine,) = window.engines
    return engine


def values(engine: Engine, gauge: str) -> list[float]:
    return list(engine.gauges[gauge].values)


# SGLang: 2,000 decode steps of 16 sequences; 32,000 / 500 = 64 requests of 1,000 + 501 tokens, one of them in prefill.


@pytest.mark.parametrize("rank", ["9" * 5000, "one", "-1", ""])
def test_a_rank_that_is_no_number_does_not_count_twice(tmp_path: Path, rank: str) -> None:
    def page(done: float, at: float | None) -> str:
        return sglang(done, at, tp_ranks=2).replace('tp_rank="1"', f'tp_rank="{rank}"')

    whole = load_of(tmp_path, partial(sglang, tp_ranks=2)).counter("generation_tokens")
    assert load_of(tmp_path, page).counter("generation_tokens") == whole


def test_sglang_counts_tokens_as_they_are_made(tmp_path: Path) -> None:
    window = load_of(tmp_path, sglang)
    assert (window.kind, window.title, window.model_names) == ("sglang", "SGLang", ("m",))
    counters = only(window).counters
    assert counters["decode_tokens"] == 2000 * 16
    assert counters["generation_tokens"] == 32_000 + 64  # the first token of each request comes from its prefill
    assert counters["prompt_tokens"] == counters["prompt_tokens_computed"] == 64_000
    assert counters["decode_steps"] == 2000  # three quarters with a graph, one without
    assert counters["prefill_steps"] == 64
    assert counters["forward_seconds"] == 36 + 4  # batches that only keep ranks in step are not in there
    assert counters["unloaded_seconds"] == 10
    assert counters["preemptions"] == 4
    assert counters["requests_finished"] == 64
    assert counters["prefix_hits"] == 0
    # Both label values of is_streaming: 48 and 16 requests.
    assert only(window).histograms["ttft"].count == 64
    assert only(window).histograms["itl"].count == 32_000
    assert "tokens_at_finish" in window.conventions
    assert "itl_per_step" not in window.conventions


def test_sglang_never_uses_stale_gauges_and_the_estimator(tmp_path: Path) -> None:
    engine = only(load_of(tmp_path, sglang))
    assert not {name for name in engine.names.values() if "gen_throughput" in name or "estimated" in name}
    assert not any(quantity.startswith("estimated") for quantity in engine.counters)
    # Gauges with gt and le are no buckets.
    assert not any("routing_key" in name for name in engine.names.values())


def test_old_sglang_counts_at_the_finish(tmp_path: Path) -> None:
    """Before 0.5.8: 64 requests finished with 1,000 and 501 tokens."""
    counters = only(load_of(tmp_path, partial(sglang, live=False, hit_rate=0.0))).counters
    assert "decode_tokens" not in counters
    assert counters["generation_tokens"] == 64 * 501
    assert counters["prompt_tokens"] == 64_000
    assert counters["prompt_tokens_cached"] == 0  # no series, in a release that would have it
    # What the engine's own rate contradicts is no 0: a rule may have dropped the counter on the way.
    dropped = only(load_of(tmp_path, partial(sglang, live=False, hit_rate=0.77)))
    assert "prompt_tokens_cached" not in dropped.counters
    assert dropped.counters["prompt_tokens"] == 64_000


def test_ranks_that_repeat_each_other_count_once(tmp_path: Path) -> None:
    """Two data-parallel engines of four tensor ranks: ranks 0 to 3 and 4 to 7, of which 0 and 4 count."""
    window = load_of(tmp_path, partial(sglang, dp_ranks=2, tp_ranks=4))
    assert [engine.identity for engine in window.engines] == ["engine 0", "engine 1"]
    for engine in window.engines:
        assert engine.counters["decode_tokens"] == 32_000
        assert engine.counters["decode_steps"] == 2000
        # Latencies and finished requests are counted for the whole server: in equal parts.
        assert engine.histograms["ttft"].count == 64
        assert engine.counters["finished_generation_tokens"] == 64 * 501
    assert window.counter("generation_tokens") == 2 * 32_064
    assert window.counter("prompt_tokens") == 2 * 64_000


def test_cached_tokens_by_source_and_their_total_are_one(tmp_path: Path) -> None:
    """200 of each prompt's 1,000 tokens: 120 from the device, 80 from the host, and `total` says 200 again."""
    counters = only(load_of(tmp_path, partial(sglang, hits=200))).counters
    assert counters["prompt_tokens_cached"] == pytest.approx(64 * 200)
    assert counters["prefix_hits"] == 64 * 200
    assert counters["prompt_tokens_computed"] == 64 * 800
    assert counters["prompt_tokens"] == counters["prefix_queries"] == 64_000


def test_cached_tokens_of_unknown_source() -> None:
    text = 'sglang:cached_tokens_total{cache_source="total",model_name="m"} 70\n'
    (snapshot,) = snapshots(parse_page(text, "x"), known_engines()["sglang"])
    assert snapshot.counters["prompt_tokens_cached"] == 70


def test_early_builds_have_the_label_name() -> None:
    page = parse_page('sglang:num_running_reqs{name="gemma"} 1\n', "x")
    engine = recognised(page)
    assert engine is known_engines()["sglang"]
    (snapshot,) = snapshots(page, engine)
    assert snapshot.identity.model_name == "gemma"


def test_verify_calls_tell_the_accepted_tokens(tmp_path: Path) -> None:
    """32,000 steps of sequences with two accepted drafts each: 96,000 decoded tokens of 192 requests."""
    counters = only(load_of(tmp_path, partial(sglang, accepted=2, verify_calls=32_000))).counters
    assert counters["draft_steps"] == 32_000
    # Of 192 x 501 tokens 192 came from prefill and 32,000 from the verify steps themselves.
    assert counters["accepted_tokens"] == 192 * 501 - 192 - 32_000 == 64_000


def test_series_that_appear_with_the_first_request_began_at_zero(tmp_path: Path) -> None:
    """A fresh server exposes little more than the requests it serves, and nothing that is read."""
    before, after = tmp_path / "before.prom", tmp_path / "after.prom"
    before.write_text(
        f"# scraped_at {START}\n# TYPE sglang:http_requests_active gauge\n"
        'sglang:http_requests_active{endpoint="/metrics",method="GET"} 1.0\n'
    )
    after.write_text(sglang(1.0, START + 60))
    window = read(before, after)
    assert window.counter("decode_tokens") == 32_000 * 1.25  # since the start, warm-up included
    assert window.duration_seconds == 60


def test_the_collector_of_a_real_release(data: Path) -> None:
    """40 requests of 1,024 prompt and 128 generated tokens were fed: 45 + 9 - 5 - 1 forward seconds, 4 idle."""
    folder = data / "sglang-collector"
    engine = only(read(folder / "multiprocess-before.prom", folder / "multiprocess-after.prom"))
    assert engine.model_name == "tiny-llama"
    assert engine.counters["finished_prompt_tokens"] == engine.counters["prompt_tokens_computed"] == 40 * 1024
    assert engine.counters["finished_generation_tokens"] == engine.counters["decode_tokens"] == 40 * 128
    assert engine.counters["forward_seconds"] == 48
    assert engine.counters["unloaded_seconds"] == 4
    assert engine.histograms["ttft"].count == 40
    assert engine.histograms["itl"].count == 640
    assert values(engine, "running") == [8, 8]
    assert values(engine, "kv_usage") == [0.42, 0.42]


# llama.cpp


def test_llamacpp_counts_steps_and_seconds_of_slots(data: Path) -> None:
    """24 requests of 200 tokens in four slots: 4,800 tokens in 1,299 - 54 calls, 10.5817 - 1.99271 s of slots."""
    folder = data / "llamacpp-cpu"
    window = read(folder / "after-prefill.prom", folder / "after-decode.prom")
    engine = only(window)
    assert (window.kind, engine.model_name, engine.histograms) == ("llama.cpp", None, {})
    assert engine.counters["generation_tokens"] == 24 * 200
    assert engine.counters["steps"] == 1245
    assert engine.counters["decode_seconds"] == pytest.approx(8.58899)
    assert engine.counters["prompt_tokens"] == engine.counters["prompt_tokens_computed"] == 24 * 16
    # The mean of busy slots is one since the start: 3.84296 x 1,299 - 3.55556 x 54 = 4,800.
    assert engine.counters["step_sequences"] == pytest.approx(4800, abs=0.01)
    assert values(engine, "longest_sequence") == [607, 607]  # declared a counter, and none
    assert "n_tokens_max" not in engine.counters
    assert "draft_steps" not in engine.counters  # registered and never fed


def test_llamacpp_counts_tokens_when_requests_end(data: Path) -> None:
    """On the way 517 steps held 1,980 sequences, and only 1,600 tokens were counted: four requests still ran."""
    folder = data / "llamacpp-cpu"
    engine = only(read(folder / "after-prefill.prom", folder / "during-decode.prom"))
    assert engine.counters["generation_tokens"] == 1600
    assert engine.counters["step_sequences"] == pytest.approx(1980, abs=0.01)
    assert values(engine, "running") == [0, 4]


# TensorRT-LLM, LMDeploy, TGI


@pytest.mark.parametrize("prefix", ["trtllm_", "trtllm:"])
def test_tensorrt_llm(tmp_path: Path, prefix: str) -> None:
    """100 requests of 500 + 201 tokens, 100 of each prompt cached; three more failed."""
    window = load_of(tmp_path, partial(trtllm, prefix=prefix))
    counters = only(window).counters
    assert window.kind == "trtllm"
    assert (counters["prompt_tokens"], counters["generation_tokens"]) == (50_000, 20_100)
    assert counters["prompt_tokens_cached"] == 10_000
    assert (counters["requests_finished"], counters["requests_errored"]) == (103, 3)
    histograms = only(window).histograms
    assert "itl" not in histograms
    assert histograms["tpot"].mean == pytest.approx(0.02)  # one per request, whatever its name says
    assert histograms["decode_time"].total == pytest.approx(400)
    assert values(only(window), "kv_usage") == [0.6, 0.6]


def test_lmdeploy_counts_outputs_not_steps(tmp_path: Path) -> None:
    window = load_of(tmp_path, lmdeploy)
    engine = only(window)
    assert (engine.identity, engine.model_name) == ("engine 0", "m")
    assert "steps" not in engine.counters  # its iteration_tokens_total is fed once per output of a request
    assert engine.counters["generation_tokens"] == 50 * 101
    assert engine.counters["requests_finished"] == 48 + 2
    assert engine.histograms["itl"].mean == pytest.approx(0.02)  # iter_token_latency
    assert engine.counters["prompt_tokens_cached"] == 50 * 60
    assert "itl_per_step" in window.conventions


def test_lmdeploy_s_own_logger(data: Path) -> None:
    """30 requests of 1,024 and 64 tokens were fed, of which 27 count as succeeded."""
    folder = data / "lmdeploy-collector"
    engine = only(read(folder / "before.prom", folder / "after.prom"))
    assert (engine.counters["prompt_tokens"], engine.counters["generation_tokens"]) == (30 * 1024, 30 * 64)
    assert engine.histograms["itl"].count == 30 * 63
    assert engine.counters["requests_finished"] == 27
    assert values(engine, "kv_usage") == [0.4, 0.4]


def test_tgi_tells_its_steps(tmp_path: Path) -> None:
    """1,000 steps of 8 sequences make 100 tokens of each of 80 requests; the first comes from one of 80 prefills."""
    counters = only(load_of(tmp_path, tgi)).counters
    assert (counters["decode_steps"], counters["decode_step_seconds"]) == (1000, 25.0)
    assert (counters["prefill_steps"], counters["steps"], counters["step_seconds"]) == (80, 1080, 33.0)
    assert (counters["prompt_tokens"], counters["generation_tokens"]) == (80 * 400, 80 * 101)
    assert counters["requests_finished"] == 79 + 1


# Dynamo


def dynamo_pages(folder: Path, engine: Page) -> list[Path]:
    workers = write(folder, lambda done, at: dynamo_worker(engine(done, at)), name="worker-")
    return [*write(folder, dynamo, name="frontend-"), *workers]


def test_a_frontend_and_its_engine_are_one_window(tmp_path: Path) -> None:
    """The engine's own figures, the client's time to first token and nothing twice."""
    loaded = Load(itl=0.02, batch=10, output=101, model="m", requests=100)
    window = read(*dynamo_pages(tmp_path, lambda done, at: page(loaded, done, at)))
    assert window.kind == "vllm"
    engine = only(window)
    assert engine.counters["generation_tokens"] == loaded.intervals + 100  # not the frontend's 10,100
    assert engine.counters["requests_finished"] == 100
    assert engine.histograms["itl"].mean == pytest.approx(0.02)
    assert engine.histograms["ttft"].mean == pytest.approx(0.7)  # as the frontend saw it
    assert engine.histograms["e2e"].mean == pytest.approx(4.0)
    assert engine.names["ttft"] == "dynamo_frontend_time_to_first_token_seconds"
    assert values(engine, "kv_usage") == [0.4, 0.4]  # not the worker's 0.123
    assert [source.kind for source in window.sources] == ["vllm", "vllm", "dynamo", "dynamo"]
    assert window.unread == ()


def test_a_frontend_alone_is_read_as_what_it_is(tmp_path: Path) -> None:
    window = load_of(tmp_path, dynamo)
    counters = only(window).counters
    assert window.kind == "dynamo"
    assert (counters["prompt_tokens"], counters["generation_tokens"]) == (70_000, 10_100)
    assert (counters["requests_finished"], counters["requests_errored"]) == (100, 4)
    assert counters["prompt_tokens_cached"] == 7_000


def test_two_workers_share_the_frontend_s_figures(tmp_path: Path) -> None:
    frontend = write(tmp_path / "f", dynamo)
    folders = []
    for worker in ("1", "2"):
        loaded = Load(itl=0.02, batch=10, output=101, model="M", requests=50)
        write(tmp_path / worker, lambda done, at, loaded=loaded: page(loaded, done, at))  # type: ignore[misc]  # a default is not inferred
        folders.append(tmp_path / worker)
    window = read(*folders, *frontend)
    assert len(window.engines) == 2
    ttft = window.histogram("ttft")
    assert ttft is not None
    assert ttft.count == 100
    assert ttft.mean == pytest.approx(0.7)  # its model in lower case
    assert window.counter("requests_finished") == 100


def test_an_engine_of_another_model_takes_nothing_from_the_frontend(tmp_path: Path) -> None:
    loaded = Load(itl=0.02, batch=10, output=101, model="other", requests=100)
    window = read(*dynamo_pages(tmp_path, lambda done, at: page(loaded, done, at)))
    assert only(window).names["ttft"].startswith("vllm:")


def test_a_frontend_in_one_scrape_is_left_out_and_said(tmp_path: Path) -> None:
    loaded = Load(itl=0.02, batch=10, output=101, model="m", requests=100)
    frontend, _, *workers = dynamo_pages(tmp_path, lambda done, at: page(loaded, done, at))
    window = read(frontend, *workers)
    assert only(window).names["ttft"].startswith("vllm:")
    assert any("Dynamo frontend is in one scrape only" in note for note in window.notes)


# vLLM in other clothes


def openmetrics(text: str) -> str:
    """As vLLM's Rust frontend writes it: the model first, no `_total` in TYPE lines, exemplars, an end."""
    lines = []
    for line in text.splitlines():
        name, brace, rest = line.partition('{engine="0",model_name="')
        if brace:
            model, _, behind = rest.partition('"')
            line = f'{name}{{model_name="{model}",engine="0"{behind}'
        if "_bucket{" in line:
            line += ' # {trace_id="abc"} 0.5 1795975810.5'
        lines.append(line)
    return "\n".join([*lines, "# EOF", ""])


def test_the_rust_frontend(tmp_path: Path) -> None:
    loaded = Load(itl=0.02, batch=10, output=101, requests=100)
    plain = load_of(tmp_path / "python", lambda done, at: page(loaded, done, at))
    rust = load_of(tmp_path / "rust", lambda done, at: openmetrics(page(loaded, done, at)))
    assert "model_name" in (tmp_path / "rust" / "after.prom").read_text().partition("{")[2][:12]
    assert only(rust).counters == only(plain).counters
    assert only(rust).histograms == only(plain).histograms
    assert only(rust).identity == only(plain).identity


def test_ray_renames_and_adds_labels(tmp_path: Path) -> None:
    loaded = Load(itl=0.02, batch=10, output=101, requests=100)

    def behind_ray(done: float, at: float | None) -> str:
        text = page(loaded, done, at).replace("vllm:", "ray_vllm_")
        return text.replace('{engine="0"', '{ReplicaId="r1",SessionName="s",engine="0"')

    window = load_of(tmp_path, behind_ray)
    plain = load_of(tmp_path / "plain", lambda done, at: page(loaded, done, at))
    assert only(window).counters == only(plain).counters
    assert "ReplicaId r1" in only(window).identity


def test_processes_of_one_server_repeat_gauges(tmp_path: Path) -> None:
    """Multiprocess mode: no start time, and a gauge per process."""
    loaded = Load(itl=0.02, batch=10, output=101, requests=100, running=5)

    def multiprocess(done: float, at: float | None) -> str:
        text = page(loaded, done, at)
        line = next(one for one in text.splitlines() if one.startswith("vllm:num_requests_running{"))
        pids = "\n".join(line.replace('{engine="0"', f'{{engine="0",pid="{pid}"') for pid in (7, 8))
        return text.replace(line, pids)

    engine = only(load_of(tmp_path, multiprocess))
    assert values(engine, "running") == [5, 5]
    assert engine.counters["requests_finished"] == 100


# Entries


def test_every_quantity_of_the_catalogue_is_canonical() -> None:
    for key, entry in load("engines.yaml").items():
        assert engine_from_mapping(key, entry).title


def test_the_list_says_what_each_engine_gives() -> None:
    listing = engine_listing()
    assert listing["llama.cpp"].startswith("llama.cpp ")
    assert "cannot tell ttft, tpot, itl, e2e, queue" in listing["llama.cpp"]
    assert "idle time" in listing["sglang"]
    assert "idle time" not in listing["vllm"]


def test_one_line_renames_a_metric() -> None:
    """What a fork calls its tokens, beside what the engine does."""
    entry = {**load("engines.yaml")["sglang"]}
    entry["counters"] = {**entry["counters"], "decode_tokens": ["made_tokens"]}
    engines = with_engines({"sglang": entry})
    (snapshot,) = snapshots(parse_page("sglang:made_tokens_total 9\n", "x"), engines["sglang"])
    assert snapshot.counters == {"decode_tokens": 9.0}


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"prefixes": ["x_"], "counter": {}}, "unknown key 'counter' (did you mean 'counters'?)"),
        ({"counters": {"steps": ["s"]}}, "prefixes"),
        ({"prefixes": ["x_"]}, "counters, histograms or gauges are needed"),
        ({"prefixes": ["x_"], "counters": {"generated_tokens": ["a"]}}, "did you mean 'generation_tokens'"),
        ({"prefixes": ["x_"], "gauges": {"running": "a"}}, "a list of names is needed"),
        ({"prefixes": ["x_"], "gauges": {"running": [{"nam": "a"}]}}, "unknown key 'nam'"),
        ({"prefixes": ["x_"], "gauges": {"running": [3]}}, "a name is a text"),
        ({"prefixes": ["x_"], "labels": {"model": "m"}, "gauges": {"running": ["a"]}}, "a list of labels"),
        ({"prefixes": ["x_"], "counters": ["a"]}, "a mapping of quantities"),
    ],
)
def test_a_wrong_entry_says_what_is_wrong(entry: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        engine_from_mapping("lab", entry)
    assert problem in str(error.value)
    assert "'lab'" in str(error.value)


# Damaged and cut pages


@pytest.mark.parametrize("engine", [sglang, llamacpp, trtllm, lmdeploy, tgi, dynamo])
def test_a_cut_page_is_refused_with_its_line(tmp_path: Path, engine: Page) -> None:
    before, after = write(tmp_path, engine)
    text = after.read_text()
    after.write_text(text[: text.rindex("{" if "{" in text else " ") + 1])
    with pytest.raises(SourceError, match=r"after\.prom:\d+"):
        read(before, after)


@pytest.mark.parametrize("engine", [sglang, llamacpp, trtllm, lmdeploy, tgi, dynamo])
def test_an_excerpt_gives_what_it_holds(tmp_path: Path, engine: Page) -> None:
    """Every second family only, without TYPE lines: fewer quantities, and no other figures."""
    whole = only(load_of(tmp_path / "whole", engine))

    def excerpt(done: float, at: float | None) -> str:
        lines = engine(done, at).splitlines()
        families = list(dict.fromkeys(line.split()[2] for line in lines if line.startswith("# TYPE")))
        kept = set(families[::2])
        body = [line for line in lines if not line.startswith("#") and line.partition("{")[0].split()[0]]
        inside = [line for line in body if any(line.startswith(family) for family in kept)]
        return "\n".join([*(line for line in lines if line.startswith("# scraped_at")), *inside]) + "\n"

    part = only(load_of(tmp_path / "part", excerpt))
    assert part.counters
    derived = {"prompt_tokens", "generation_tokens", "prefix_queries", "requests_finished", "requests_errored"}
    for quantity, value in part.counters.items():
        if quantity not in derived and quantity in whole.counters:
            assert value == pytest.approx(whole.counters[quantity]), quantity


def test_restarts_are_seen_without_a_start_time(tmp_path: Path) -> None:
    before, after = write(tmp_path, llamacpp)
    after.write_text(llamacpp(0.0, START + 60).replace("n_decode_total 100.0", "n_decode_total 3.0"))
    before.write_text(llamacpp(1.0, START))
    with pytest.raises(SourceError, match="restarted"):
        read(before, after)


def test_a_page_of_nothing_but_a_prefix_names_its_engine(tmp_path: Path) -> None:
    """TGI before its first request: a queue, and nothing else."""
    assert recognised(parse_page(tgi(0.0, None), "x")) is known_engines()["tgi"]
    assert recognised(parse_page(Exposition("tgi_").gauge("batch_max_total_tokens", 1.0).text, "x")) is not None
    assert recognised(parse_page("tgif_total 1\n", "x")) is None


# Files that are not ours


def test_names_of_every_release_of_sglang_are_known(shared_data: Path) -> None:
    lines = (shared_data / "engines" / "sglang_metric_matrix.txt").read_text(encoding="utf-8").splitlines()
    names = [line.split()[0] for line in lines]
    assert [name for name in names if not known_engines()["sglang"].knows(name)] == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sglang/collector-after.prom", "sglang"),
        ("sglang/collector-multiproc-after.prom", "sglang"),
        ("lmdeploy/collector-after.prom", "lmdeploy"),
        ("llamacpp/after-decode.prom", "llama.cpp"),
    ],
)
def test_every_family_of_a_capture_is_known(shared_data: Path, name: str, kind: str) -> None:
    page = parse_page((shared_data / "captures" / name).read_bytes(), name)
    engine = recognised(page)
    assert engine is known_engines()[kind]
    families = [family for family in page.types if family.startswith(engine.prefixes)]
    assert [family for family in families if not engine.knows(family)] == []


@pytest.mark.parametrize(
    ("name", "generated", "seconds", "prompt"),
    [
        ("llamacpp-b10298-excerpt.prom", 7_637, 160.979, 73_163),
        ("llamacpp-ik_llama-2025-08.prom", 3_469, 3_544.27, 6_886),
        ("llamacpp-recent-n_tokens_max-excerpt.prom", 21_585, 1_135.67, 152_103),
    ],
)
def test_excerpts_of_real_llama_servers(
    shared_data: Path, name: str, generated: float, seconds: float, prompt: float
) -> None:
    counters = only(read(shared_data / "engines" / name)).counters
    assert counters["generation_tokens"] == generated
    assert counters["decode_seconds"] == pytest.approx(seconds)
    assert counters["prompt_tokens"] == prompt


def test_excerpts_of_real_sglang_servers(shared_data: Path) -> None:
    old = only(read(shared_data / "engines" / "sglang-0.5.1-issue13485-excerpt.prom"))
    assert (old.model_name, values(old, "running"), old.counters) == ("Qwen-32B", [1.0], {})
    new = only(read(shared_data / "engines" / "sglang-0.5.18plus-qwen3.8-flash-next-head.prom"))
    assert new.histograms["prefill_time"].count == 33_247
    assert new.histograms["prefill_time"].total == pytest.approx(5270.844)  # of one stage, not of all
