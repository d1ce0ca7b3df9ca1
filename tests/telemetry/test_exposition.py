"""The exposition reader, against prometheus_client's and against everything that is no page."""

from __future__ import annotations

import gzip
import math
import sys
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry import bodies, exposition
from pytest_llmroof.telemetry.comments import shown_endpoint
from pytest_llmroof.telemetry.exposition import Page, parse_page
from pytest_llmroof.telemetry.known import KnownSeries

Key = tuple[str, frozenset[tuple[str, str]]]

NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_:]{0,20}", fullmatch=True)
LABEL_NAMES = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,8}", fullmatch=True)
LABEL_VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=12)
VALUES = st.floats() | st.integers(-(10**18), 10**18).map(float)


def as_comparable(value: float) -> str:
    """NaN equals NaN here."""
    return repr(value)


def mine(page: Page) -> dict[Key, str]:
    return {(s.name, frozenset(s.labels.items())): as_comparable(s.value) for s in page.samples}


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def written(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)


@st.composite
def pages(draw: st.DrawFn) -> str:
    """A page of gauges whose series are unique, with random blanks, labels, comments and empty lines."""
    lines = []
    names = draw(st.lists(NAMES, unique=True, min_size=1, max_size=5))
    for name in names:
        if draw(st.booleans()):
            lines.append(f"# HELP {name} {escaped(draw(LABEL_VALUES))}".rstrip())
            lines.append(f"# TYPE {name} gauge")
        series = draw(
            st.lists(st.dictionaries(LABEL_NAMES, LABEL_VALUES, max_size=3), min_size=1, max_size=3,
                     unique_by=lambda labels: frozenset(labels.items()))
        )  # fmt: skip
        for labels in series:
            inner = ",".join(f'{key}="{escaped(value)}"' for key, value in labels.items())
            block = f"{{{inner}{draw(st.sampled_from(['', ','])) if inner else ''}}}" if inner else ""
            stamp = f" {draw(st.integers(0, 2 * 10**12))}" if draw(st.booleans()) else ""
            lines.append(f"{name}{block}{draw(st.sampled_from([' ', '  ']))}{written(draw(VALUES))}{stamp}")
        if draw(st.booleans()):
            lines.append("")
    return "\n".join(lines) + "\n"


class TestAgainstPrometheusClient:
    @given(pages())
    def test_every_sample_is_the_same(self, text: str) -> None:
        theirs = {
            (s.name, frozenset(s.labels.items())): as_comparable(s.value)
            for family in text_families(text)
            for s in family.samples
        }
        assert mine(parse_page(text, "page.prom")) == theirs

    @given(pages())
    def test_timestamps_are_seconds(self, text: str) -> None:
        theirs = {
            (s.name, frozenset(s.labels.items())): s.timestamp for family in text_families(text) for s in family.samples
        }
        page = parse_page(text, "page.prom")
        for sample in page.samples:
            assert sample.timestamp == theirs[sample.name, frozenset(sample.labels.items())]

    @given(pages())
    def test_a_second_page_with_the_same_heads_reads_the_same(self, text: str) -> None:
        known = KnownSeries()
        assert mine(parse_page(text, "one", known)) == mine(parse_page(text, "two", known))

    @settings(max_examples=30)
    @given(
        st.lists(st.floats(0, 1e6), min_size=1, max_size=20),
        st.lists(st.floats(1e-6, 1e5), unique=True, min_size=1, max_size=8).map(sorted),
        LABEL_VALUES,
    )
    def test_what_it_writes(self, observations: list[float], bounds: list[float], label: str) -> None:
        registry = CollectorRegistry()
        histogram = Histogram("ttft_seconds", "h", ["model_name"], buckets=bounds, registry=registry)
        counter = Counter("tokens", "c", ["model_name"], registry=registry)
        gauge = Gauge("running", "g", ["model_name"], registry=registry)
        for observed in observations:
            histogram.labels(label).observe(observed, exemplar={"trace_id": "7f"})
        counter.labels(label).inc(len(observations), exemplar={"trace_id": "a"})
        gauge.labels(label).set(math.nan)
        text = generate_latest(registry).decode()
        openmetrics = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]  # has no types
        for page, families in (
            (parse_page(text, "x"), text_families(text)),
            (parse_page(openmetrics, "x"), openmetrics_families(openmetrics)),  # type: ignore[no-untyped-call]  # has no types
        ):
            theirs = {
                (s.name, frozenset(s.labels.items())): as_comparable(s.value)
                for family in families
                for s in family.samples
            }
            assert mine(page) == theirs
        # An exemplar's timestamp is none of the sample's.
        assert all(sample.timestamp is None for sample in parse_page(openmetrics, "x").samples)
        assert parse_page(openmetrics, "x").openmetrics


