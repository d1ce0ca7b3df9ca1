"""Per-request data of benchmark results, in the shapes that the tools write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from pytest_llmroof.data import load
from pytest_llmroof.telemetry.bench_json import at, number, numbers
from pytest_llmroof.telemetry.client import Request


def per_token(e2e: float | None, ttft: float | None, tokens: float | None) -> float | None:
    """Time per output token after the first; a single token has none."""
    if e2e is None or ttft is None or tokens is None or tokens <= 1:
        return None
    return max(0.0, e2e - ttft) / (tokens - 1)


def in_arrays(run: Mapping[str, Any]) -> tuple[Request, ...]:
    """Of vLLM and SGLang: an array for each quantity, a place in it for each request; failed ones are zeros.

    Without details vLLM may still write ``latencies``, of which nothing tells whether they belong to failed requests:
    they count where there are as many as completed ones.
    """
    latencies = numbers(run["latencies"]) if isinstance(run.get("latencies"), list) else []
    if not isinstance(run.get("ttfts"), list):
        if not latencies or len(latencies) != run.get("completed"):
            return ()
        held = _array(run, "queue_times", len(latencies))
        return tuple(Request(e2e=one, waited=_wait(wait)) for one, wait in zip(latencies, held, strict=True))
    ttfts = numbers(run["ttfts"])
    pieces, errors = _array(run, "itls", len(ttfts)), _array(run, "errors", len(ttfts))
    inputs, outputs = _array(run, "input_lens", len(ttfts)), _array(run, "output_lens", len(ttfts))
    starts, waits = _array(run, "start_times", len(ttfts)), _array(run, "queue_times", len(ttfts))
    whole = latencies if len(latencies) == len(ttfts) else [None] * len(ttfts)
    return tuple(
        _in_place(*place) for place in zip(ttfts, pieces, errors, inputs, outputs, starts, waits, whole, strict=True)
    )  # fmt: skip


def _in_place(
    ttft: float | None,
    pieces: Any,
    error: Any,
    input_tokens: Any,
    output_tokens: Any,
    start: Any,
    wait: Any,
    whole: float | None,
) -> Request:
    started, tokens = number(start), number(output_tokens)
    waited = _wait(wait)
    itls = tuple(value for value in numbers(pieces) if value is not None) if isinstance(pieces, list) else ()
    if error or tokens == 0 or not ttft:
        return Request(started=started, failed=True, waited=waited)
    e2e = whole if whole is not None else ttft + sum(itls) if isinstance(pieces, list) else None
    return Request(
        ttft=ttft,
        e2e=e2e,
        tpot=per_token(e2e, ttft, tokens),
        itls=itls,
        input_tokens=number(input_tokens),
        output_tokens=tokens,
        started=started,
        waited=waited,
    )


def _wait(value: Any) -> float | None:
    waited = number(value)
    return None if waited is None else max(0.0, waited)


def _array(run: Mapping[str, Any], key: str, length: int) -> Sequence[Any]:
    """A key's array; nothing in every place where it is missing or of another length."""
    found = run.get(key)
    return found if isinstance(found, list) and len(found) == length else [None] * length


def of_guidellm(run: Mapping[str, Any]) -> tuple[Request, ...]:
    """GuideLLM: objects by outcome. Its own statistics leave out what began after the measured time; so do these."""
    end = number(run.get("end_time"))
    kept = [one for one in _objects(at(run, "requests.successful")) if _within(one, end)]
    failed = [one for one in _objects(at(run, "requests.errored")) if _within(one, end)]
    return (*map(_guidellm_request, kept), *(Request(started=_start(one), failed=True) for one in failed))


def _guidellm_request(one: Mapping[str, Any]) -> Request:
    ttft, tpot = number(one.get("time_to_first_token_ms")), number(one.get("inter_token_latency_ms"))
    tokens = _first(one, "output_tokens", "output_metrics.total_tokens")
    return Request(
        ttft=ttft / 1e3 if ttft else None,
        e2e=number(one.get("request_latency")),
        tpot=tpot / 1e3 if tpot is not None and tokens is not None and tokens > 1 else None,
        input_tokens=_first(one, "prompt_tokens", "input_metrics.total_tokens"),
        output_tokens=tokens,
        started=_start(one),
        waited=_guidellm_wait(one),
    )


