"""The fast roads of the exposition reader give exactly what the grammar gives, for any page, damaged ones included."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_llmroof.errors import SourceError
from pytest_llmroof.telemetry.exposition import parse_page
from pytest_llmroof.telemetry.known import KnownSeries, Labels, Layout

DATA: Final = Path(__file__).parents[1] / "data"
PAGES: Final = sorted(DATA.rglob("*.prom"))


class OnlyTheGrammar(KnownSeries):
    """Knows nothing, and learns nothing: every line is read by the grammar."""

    def plain(self, head: str) -> tuple[str, Labels] | None:
        return None

    def keep(self, heads: tuple[str, ...], layout: Layout) -> None:
        pass


def outcome(text: str, known: KnownSeries) -> str:
    """All of a page, or why it is refused. As text, in which NaN equals NaN."""
    try:
        return repr(parse_page(text, "page.prom", known))
    except SourceError as error:
        return f"refused: {error}"


def same_on_all_roads(texts: Sequence[str]) -> None:
    """Read one after the other, each as the grammar reads it, also when it comes again."""
    known = KnownSeries()
    for text in texts:
        expected = outcome(text, OnlyTheGrammar())
        assert outcome(text, known) == expected
        assert outcome(text, known) == expected


NAMES = st.sampled_from(["a", "b:c", "vllm:x_bucket", "_", "# a", "9a", "", "é"])
PAIRS = st.sampled_from(
    ['le="0.1"', 'le="+Inf"', 'm="x y"', 'm=""', 'm="a,b"', 'm="a\\"b"', 'm="a\\\\"', 'm="\\n"', 'm="}"', 'm="} 5"',
     ' m="1"', 'm ="1"', 'm="é"', '"a b"="c"', '"name"', "m=1", 'm="', "", 'm="1"n="2"', 'm="\r"', 'm="\t"']
)  # fmt: skip
NUMBERS = st.sampled_from(
    ["1", "0.5", "-1e3", "NaN", "+Inf", "-Inf", "inf", "nan", "infinity", "1_0", "١", "0x1", "", "1,5", ".5", "1\r",
     "1\t", "1\x0b", "1\x85", "1\xa0", "\t1", "-", "{1", "#1", "1 1000", "1 2000", "1\t3000", "1 # {} 2",
     '1 # {id="7"} 0.5 16', "1 #", "1  ", " 1"]
) | st.floats().map(str)  # fmt: skip
COMMENTS = st.sampled_from(
    ["", " ", "\t", "\r", "\x0b", "#", "# HELP a b", "# HELP", "# TYPE a gauge", "# TYPE a counter", "# TYPE a",
     '# TYPE "a b" gauge', "# EOF", "#EOF", "# EOF ", " # EOF", "# scraped_at 1764417600.25", "# scraped_at 16.5",
     "# scraped_at", "# scraped_at ", "#\tscraped_at 5", " # scraped_at 7", "# scraped_at\t8", "# scraped_at N",
     "# scraped_at 9.N", "# scrape_seconds 0.5", "# scrape_seconds -1", "# scrape_seconds 0.25", "# endpoint http://a/x",
     "# endpoint http://b/y", "# endpoint", "# endpoint a b", "# endpoint ", "nothing"]
)  # fmt: skip


@st.composite
def samples(draw: st.DrawFn) -> str:
    labels = draw(st.lists(PAIRS, max_size=3))
    block = "{" + ",".join(labels) + draw(st.sampled_from(["}", ",}", "", "} "])) if draw(st.booleans()) else ""
    return draw(NAMES) + block + draw(st.sampled_from([" ", "  ", "\t", ""])) + draw(NUMBERS)


LINES = samples() | COMMENTS | st.text(max_size=8)
GOOD = st.sampled_from(['a 1', 'a{m="1"} 2', 'a{m="2"} NaN', 'b{le="1",m="1"} 3', "# TYPE a gauge", "# scraped_at 5.5"])
PLAIN = st.lists(GOOD, unique=True, min_size=1, max_size=6)


class TestTheSameOnAllRoads:
    @given(st.lists(LINES, max_size=6).map("\n".join))
    @example('a{ 1')
    @example("a 1\x0b\nb 2")
    def test_lines_of_all_sorts(self, text: str) -> None:
        same_on_all_roads([text])

    @given(PLAIN, st.lists(LINES, min_size=1, max_size=4), st.data())
    def test_a_page_that_changes_from_scrape_to_scrape(
        self, lines: list[str], others: list[str], data: st.DataObject
    ) -> None:
        """A good page, and the same with a line replaced, added or gone, by turns."""
        texts = ["\n".join(lines) + "\n"]
        for other in others:
            at = data.draw(st.integers(0, len(lines) - 1))
            texts += ["\n".join([*lines[:at], other, *lines[at + keep :]]) + "\n" for keep in (0, 1)]
            texts += ["\n".join(lines[:at]), texts[0]]
        same_on_all_roads(texts)

    @given(PLAIN, st.lists(st.lists(NUMBERS | COMMENTS, min_size=6, max_size=6), min_size=1, max_size=4))
    def test_last_words_that_change(self, lines: list[str], scrapes: list[list[str]]) -> None:
        """Every line as it was up to its last blank: what repeats in a window of scrapes."""
        texts = ["\n".join(lines) + "\n"]
        for words in scrapes:
            changed = [f"{line.rpartition(' ')[0]} {word}" for line, word in zip(lines, words, strict=False)]
            texts += ["\n".join(changed) + "\n", "\n".join(changed)]
        same_on_all_roads(texts)

    @given(st.text(max_size=60), st.text(max_size=60))
    def test_any_text(self, one: str, other: str) -> None:
        same_on_all_roads([one, other])

    @pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(DATA)) for path in PAGES])
    def test_real_pages_and_damage_to_them(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        chance = random.Random(text[:2000])
        texts = [text]
        for _ in range(12):
            at = chance.randrange(len(text))
            inserted = chance.choice(["", " ", "\n", '"', "}", "_", "9", "\t", "\x0b", "# EOF\n"])
            texts += [text[:at], text[:at] + inserted + text[at + chance.randrange(3) :], text]
        same_on_all_roads(texts)


def test_a_scrape_that_repeats_is_read_by_its_layout() -> None:
    """What the benchmark counts on: one layout serves all scrapes of a server."""
    known = KnownSeries()
    for second in range(5):
        page = parse_page(f'# scraped_at {second}.5\n# TYPE a gauge\na{{m="1"}} {second}\nb {second}\n', "x", known)
        assert (page.scraped_at, page.types) == (second + 0.5, {"a": "gauge"})
        assert [sample.value for sample in page.samples] == [second, second]
    assert len(known.layouts) == 1


def test_what_is_kept_is_bounded() -> None:
    """Labels that never come again: 60 pages of 500 series hold no more than the last few do."""
    known = KnownSeries(limit=2000)

    def read(number: int) -> None:
        lines = [f'a{{request="{number}-{line}",model_name="some/model"}} {line}' for line in range(500)]
        parse_page("\n".join(lines) + "\n", "x", known)

    for number in range(10):
        read(number)
    tracemalloc.start()
    try:
        for number in range(10, 20):
            read(number)
        after_few, _ = tracemalloc.get_traced_memory()
        for number in range(20, 60):
            read(number)
        after_many, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # At most the limit and one page more are kept, at some 1.2 kB a line of both kinds.
    assert after_many < after_few + 2500 * 1200
    assert sum(map(len, known.layouts)) <= 2501 + 500
