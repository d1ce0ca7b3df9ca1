"""llmroof_probe in a run of pytest: its window is gated, recorded and replayed like any other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from completions import Server, cut_after, silent, too_often

Serve = Callable[[Server], Server]
D, P = "test_d::decode", "test_p::prefill"


def test_client_and_server_count_the_same(project: Any, serve: Serve) -> None:
    """Three sequences at a time, two rounds of 40 tokens: 6 x 40 = 240 tokens, of which 6 x 39 = 234 decoded."""
    server = serve(Server())
    project.test(
        """
        def test_d(llmroof_probe):
            window = llmroof_probe.decode(batch=3, prompt_tokens=200, output_tokens=40, rounds=2)
            window.check("errors.rate <= 0", "output.tokens_per_second > 0")
            assert window["decode.batch"].value == 3
            assert window["itl.mean"].samples == 234
        """,
        server,
    )
    run = project.run("--llmroof-record=rec")
    assert run.rc == 0, run.text
    window = run.windows[D]
    assert window["phase"] == "decode"
    assert [source["kind"] for source in window["sources"]] == ["vllm", "llmroof-probe"]
    ttft, itl = window["measurements"]["ttft.mean"], window["measurements"]["itl.mean"]
    assert (ttft["samples"], ttft["other"]["samples"]) == (6, 6)
    assert (itl["samples"], itl["other"]["samples"]) == (234, 234)
    # The client sends before the server sees it, and reads after the server wrote.
    assert ttft["value"] >= ttft["other"]["value"] >= server.first_seconds
    assert itl["value"] >= server.step_seconds
    (page,) = Path(project.path, "rec", "test_it", "test_d-decode").glob("probe.json")
    document = json.loads(page.read_text())
    assert (document["completed"], document["output_tokens"], document["input_tokens"]) == (6, 240, 1200)
    # The warm-up is three requests of 16 tokens, before the window; the trial is one of one token.
    assert [body["max_tokens"] for body in server.asked] == [1, *[16] * 3, *[40] * 6]
    assert server.most == 3
    assert len({tuple(body["prompt"]) for body in server.load}) == 9


def test_a_probe_without_any_mark_is_a_gated_run(project: Any, serve: Serve) -> None:
    """What is asked of gates on the command line is not missed: the probe's test is one of ours."""
    server = serve(Server())
    (project.path / "test_bare.py").write_text(
        "def test_d(llmroof_probe):\n"
        f"    window = llmroof_probe.decode(url={server.url!r}, prompt_tokens=50, output_tokens=20)\n"
        "    assert window['itl.mean'].value > 0\n"
    )
    run = project.run("--llmroof-gpu=h100")
    assert run.rc == 0, run.text


def test_gates_of_marks_are_judged_on_the_probes_window(project: Any, serve: Serve) -> None:
    server = serve(Server())
    project.test(
        """
        @pytest.mark.llmroof_gate("ttft.mean <= 20s", "decode.batch >= 2")
        def test_d(llmroof_probe):
            llmroof_probe.decode(batch=2, output_tokens=32)

        @pytest.mark.llmroof_gate("ttft.mean <= 1us", id="REL-3")
        def test_p(llmroof_probe):
            llmroof_probe.prefill(prompt_tokens=500, requests=3)
        """,
        server,
    )
    run = project.run()
    assert run.rc == 1
    assert [gate["verdict"] for gate in run.windows[D]["gates"]] == ["pass", "pass"]
    assert run.gate(P)["verdict"] == "fail"
    assert "expected ttft.mean <= 1 us" in run.one_line.replace("µ", "u") or "REL-3" in run.one_line
    assert "Traceback" not in run.text
    # Only the probe's own window scraped the server.
    assert sum(path == "/metrics" for path, _ in server.seen) < 20


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("llmroof_probe.decode(output_tokens=4); llmroof_probe.decode(output_tokens=4)", "the test made 2 probes"),
        ("pass", "the test asked for llmroof_probe, and made no load with it"),
    ],
)
def test_gates_of_marks_need_one_probe(project: Any, serve: Serve, body: str, reason: str) -> None:
    project.test(
        f"""
        @pytest.mark.llmroof_gate("ttft.mean <= 20s")
        def test_d(llmroof_probe):
            {body}
        """,
        serve(Server()),
    )
    run = project.run()
    assert run.rc == 1
    assert reason in run.one_line


def test_a_body_that_fails_is_not_judged(project: Any, serve: Serve) -> None:
    project.test(
        """
        @pytest.mark.llmroof_gate("ttft.mean <= 1us")
        def test_d(llmroof_probe):
            llmroof_probe.decode(output_tokens=4)
            assert 0, "own failure"
        """,
        serve(Server()),
    )
    run = project.run()
    assert "own failure" in run.text
    assert [gate["verdict"] for window in run.windows.values() for gate in window["gates"]] == ["not judged"]