def read_or_refused(body: bytes | str) -> bool:
    """Whether a page is read, or refused with its place and a remedy."""
    try:
        return bool(parse_page(body, "page.prom").samples)
    except SourceError as error:
        return error.reason.startswith("page.prom") and bool(error.remedy)


class TestNothingButSourceErrorEscapes:
    @given(st.binary(max_size=400))
    def test_bytes(self, body: bytes) -> None:
        assert read_or_refused(body)

    @given(st.text(max_size=200))
    def test_text(self, body: str) -> None:
        assert read_or_refused(body)

    @given(pages(), st.integers(0, 10_000), st.text(max_size=3), st.integers(0, 5))
    def test_a_page_that_was_damaged(self, text: str, at: int, inserted: str, removed: int) -> None:
        at %= len(text)
        assert read_or_refused(text[:at] + inserted + text[at + removed :])

    @given(pages(), st.integers(0, 10_000))
    def test_a_gzip_that_was_cut(self, text: str, at: int) -> None:
        packed = gzip.compress(text.encode("utf-8"))
        assert mine(parse_page(packed, "page.prom.gz")) == mine(parse_page(text, "page.prom"))
        with pytest.raises(SourceError):
            parse_page(packed[: 2 + at % (len(packed) - 2)], "page.prom.gz")


GOOD = 'vllm:x{engine="0",model_name="m"} 1.0\n'

MALFORMED = [
    ("vllm:x", "page.prom:2: the value is missing"),
    ('vllm:x{engine="0"}', "page.prom:2: the value is missing"),
    ('vllm:x{engine="0" 1', "page.prom:2: the labels are not closed: } is missing"),
    ('vllm:x{engine="0} 1', "page.prom:2: the labels are not closed: a quote is missing"),
    ("vllm:x{engine=0} 1", "page.prom:2: the labels cannot be read at 'engine=0} 1'"),
    ("vllm:x{0=\"a\"} 1", "page.prom:2: the labels cannot be read at"),
    ('vllm:x{a="1",a="2"} 1', "page.prom:2: label 'a' is given twice"),
    ("vllm:y 1,5", "page.prom:2: the value '1,5' is not a number"),
    ("vllm:y 1_000", "page.prom:2: the value '1_000' is not a number"),
    ("vllm:y ١", "page.prom:2: the value '١' is not a number"),
    ("vllm:y abc", "page.prom:2: the value 'abc' is not a number"),
    ("vllm:y 1 soon", "page.prom:2: the timestamp 'soon' is not a number"),
    ("vllm:y 1 NaN", "page.prom:2: the timestamp 'NaN' is not a time"),
    ("vllm:y 1 2 3", "page.prom:2: '3' follows the value and its timestamp"),
    ("vllm:y 1 # trailing", "page.prom:2: what follows the value after # is not an exemplar"),
    ("Error: connection reset", "page.prom:2: the value 'connection' is not a number"),
    ("502 Bad Gateway", "page.prom:2: a metric's name was expected, not '502 Bad Gateway'"),
    ("{} 1", "page.prom:2: the metric has no name"),
    ("# TYPE vllm:y", "page.prom:2: a TYPE line needs a name and a type"),
    ("# scraped_at yesterday", "page.prom:2: scraped_at must be Unix seconds like 1764417600.25, not 'yesterday'"),
    ("# scrape_seconds -1", "page.prom:2: scrape_seconds must be a time in seconds, not '-1'"),
    ('vllm:x{model_name="m",engine="0"} 2.0', "page.prom:2: vllm:x with the same labels stands in line 1 already"),
]