def _guidellm_wait(one: Mapping[str, Any]) -> float | None:
    """From when its schedule meant the request to be sent to when it was; as it states it, else as its times tell."""
    stated, meant = number(one.get("request_dispatch_delay")), number(at(one, "info.timings.targeted_start"))
    sent = number(at(one, "info.timings.request_start"))
    if stated is not None or meant is None or sent is None:
        return stated
    return max(0.0, sent - meant)


def _start(one: Mapping[str, Any]) -> float | None:
    return _first(one, "request_start_time", "start_time")


def _within(one: Mapping[str, Any], end: float | None) -> bool:
    start = _start(one)
    return start is None or end is None or start <= end


def of_latencies(run: Mapping[str, Any]) -> tuple[Request, ...]:
    """Of vLLM's latency benchmark: a time per batch, unless the list is a part of what the mean was taken over."""
    found = [value for value in numbers(run.get("latencies")) if value is not None]
    mean = number(run.get("avg_latency"))
    if not found or mean is None or abs(sum(found) / len(found) - mean) > 1e-6 * mean:
        return ()
    return tuple(Request(e2e=value) for value in found)


def only_completed(kind: str, run: Mapping[str, Any]) -> bool:
    """Whether the records inside a run are of completed requests alone, so that they tell nothing of failed ones."""
    return kind == "latencies" or (kind == "arrays" and not isinstance(run.get("ttfts"), list))


def of_aiperf(records: Iterable[Mapping[str, Any]]) -> tuple[Request, ...]:
    """AIPerf's profile_export.jsonl: every value with its unit; requests of the warm-up are left out."""
    return tuple(
        _aiperf_request(one)
        for one in records
        if at(one, "metadata.benchmark_phase") != "warmup" and at(one, "metadata.phase_kind") != "warmup"
    )  # fmt: skip


def _aiperf_request(one: Mapping[str, Any]) -> Request:
    start = number(at(one, "metadata.request_start_ns"))
    started = start / 1e9 if start is not None else None
    credit = number(at(one, "metadata.credit_issued_ns"))
    waited = max(0.0, start - credit) / 1e9 if start is not None and credit is not None else None
    if one.get("error") or at(one, "metadata.was_cancelled"):
        return Request(started=started, failed=True, waited=waited)
    metrics = one.get("metrics")
    tokens = _valued(metrics, "output_sequence_length")
    ttft, e2e = _seconds(metrics, "time_to_first_token"), _seconds(metrics, "request_latency")
    tpot = _seconds(metrics, "inter_token_latency")
    single = tokens is not None and tokens <= 1
    return Request(
        ttft=ttft,
        e2e=e2e,
        tpot=None if single else tpot if tpot is not None else per_token(e2e, ttft, tokens),
        itls=_many(metrics, "inter_chunk_latency"),
        input_tokens=_valued(metrics, "input_sequence_length"),
        output_tokens=tokens,
        started=started,
        waited=waited,
    )


def _valued(metrics: Any, name: str) -> float | None:
    return number(at(metrics, f"{name}.value"))


def _seconds(metrics: Any, name: str) -> float | None:
    value, scale = _valued(metrics, name), _scale(metrics, name)
    return None if value is None or scale is None else value * scale


def _many(metrics: Any, name: str) -> tuple[float, ...]:
    values, scale = at(metrics, f"{name}.value"), _scale(metrics, name)
    if not isinstance(values, list) or scale is None:
        return ()
    return tuple(value * scale for value in numbers(values) if value is not None)


def _scale(metrics: Any, name: str) -> float | None:
    """The factor from a time's unit to seconds; None of a unit that is missing or not known."""
    factor = load("benchmarks.yaml")["units"].get(str(at(metrics, f"{name}.unit")))
    return None if factor is None else float(factor)


def of_inference_perf(records: Iterable[Mapping[str, Any]]) -> tuple[Request, ...]:
    """inference-perf's per-request report: times on one clock, of every piece that came in."""
    return tuple(map(_inference_perf_request, records))


