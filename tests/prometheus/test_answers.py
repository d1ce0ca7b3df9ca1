"""Every answer that is none has words of its own, and none of them repeats a secret."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlencode

import pytest
from loopback import serving
from scripted import TOKENS, Answer, Asked, Script, scripted, small_fleet, success, vector

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.fleetsource import prometheus_window
from pytest_llmroof.telemetry.window import Window

SECRET = "s3cr3t-token-of-a-tenant"


@pytest.fixture
def script() -> Iterator[Script]:
    """Answers as its script says: a small fleet, where a test sets nothing else."""
    with scripted() as found:
        yield found


def read(script: Script, **options: object) -> Window:
    return prometheus_window(
        {"prometheus": script.url, "selector": 'namespace="prod"', "duration": 60.0, "end": "1000", **options},
        duration_seconds=None,
    )


def refused(script: Script, answer: Callable[[Asked], Answer], **options: object) -> SourceError:
    script.answer = answer
    with pytest.raises(SourceError) as caught:
        read(script, **options)
    assert caught.value.remedy
    return caught.value


def test_a_small_fleet(script: Script) -> None:
    window = read(script)
    # 940 to 1000 holds five scrapes; the first one asked for lies an interval after the start at the latest.
    assert window.started == 940
    assert window.duration_seconds == 60
    assert window.counter("generation_tokens") == 600
    assert window.engines[0].model_name == "m"
    assert len(script.asked) == 5
    assert {asked.method for asked in script.asked[1:]} == {"POST"}


@pytest.mark.parametrize(
    ("status", "content", "body", "gist"),
    [
        (400, "application/json", {"errorType": "bad_data", "error": "1:34: parse error: unclosed left parenthesis"},
         "refuses the query: 1:34: parse error"),
        (422, "application/json", {"errorType": "execution", "error": "many-to-many matching not allowed"},
         "cannot execute the query (execution): many-to-many"),
        (422, "application/json", {"errorType": "422", "error": 'error when executing query="x": unparsed data: ""'},
         "refuses the query: error when executing"),
        (503, "application/json", {"errorType": "timeout", "error": "query timed out in expression evaluation"},
         "timed out"),
        (503, "application/json", {"errorType": "unavailable", "error": "storage not ready"}, "storage not ready"),
        (401, "text/plain", "Unauthorized\n", "asks for credentials (401)"),
        (403, "text/html", "<html>forbidden</html>", "refuses these credentials (403)"),
        (404, "text/plain", "404 page not found", "no query API there (404)"),
        (429, "text/plain", "too many outstanding requests", "asked too much (429): too many outstanding"),
        (500, "text/plain", "oops", "failed (500)"),
        (502, "text/html", "<html>Bad Gateway</html>", "nothing behind its gateway (502)"),
        (503, "text/plain", "Service Unavailable", "not ready, or took too long (503)"),
        (504, "text/html", "<html>", "took too long for its gateway (504)"),
        (200, "text/html", "<!DOCTYPE html><title>Sign in</title>", "answered HTML"),
        (200, "application/json", "", "its answer is empty"),
        (200, "application/json", '{"status":"success","data":{"resultType":"mat', "its answer is cut"),
        (200, "application/json", "[1, 2]", "not what Prometheus answers"),
        (200, "text/plain", "up 1", "text, not JSON"),
        (302, "text/html", "", "redirects to https://login.invalid/sso"),
    ],
)  # fmt: skip
def test_errors(script: Script, status: int, content: str, body: object, gist: str) -> None:
    text = json.dumps({"status": "error", **body}) if isinstance(body, dict) else str(body)
    error = refused(script, lambda asked: (status, content, text.encode()))
    assert gist in error.reason
    assert script.url in error.reason
    assert "state=secret" not in str(error)


def test_a_series_that_lost_its_name_counts_for_nothing(script: Script) -> None:
    nameless = {key: value for key, value in TOKENS.items() if key != "__name__"}

    def answer(asked: Asked) -> Answer:
        status, kind, body = small_fleet(asked)
        if not asked.fields.get("query", "").startswith("count_over_time") and b'"matrix"' in body:
            samples = [[time, str(time * 1000)] for time in (940, 970, 1000)]
            content = json.loads(body)
            content["data"]["result"].append({"metric": nameless, "values": samples})
            body = json.dumps(content).encode()
        return status, kind, body

    script.answer = answer
    assert read(script).counter("generation_tokens") == 600


@pytest.mark.parametrize("data", [
    {"resultType": "scalar", "result": [1000, "2"]},
    {"resultType": "string", "result": [1000, "hello"]},
    {"resultType": "vector", "result": {}},
    {"resultType": "matrix", "result": [{"metric": {}, "values": [["now", "1"]]}]},
    {"resultType": "matrix", "result": [{"values": [[1, "1"]]}]},
    {"resultType": "matrix", "result": [{"metric": {"__name__": 7}, "values": [[1, "1"]]}]},
    {"resultType": "matrix", "result": [{"metric": {}, "values": [[10**400, "1"]]}]},
    {"resultType": "matrix", "result": [{"metric": {}, "values": [[1e18, "1"]]}]},
    {"resultType": "matrix", "result": [{"metric": {}, "values": [[1, "1"], [float("nan"), "1"]]}]},
    {"resultType": "matrix", "result": [{"metric": {}, "values": [[-1, "1"]]}]},
    {},
    [],
    None,
])  # fmt: skip
def test_results_of_another_shape(script: Script, data: object) -> None:
    def answer(asked: Asked) -> Answer:
        if asked.path.endswith("/values"):
            return 200, "application/json", b'{"status": "success", "data": ["vllm:generation_tokens_total"]}'
        return 200, "application/json", json.dumps({"status": "success", "data": data}).encode()

    assert "is no Prometheus-compatible server" in refused(script, answer).reason


@pytest.mark.parametrize("count", ["+Inf", "NaN", "-1"])
def test_a_number_of_samples_that_is_none(script: Script, count: str) -> None:
    usual = script.answer

    def answer(asked: Asked) -> Answer:
        if "count_over_time" not in asked.fields.get("query", ""):
            return usual(asked)
        return success({"resultType": "vector", "result": [{"metric": {}, "value": [1000, count]}]})

    assert "has no sample" in refused(script, answer).reason


def test_samples_that_were_counted_and_are_none(script: Script) -> None:
    usual = script.answer

    def answer(asked: Asked) -> Answer:
        raw = asked.fields.get("query", "").endswith("]")
        return success({"resultType": "matrix", "result": []}) if raw else usual(asked)

    assert "has no sample" in refused(script, answer).reason


@pytest.mark.parametrize("sample", [[1000, "NaN"], [1000, "+Inf"], None])
def test_a_number_of_scrapes_of_gpus_that_is_none(script: Script, sample: list[object] | None) -> None:
    """Nobody knows how often they were scraped: the engine's window stands without their number."""
    usual = script.answer
    gpus = {"__name__": "DCGM_FI_PROF_DRAM_ACTIVE", "gpu": "0", "UUID": "a", "Hostname": "h"}

    def answer(asked: Asked) -> Answer:
        query = asked.fields.get("query", "")
        if "DCGM" not in query:
            return usual(asked)
        if "count_over_time" in query:
            row = {"metric": {}, "values": []} if sample is None else {"metric": {}, "value": sample}
            return success({"resultType": "matrix" if sample is None else "vector", "result": [row]})
        return success({"resultType": "vector", "result": [{"metric": gpus, "value": [1000, "0.5"]}]})

    script.answer = answer
    assert read(script).counter("generation_tokens") == 600