@pytest.mark.parametrize(("line", "problem"), MALFORMED)
def test_a_malformed_line_refuses_the_page_and_is_named(line: str, problem: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse_page(f"{GOOD}{line}\nvllm:z 1\n", "page.prom")
    assert caught.value.reason.startswith(problem)
    assert caught.value.remedy == "the whole page is refused: scrape it again, as it comes"


def test_the_message_shows_little_of_a_line() -> None:
    with pytest.raises(SourceError) as caught:
        parse_page('vllm:cache_config_info{path="/secret/of/some/customer" 1\n', "page.prom")
    assert "customer" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "page.prom is empty"),
        (b" \n\n", "page.prom is empty"),
        (b"<!DOCTYPE html><html><body>502</body></html>", "page.prom is HTML, not metrics"),
        (b'{"object": "list", "data": []}', "page.prom is JSON, not metrics"),
        (b"{}", "page.prom is JSON, not metrics"),
        (b"[1, 2]", "page.prom is JSON, not metrics"),
        (b"\x7fELF\0\0", "page.prom is binary, not text"),
        (b"\xff\xd8\xff\xe0", "page.prom is binary, not text"),
        (b"# HELP a b\n# TYPE a gauge\n", "page.prom holds no metrics, only comments"),
        (b"# EOF\n", "page.prom holds no metrics, only comments"),
        (b"vllm:x 1\n# EOF\nvllm:y 2\n# EOF\n", "page.prom:3: text after # EOF: two scrapes in one file?"),
        (b'vllm:x 1\nvllm:y{engine="0",mod', "page.prom:2: the last line is cut off (the labels are not closed"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\0garbage", "page.prom is a damaged gzip file"),
    ],
)
def test_each_that_is_no_page_has_its_own_text(body: bytes, reason: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse_page(body, "page.prom")
    assert caught.value.reason.startswith(reason)
    assert caught.value.remedy


def test_a_page_without_last_line_feed_is_read_and_marked() -> None:
    assert parse_page("vllm:x 1\nvllm:y 12", "page.prom").unterminated
    assert not parse_page("vllm:x 1\n", "page.prom").unterminated
    assert not parse_page("vllm:x 1\n# EOF", "page.prom").unterminated


def test_a_gzip_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAXIMUM_BYTES", 2**20)
    with pytest.raises(SourceError, match=r"larger than 1 MiB"):
        parse_page(gzip.compress(b"a 1\n" + b" " * 2**21), "page.prom")
    with pytest.raises(SourceError, match=r"larger than 1 MiB"):
        parse_page(b" " * (2**20 + 1), "page.prom")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_byte_order_marks_and_carriage_returns(encoding: str) -> None:
    page = parse_page('vllm:x{model_name="é"} 1\r\nvllm:y 2 \r\n'.encode(encoding), "page.prom")
    assert mine(page) == {
        ("vllm:x", frozenset({("model_name", "é")})): "1.0",
        ("vllm:y", frozenset()): "2.0",
    }


def test_names_in_quotes() -> None:
    """Text 1.0.0 writes names of other alphabets among the labels."""
    page = parse_page('{"vllm:x.y",engine="0","a b"="c\\"d"} 3\n# TYPE "vllm:x.y" gauge\n', "page.prom")
    assert page.samples[0].name == "vllm:x.y"
    assert page.samples[0].labels == {"engine": "0", "a b": 'c"d'}
    assert page.types == {"vllm:x.y": "gauge"}


def test_openmetrics_timestamps_are_seconds_and_exemplars_are_skipped() -> None:
    page = parse_page('a_bucket{le="1"} 5 1700000000.5 # {id="} 9 8"} 0.5 1600000000\nb 1 # {} 2\n# EOF\n', "x")
    assert [(s.value, s.timestamp) for s in page.samples] == [(5.0, 1700000000.5), (1.0, None)]


def test_of_one_series_at_several_times_the_latest_counts() -> None:
    page = parse_page("a 1 1000\na 3 3000\na 2 2000\n", "x")
    assert [(s.value, s.timestamp) for s in page.samples] == [(3.0, 3.0)]
    assert page.clock == 3.0


@pytest.mark.parametrize("stamp", ["-5000", "99999999999999999999", "1e300"])
def test_timestamps_that_are_no_time_are_no_clock(stamp: str) -> None:
    assert parse_page(f"a 1 {stamp}\n", "x").clock is None


def test_comment_lines_of_our_own() -> None:
    page = parse_page(
        "# scraped_at 1764417600.250134\n# scrape_seconds 0.0125\n"
        "# endpoint http://user:secret@host:8000/metrics?token=secret#x\na 1 5000\n",
        "x",
    )
    assert (page.scraped_at, page.clock, page.scrape_seconds) == (1764417600.250134, 1764417600.250134, 0.0125)
    assert page.endpoint == "http://host:8000/metrics"


def test_the_letter_that_bsd_date_prints_for_nanoseconds() -> None:
    page = parse_page("# scraped_at 1764417600.N\na 1\n", "x")
    assert page.scraped_at == 1764417600.0
    assert page.scrape_seconds == 1.0  # known to the second


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://host:8000/metrics", "http://host:8000/metrics"),
        ("https://a:b@[::1]:9400/m?x=1", "https://[::1]:9400/m"),
        ("pod-7?token=1", "pod-7"),
        ("http://[bad", "endpoint"),
    ],
)
def test_addresses_are_shown_without_secrets(address: str, shown: str) -> None:
    assert shown_endpoint(address) == shown


def test_lines_as_engines_write_them_take_few_calls_and_not_the_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a line costs, counted: 2,000 different ones took some 18 calls of functions each; the grammar takes more."""
    lines = [f'vllm:x_bucket{{engine="{i % 8}",le="{i // 8}.0",model_name="org/Llama"}} {i}.0' for i in range(2000)]
    by_grammar: list[str] = []
    monkeypatch.setattr(exposition, "line_of", lambda line, known: by_grammar.append(line))
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        page = parse_page("\n".join(lines) + "\n", "x")
    finally:
        sys.setprofile(before)
    assert len(page.samples) == 2000
    assert by_grammar == []
    assert calls / 2000 < 30