def _inference_perf_request(one: Mapping[str, Any]) -> Request:
    start, end = number(one.get("start_time")), number(one.get("end_time"))
    # Newer releases hold the answer in an object of its own; without a tokenizer only when its pieces came is known.
    places = ("output_token_times", "response_metrics.output_token_times", "response_metrics.chunk_times")
    stated = [found for place in places if (found := at(one, f"info.{place}"))]
    times = [time for time in numbers(stated[0] if stated else []) if time is not None]
    if one.get("error") or start is None or end is None:
        return Request(started=start, failed=True)
    tokens = _first(one, "info.output_tokens", "info.response_metrics.output_tokens")
    ttft = max(0.0, times[0] - start) if times else None
    return Request(
        ttft=ttft,
        e2e=max(0.0, end - start),
        tpot=per_token(times[-1] - start, ttft, tokens) if times else None,
        itls=tuple(max(0.0, later - earlier) for earlier, later in pairwise(times)),
        input_tokens=_first(one, "info.request_metrics.text.input_tokens", "info.input_tokens"),
        output_tokens=tokens,
        started=start,
    )


def of_trtllm(records: Iterable[Mapping[str, Any]]) -> tuple[Request, ...]:
    """trtllm-bench's --request_json: times on one clock, in nanoseconds."""
    return tuple(map(_trtllm_request, records))


def _trtllm_request(one: Mapping[str, Any]) -> Request:
    start, end = number(one.get("start_timestamp")), number(one.get("end_timestamp"))
    tokens = number(one.get("num_output_tokens", one.get("output_tokens")))
    if start is None or end is None or not tokens or one.get("error_tokens"):
        return Request(started=start / 1e9 if start is not None else None, failed=True)
    first = number(one.get("first_token_timestamp"))  # -1, where nothing told
    e2e = max(0.0, end - start) / 1e9
    ttft = (first - start) / 1e9 if first and first >= start else None
    return Request(
        ttft=ttft,
        e2e=e2e,
        tpot=per_token(e2e, ttft, tokens),
        input_tokens=number(one.get("num_input_tokens")),
        output_tokens=tokens,
        started=start / 1e9,
    )


def of_probe(run: Mapping[str, Any]) -> tuple[Request, ...]:
    """llmroof_probe: for each request when it was sent, and when every piece of it came."""
    return tuple(map(_probe_request, _objects(run.get("results"))))


def _probe_request(one: Mapping[str, Any]) -> Request:
    started = number(one.get("sent"))
    times = [time for time in numbers(one.get("times") or []) if time is not None]
    tokens, held = number(one.get("output_tokens")), [each for each in numbers(one.get("tokens") or []) if each]
    if one.get("failure") or not times or not tokens:
        return Request(started=started, failed=True)
    most = number(one.get("most_output_tokens"))
    single = most is not None and tokens <= 1 < most  # one piece, of one token or of several
    told = len(held) == len(times)
    # Of tokens that came together with the first one nobody knows when each was made: only those behind them count.
    behind = tokens - held[0] if told else tokens - 1
    return Request(
        ttft=times[0],
        e2e=times[-1],
        tpot=(times[-1] - times[0]) / behind if behind > 0 and len(times) > 1 else None,
        itls=tuple(max(0.0, later - earlier) for earlier, later in pairwise(times)),
        input_tokens=number(one.get("input_tokens")),
        output_tokens=None if single else tokens,
        started=started,
        piece_tokens=tuple(held) if told else (),
        most_tokens=most if most and most > tokens else None,
    )


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _first(one: Mapping[str, Any], *paths: str) -> float | None:
    found = (number(at(one, path)) for path in paths)
    return next((value for value in found if value is not None), None)


#: By the name in data/benchmarks.yaml: records inside a run, and files with a record per request.
INSIDE: Final[dict[str, Callable[[Mapping[str, Any]], tuple[Request, ...]]]] = {
    "arrays": in_arrays,
    "guidellm": of_guidellm,
    "latencies": of_latencies,
    "probe": of_probe,
}
APART: Final[dict[str, Callable[[Iterable[Mapping[str, Any]]], tuple[Request, ...]]]] = {
    "aiperf": of_aiperf,
    "inference-perf": of_inference_perf,
    "trtllm-bench": of_trtllm,
}