def test_without_metrics_the_client_measures_what_physics_allow(project: Any, serve: Serve) -> None:
    server = serve(Server(metrics=False, step_seconds=0.02, first_seconds=0.1))
    project.test(
        """
        def test_d(llmroof_probe):
            window = llmroof_probe.decode(batch=2, prompt_tokens=100, output_tokens=30)
            window.check("decode.mbu > 1%", "decode.batch >= 2")
            window.check("kv_cache.usage.max <= 95%")

        def test_p(llmroof_probe):
            llmroof_probe.prefill(prompt_tokens=1000, requests=3).check("prefill.mfu > 0.1%")
        """,
        server,
    )
    run = project.run()
    window = run.windows[D]
    assert [gate["verdict"] for gate in window["gates"]] == ["pass", "pass", "no data"]
    # (15 009 849 344 B of weights + 2 x ~115 x 131 072 B) / (3.35 TB/s x T), T being 20 ms and a little.
    step = run.value(D, "decode.step_time")
    assert step >= 0.0199
    context = run.value(D, "decode.context")
    assert 100 < context < 130
    expected = (2 * (8_030_261_248 - 525_336_576) + 2 * context * 131_072) / (3.35e12 * step)
    assert run.value(D, "decode.mbu") == pytest.approx(expected, rel=1e-3)
    assert "only the client's view" in json.dumps(window)
    assert run.gate(P)["verdict"] == "pass"


def test_metrics_are_looked_for_beside_the_api(project: Any, serve: Serve) -> None:
    server = serve(Server())
    (project.path / "test_it.py").write_text(
        f"def test_d(llmroof_probe):\n    window = llmroof_probe.decode(output_tokens=8, url={server.address!r})\n"
        "    assert window['itl.mean'].source.startswith('vllm:')\n"
    )
    result = project.pytester.runpytest_inprocess("-W", "error", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)


def test_a_server_that_is_down_is_no_data(project: Any) -> None:
    server = Server(port=9)
    project.test(
        """
        def test_d(llmroof_probe):
            llmroof_probe.decode().check("ttft.mean <= 1s")
        """,
        server,
    )
    run = project.run()
    assert run.rc == 1
    assert "NOT MEASURED" in run.text
    assert run.gate(D)["reason"].startswith("connection refused at http://127.0.0.1:9/v1; ")


def test_a_recording_replays_to_the_same_figures(project: Any, serve: Serve) -> None:
    for number, server in enumerate((serve(Server()), serve(Server(metrics=False)))):
        project.test(
            """
            def test_d(llmroof_probe):
                llmroof_probe.decode(batch=2, output_tokens=20).check("ttft.mean <= 20s")
            """,
            server,
        )
        first = project.run(f"--llmroof-record=rec{number}")
        folder = f"rec{number}/test_it/test_d-decode"
        project.test(
            """
            def test_d(llmroof):
                llmroof.check("ttft.mean <= 20s")
            """,
            server,
            telemetry=folder,
        )
        server.closing.set()
        second = project.run("--llmroof-phase=decode")
        assert first.rc == second.rc == 0
        assert first.windows[D]["measurements"] == second.windows["test_d"]["measurements"]
        assert first.windows[D]["duration_seconds"] == second.windows["test_d"]["duration_seconds"]


def test_failed_requests_are_a_rate_and_said(project: Any, serve: Serve) -> None:
    server = serve(Server(warm=1, faults=[None, cut_after(2), too_often(0), None]))
    project.test(
        """
        def test_d(llmroof_probe):
            window = llmroof_probe.decode(batch=1, output_tokens=8, rounds=4)
            assert window["errors.rate"].value == 0.5
            window.check("errors.rate <= 1%")
        """,
        server,
    )
    run = project.run()
    assert run.gate(D)["verdict"] == "fail"
    assert "2 of 4 requests of the probe failed: " in json.dumps(run.windows[D])


def test_where_all_fail_there_is_no_data_and_a_reason(project: Any, serve: Serve) -> None:
    project.test(
        """
        def test_d(llmroof_probe):
            llmroof_probe.decode(batch=2, output_tokens=8).check("ttft.mean <= 1s", "decode.mbu >= 1%")
        """,
        serve(Server(warm=2, fault=too_often(0))),
    )
    run = project.run()
    assert [gate["verdict"] for gate in run.windows[D]["gates"]] == ["no data", "no data"]
    assert "all 2 requests failed: " in run.windows[D]["gates"][0]["reason"]
    assert "refused as it is asked too often (429)" in run.windows[D]["gates"][0]["reason"]


def test_a_silent_server_ends_at_the_deadline(project: Any, serve: Serve) -> None:
    project.test(
        """
        def test_d(llmroof_probe):
            llmroof_probe.decode(batch=2, output_tokens=8, rounds=3, max_wait="2s").check("ttft.mean <= 1s")
        """,
        serve(Server(warm=2, fault=silent)),
    )
    run = project.run()
    assert "the probe's time of 2 s was over" in run.gate(D)["reason"]