def test_names_of_another_shape(script: Script) -> None:
    error = refused(script, lambda asked: (200, "application/json", b'{"status": "success", "data": {"a": 1}}'))
    assert "a list of names was expected" in error.reason


def test_nothing_matches(script: Script) -> None:

    error = refused(script, lambda asked: success([]) if asked.path.endswith("/values") else vector())
    assert 'matches no series from 1970-01-01T00:15:40Z to 1970-01-01T00:16:40Z' in error.reason
    error = refused(
        script, lambda asked: success([]) if asked.path.endswith("/values") else vector(({}, "12"))
    )
    assert "matches 12 series, but none of a serving engine" in error.reason


def test_secrets_do_not_come_back(script: Script, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{SECRET}-in-a-file\n")
    echo = json.dumps({
        "status": "error", "errorType": "execution", "error": f"tenant {SECRET} with Bearer {SECRET}-in-a-file\n\x1b[1m"
    }).encode()  # fmt: skip
    error = refused(
        script, lambda asked: (422, "application/json", echo), headers={"X-Scope-OrgID": SECRET}, token_file=token
    )
    assert SECRET not in str(error)
    assert "tenant *** with Bearer ***" in error.reason
    assert error.reason.isprintable()
    assert script.asked[0].headers["X-Scope-OrgID"] == SECRET
    assert script.asked[0].headers["Authorization"] == f"Bearer {SECRET}-in-a-file"


@pytest.mark.parametrize("shown", [SECRET, "key with/slash", "key%20with%2Fslash", "key+with%2Fslash"])
def test_a_key_among_the_parameters_does_not_come_back(script: Script, shown: str) -> None:
    key = SECRET if shown == SECRET else "key with/slash"
    echo = json.dumps({"status": "error", "errorType": "execution", "error": f"no route for /query?k={shown}, true"})
    url = f"{script.url}?{urlencode({'k': key, 'dedup': 'true'})}"
    error = refused(script, lambda asked: (422, "application/json", echo.encode()), prometheus=url)
    assert "no route for /query?k=***, true" in error.reason
    assert script.asked[0].fields["k"] == key


def test_an_answer_that_comes_in_drops_is_hung_up_on() -> None:
    """Also over a connection that was kept: the first question is answered, the second one's head never ends."""
    hung_up = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            names = b'{"status": "success", "data": ["vllm:generation_tokens_total"]}'
            self.send_header("Content-Length", str(len(names)))
            self.end_headers()
            self.wfile.write(names)

        def do_POST(self) -> None:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Drops: ")
                while not ended.wait(0.02):
                    self.wfile.write(b"x")
                return
            hung_up.set()

        def log_message(self, *arguments: object) -> None:
            """Says nothing."""

    ended = threading.Event()
    with serving(Handler) as port:
        source = {"prometheus": f"http://127.0.0.1:{port}", "duration": 60.0, "end": "1000", "timeout": 0.5}
        try:
            with pytest.raises(SourceError, match=r"did not finish its answer within 0\.5 s"):
                prometheus_window(source, duration_seconds=None)
            assert hung_up.wait(20)
        finally:
            ended.set()


def test_an_authorization_header_and_credentials_in_the_url(script: Script) -> None:
    read(script, headers={"authorization": "Basic abc"})
    assert script.asked[-1].headers["Authorization"] == "Basic abc"
    url = script.url
    script.url = url.replace("http://", f"http://gate:{SECRET}@")
    window = read(script)
    assert script.asked[-1].headers["Authorization"].startswith("Basic Z2F0ZT")
    assert window.sources[0].location == url
    script.url = url


def test_a_path_in_front_and_parameters_are_kept(script: Script) -> None:
    for written in ("/select/0/prometheus", "/select/0/prometheus/", "/select/0/prometheus/api/v1/query"):
        script.asked.clear()
        read(script, prometheus=f"{script.url}{written}?dedup=true&partial_response=false")
        assert script.asked[0].path == "/select/0/prometheus/api/v1/label/__name__/values"
        assert script.asked[1].path == "/select/0/prometheus/api/v1/query"
        assert all(asked.fields["dedup"] == "true" for asked in script.asked)


def test_a_proxy_that_lets_only_reading_pass(script: Script) -> None:
    usual = script.answer
    script.answer = lambda asked: (405, "text/plain", b"no") if asked.method == "POST" else usual(asked)
    assert read(script).counter("generation_tokens") == 600
    assert [asked.method for asked in script.asked] == ["GET", "POST", "GET", "GET", "GET", "GET"]


def with_more(usual: Callable[[Asked], Answer], **more: object) -> Callable[[Asked], Answer]:
    """The usual answers, with these keys beside their data."""

    def answer(asked: Asked) -> Answer:
        status, content, body = usual(asked)
        return status, content, json.dumps({**json.loads(body), **more}).encode()

    return answer


def test_warnings_that_leave_nothing_out_are_said(script: Script) -> None:
    info = 'PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "x"'
    script.answer = with_more(script.answer, warnings=["No StoreAPIs matched"], infos=[info], isPartial=False)
    assert [note.partition(" ")[2] for note in read(script).notes] == [
        "warns: No StoreAPIs matched",
        f"warns: {info}",
    ]


@pytest.mark.parametrize(("more", "why"), [
    ({"isPartial": True}, "some of its storage did not answer"),
    ({"warnings": ['fetch series for {prometheus="b"} 10.0.0.2:10901: rpc error: code = Unavailable']}, "rpc error"),
    ({"warnings": ["harmless", "receive series from Addr: 10.0.0.2:10901: context deadline exceeded"]}, "receive"),
    ({"warnings": ["x" * 400 + " results truncated due to limit"]}, "xxx"),
    ({"warnings": [7, "remote_read: remote server http://far returned HTTP status 503"]}, "remote_read"),
])  # fmt: skip
def test_an_answer_in_part_is_none(script: Script, more: dict[str, object], why: str) -> None:
    error = refused(script, with_more(script.answer, **more))
    assert "answered in part only: " in error.reason
    assert why in error.reason
    assert "ask again" in str(error.remedy)


def test_a_part_of_one_answer_is_enough(script: Script) -> None:
    whole, part = script.answer, with_more(script.answer, isPartial=True)
    error = refused(script, lambda asked: (part if asked.path.endswith("/query_range") else whole)(asked))
    assert "answered in part only" in error.reason


def test_an_engine_that_left_is_said(script: Script) -> None:
    """Of two data-parallel ranks one has no sample any more at the window's end."""

    def answer(asked: Asked) -> Answer:
        usual = small_fleet(asked)
        if usual[0] != 200 or "matrix" not in usual[2].decode():
            return usual
        found = json.loads(usual[2])
        (one,) = found["data"]["result"]
        other = {"metric": {**one["metric"], "engine": "1"}, "values": one["values"][:3]}
        return success({"resultType": "matrix", "result": [one, other]})

    script.answer = answer
    window = read(script)
    assert window.counter("generation_tokens") == 600
    assert window.notes == ("a:8000, engine 1 left before 00:16 UTC: it is left out",)


def test_numbers_that_are_none(script: Script) -> None:
    """A counter is read from its finite samples; Prometheus writes them as text."""
    usual = script.answer

    def answer(asked: Asked) -> Answer:
        status, content, body = usual(asked)
        return status, content, body.replace(b'"550"', b'"NaN"').replace(b'"700"', b'"+Inf"')

    script.answer = answer
    assert read(script).counter("generation_tokens") == 600


def test_no_connection_and_no_answer_in_time(script: Script) -> None:
    held = threading.Event()

    def answer(asked: Asked) -> Answer:
        held.wait(20)
        return 200, "text/plain", b""

    error = refused(script, answer, timeout=0.2)
    held.set()
    assert "no answer within 0.2 s" in error.reason
    with pytest.raises(SourceError, match="connection refused"):
        read(script, prometheus="http://127.0.0.1:9")


@pytest.mark.parametrize(("selector", "gist"), [
    ("namespace=prod", "expected label matchers"),
    ('namespace="prod', "expected label matchers"),
    ('up{namespace="prod"}', "expected label matchers"),
    ('namespace="prod" or vector(1)', "expected label matchers"),
])  # fmt: skip
def test_selectors_that_are_none(script: Script, selector: str, gist: str) -> None:
    error = refused(script, script.answer, selector=selector)
    assert gist in error.reason
    assert not script.asked


def test_a_window_needs_a_duration(script: Script) -> None:
    with pytest.raises(SourceError, match="no duration is named"):
        prometheus_window({"prometheus": script.url}, duration_seconds=None)
    with pytest.raises(SourceError, match="holds nothing after 60 s of warm-up"):
        prometheus_window({"prometheus": script.url}, duration_seconds=60, warmup_seconds=60)
    # The window's own duration counts where the source names none; a warm-up is cut from its start.
    window = prometheus_window({"prometheus": script.url, "end": "1000"}, duration_seconds=60.0, warmup_seconds=20.0)
    assert window.started is not None
    assert script.asked[0].fields["start"] == "960.000"

