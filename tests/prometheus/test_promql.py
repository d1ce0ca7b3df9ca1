"""Writing PromQL, and telling servers apart: without any server."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmroof.errors import ConfigError
from pytest_llmroof.telemetry.doubles import without_doubles
from pytest_llmroof.telemetry.engines import known_engines
from pytest_llmroof.telemetry.fleet import Server, interval_of, key_of, own_labels, servers_of
from pytest_llmroof.telemetry.promapi import Row
from pytest_llmroof.telemetry.promql import matchers, milliseconds, named, prefixed
from pytest_llmroof.telemetry.question import end_of

VLLM = known_engines()["vllm"]


@pytest.mark.parametrize(("written", "expected"), [
    ('namespace="prod"', 'namespace="prod"'),
    ('{namespace="prod", pod=~"llm-.*"}', 'namespace="prod",pod=~"llm-.*"'),
    ("job!='a,b', x!~`c\\d`,", "job!='a,b',x!~`c\\d`"),
    ('a="}", b="\\"q\\""', 'a="}",b="\\"q\\""'),
    ('"dotted.label"="x"', '"dotted.label"="x"'),
    ("", ""),
    (" { } ", ""),
])  # fmt: skip
def test_matchers(written: str, expected: str) -> None:
    assert matchers(written) == expected


@pytest.mark.parametrize("written", [
    "prod", "a=b", 'a="b" c="d"', 'a=="b"', 'up{a="b"}', 'a="b"}', '{a="b"', 'a="b" or c="d"', 'a="b"} or {c="d"',
    'a="b', '1a="b"', 'a="b"[5m]',
])  # fmt: skip
def test_what_is_no_matcher(written: str) -> None:
    with pytest.raises(ConfigError, match="expected label matchers"):
        matchers(written)


@given(st.text(max_size=40))
def test_no_text_breaks_out_of_a_selector(text: str) -> None:
    """Whatever is taken for matchers has its braces in quotes only."""
    try:
        found = matchers(text)
    except ConfigError:
        return
    quoted, outside = "", []
    at = 0
    while at < len(found):
        letter = found[at]
        if quoted:
            at += letter == "\\" and quoted != "`"
            quoted = "" if letter == quoted else quoted
        elif letter in "\"'`":
            quoted = letter
        else:
            outside.append(letter)
        at += 1
    assert not quoted
    assert not set("{}[]()") & set(outside)


def test_selectors() -> None:
    assert named(["vllm:a_total", "b"], 'x="y"') == '{__name__=~"vllm:a_total|b",x="y"}'
    assert named(["a.b"], "") == '{__name__=~"a\\\\.b"}'
    assert prefixed(["vllm:", "tgi_"], "") == '{__name__=~"(?:vllm:|tgi_).+"}'
    assert prefixed(["a.b("], "") == r'{__name__=~"(?:a\\.b\\().+"}'  # somebody's own engine
    assert milliseconds(0.25) == "250ms"


def test_ends() -> None:
    now = 1_764_417_600.0  # 2025-11-29T12:00:00Z
    assert end_of("now", lambda: now) == now
    assert end_of("now-24h", lambda: now) == now - 86_400
    assert end_of("1764417600.5") == now + 0.5
    assert end_of("2025-11-29T12:00:00Z") == now
    assert end_of("2025-11-29T13:00:00+01:00") == now


def test_labels_of_the_server_and_of_the_metric() -> None:
    labels = {
        "__name__": "vllm:request_success_total", "namespace": "prod", "pod": "a", "job": "x", "model_name": "blue",
        "exported_model_name": "org/m", "engine": "0", "finished_reason": "stop",
    }  # fmt: skip
    assert key_of(labels) == ((("namespace", "prod"), ("pod", "a")), (("job", "x"),))
    assert own_labels(labels, VLLM) == {"model_name": "org/m", "engine": "0", "finished_reason": "stop"}


def row(name: str, values: Mapping[float, float], **labels: str) -> Row:
    return Row({"__name__": name, **labels}, list(values), list(values.values()))


def counter(values: Mapping[float, float], **labels: str) -> Row:
    return row("vllm:generation_tokens_total", values, model_name="m", **labels)


def test_names_are_the_shortest_that_tell_servers_apart() -> None:
    def names(*labels: dict[str, str]) -> list[str]:
        return [server.name for server in servers_of([counter({0.0: 1.0}, **each) for each in labels], VLLM)]

    assert names({"pod": "a", "instance": "1:8"}, {"pod": "b", "instance": "2:8"}) == ["a", "b"]
    assert names({"pod": "a", "instance": "1:8"}, {"pod": "a", "instance": "1:9"}) == ["1:8", "1:9"]
    assert names({"cluster": "x", "pod": "a"}, {"cluster": "y", "pod": "a"}) == [
        "cluster x, pod a", "cluster y, pod a",
    ]  # fmt: skip
    assert names({}) == ["the only server"]


def test_a_restart_is_seen_from_its_start_or_from_counters() -> None:
    start = row("process_start_time_seconds", {0.0: -50.0, 10.0: -50.0, 20.0: 15.0}, pod="a")
    (server,) = servers_of([counter({0.0: 5.0, 10.0: 6.0, 20.0: 9.0}, pod="a"), start], VLLM)
    assert server.restarts() == [(10.0, 20.0, "its process started at -50 before, at 15 after")]
    assert server.longest_run() == (0.0, 10.0)
    (server,) = servers_of([counter({0.0: 5.0, 10.0: 1.0, 20.0: 9.0, 30.0: 10.0}, pod="a")], VLLM)
    assert server.restarts() == [(0.0, 10.0, "vllm:generation_tokens_total went down")]
    assert server.longest_run() == (10.0, 30.0)
    # 0 at first, then 8 from 1 to 9, and 1 more.
    assert server.progress([0.0, 10.0, 20.0, 30.0]) == [0.0, 0.0, 8.0, 9.0]


def test_numbers_that_are_none_are_no_samples() -> None:
    (server,) = servers_of([counter({0.0: 5.0, 10.0: math.nan, 20.0: 7.0}, pod="a")], VLLM)
    assert server.times == [0.0, 10.0, 20.0]  # scraped all the same
    assert not server.restarts()
    assert [server.total(time) for time in server.times] == [5.0, 5.0, 7.0]
    assert not servers_of([counter({0.0: math.nan}, pod="a")], VLLM)


def double(**start: float) -> list[Server]:
    rows = [counter({float(at): 100.0 + at for at in range(0, 100, 10)}, pod="a", job="x")]
    rows.append(counter({at + 3.0: 103.0 + at for at in range(0, 90, 10)}, pod="a", job="y"))
    for job, at in start.items():
        rows.append(row("process_start_time_seconds", {0.0: at}, pod="a", job=job))
    return servers_of(rows, VLLM)


def test_a_server_behind_two_jobs() -> None:
    said: list[str] = []
    assert [server.key[1] for server in without_doubles(double(), said)] == [(("job", "x"),)]
    assert said == ["1 of 2 servers are there twice, by another job: each is counted once"]
    assert len(without_doubles(double(x=1.0, y=1.5), [])) == 1
    # Two processes are two servers, whatever they did.
    assert [server.name for server in without_doubles(double(x=1.0, y=60.0), [])] == ["pod a, job x", "pod a, job y"]


def test_two_servers_that_did_different_things() -> None:
    rows = [
        counter({float(at): 100.0 + at for at in range(0, 100, 10)}, job="x"),
        counter({float(at): 900.0 + at for at in range(0, 100, 10)}, job="y"),
    ]
    assert len(without_doubles(servers_of(rows, VLLM), [])) == 2


def test_the_interval_is_the_usual_pause() -> None:
    (server,) = servers_of([counter({0.0: 1.0, 15.0: 1.0, 30.0: 1.0, 300.0: 1.0}, pod="a")], VLLM)
    assert interval_of([server]) == 15.0
    assert interval_of([]) == 0.0


def test_ranks_that_repeat_each_other_count_once() -> None:
    """SGLang's tensor ranks each say how many requests run: 7, not 14."""
    sglang = known_engines()["sglang"]
    rows = [
        row("sglang:num_running_reqs", {0.0: 7.0, 10.0: 7.0}, pod="a", model_name="m", tp_rank=rank, pp_rank="0")
        for rank in ("4", "5")
    ]
    (server,) = servers_of(rows, sglang)
    ((_, samples),) = server.gauges.items()
    assert len(samples) == 1
    assert samples[0][2].values == [7.0, 7.0]