def test_workers_do_not_probe_one_server_at_the_same_time(project: Any, serve: Serve) -> None:
    server = serve(Server())
    project.test(
        """
        @pytest.mark.parametrize("number", range(4))
        def test_d(llmroof_probe, number):
            llmroof_probe.decode(batch=2, output_tokens=30).check("ttft.mean <= 20s", "errors.rate <= 0")
        """,
        server,
    )
    run = project.run("-n2")
    assert run.rc == 0, run.text
    assert len(run.windows) == 4
    assert all(window["gates"][0]["verdict"] == "pass" for window in run.windows.values())
    assert server.most == 2


def test_collecting_touches_no_network_and_the_mark_tells(project: Any, serve: Serve) -> None:
    server = serve(Server())
    project.test(
        """
        def test_d(llmroof_probe):
            llmroof_probe.decode()

        def test_other():
            pass
        """,
        server,
        telemetry="nowhere.prom",
    )
    run = project.run("--collect-only", "-q", "-m", "llmroof_live")
    assert "test_d" in run.text
    assert "test_other" not in run.text
    assert server.seen == []


def test_keys_reach_no_output_and_no_file(project: Any, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "sk-secret")
    server = serve(Server(key="sk-secret"))
    project.test(
        """
        def test_d(llmroof_probe):
            window = llmroof_probe.decode(output_tokens=8)
            assert window["ttft.mean"].value > 0
            window.check("ttft.mean <= 1us")

        def test_wrong(llmroof_probe):
            url = {"url": URL, "headers": {"Authorization": "Bearer sk-wrong"}}
            llmroof_probe.decode(url=url, output_tokens=8).check("ttft.mean <= 1us")
        """,
        server,
        telemetry="unused",
    )
    path = project.path / "test_it.py"
    source = "{'url': METRICS, 'headers': {'Authorization': 'Bearer ${TOKEN}'}}"
    path.write_text(path.read_text().replace("'unused'", source))
    run = project.run("--llmroof-record=rec", "--showlocals", "-vv")
    assert run.gate(D)["verdict"] == "fail"
    assert run.gate("test_wrong::decode")["reason"].startswith(f"{server.url} asks for credentials (401); ")
    files = [each for each in project.path.rglob("*") if each.suffix in (".json", ".prom")]
    written = [each.read_text() for each in files]
    assert len(written) >= 4
    assert not any("sk-" in text for text in [run.text, *written])


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("decode(batch=0)", "llmroof_probe.decode: batch= is a whole number of at least 1, not 0"),
        ("decode(output_tokens=1)", "output_tokens=1 decodes nothing: the first token belongs to the prefill"),
        ("decode(batch=5000)", "batch=5000 is more than one client can drive (1024 at the most)"),
        ("prefill(requests=1.5)", "llmroof_probe.prefill: requests= is a whole number of at least 1, not 1.5"),
        ("prefill(seed='x')", "llmroof_probe.prefill: seed= is a whole number, not 'x'"),
        ("decode(duration='10s')", "llmroof_probe.decode takes no duration=: it lasts until its requests are through"),
        ("decode(phase='decode')", "llmroof_probe.decode takes no phase=: its name says it"),
        ("decode(url='localhost:8000')", "llmroof_probe: url= is the API's address, like http://HOST:PORT/v1"),
        ("decode(url='ftp://x')", "http:// or https://"),
        ("decode(telemtry='x')", "telemetry"),
        ("decode(telemetry=['a.prom'])", "llmroof_probe: nothing says where to send requests: give url="),
    ],
)
def test_mistakes_are_said_before_anything_is_sent(project: Any, serve: Serve, call: str, problem: str) -> None:
    server = serve(Server())
    project.test(f"def test_d(llmroof_probe):\n    llmroof_probe.{call}\n", server)
    run = project.run()
    assert run.rc == 1
    assert problem in run.one_line
    assert "Traceback" not in run.text
    assert server.seen == []


def test_a_module_shares_a_probe(project: Any, serve: Serve) -> None:
    server = serve(Server())
    project.test(
        """
        @pytest.fixture(scope="module")
        def decode(llmroof_factory):
            return llmroof_factory.probe(model="llama-3.1-8b", gpu="h100", telemetry=METRICS).decode(output_tokens=8)

        def test_one(decode):
            decode.check("ttft.mean <= 20s")

        def test_two(decode):
            decode.check("errors.rate <= 0")
        """,
        server,
    )
    run = project.run()
    assert run.rc == 0, run.text
    assert list(run.windows) == ["decode probe"]
    assert len(server.load) == 2  # the warm-up's and the load's


def test_repeats_are_windows_of_their_own(project: Any, serve: Serve) -> None:
    server = serve(Server())
    project.test(
        """
        def test_d(llmroof_probe):
            window = llmroof_probe.decode(batch=2, output_tokens=12, repeat=3)
            window.check("ttft.mean <= 20s")
        """,
        server,
    )
    run = project.run("--llmroof-record=rec")
    assert run.rc == 0, run.text
    pages = sorted(project.path.glob("rec/test_it/test_d-decode/*/probe.json"))
    documents = [json.loads(page.read_text()) for page in pages]
    assert len(documents) == 3
    assert len({document["seed"] for document in documents}) == 3
    assert len(run.windows[D]["measurements"]["ttft.mean"]["repeats"]) == 3
