"""Server-sent events, cut anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmroof.probe.sse import MAXIMUM_CHARACTERS, Events, TooLong


def read(*chunks: bytes) -> list[str]:
    events = Events()
    return [data for chunk in chunks for data in events.feed(chunk)]


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    ends = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[one:other] for one, other in pairwise(ends)]


def test_comments_other_fields_and_lines_of_data() -> None:
    stream = b": ping\nevent: x\nid: 7\ndata: one\ndata:two\nretry: 3\n\n"
    stream += b"data\n\n: only a comment\n\ndata:  blank kept\n\n"
    # A field without a colon has the empty value; of the blanks behind a colon only the first goes.
    assert read(stream) == ["one\ntwo", "", " blank kept"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_all_three_ends_of_line(end: bytes) -> None:
    stream = end.join([b"data: {", b"data: }", b"", b"data: [DONE]", b"", b""])
    assert read(stream) == ["{\n}", "[DONE]"]
    assert read(*(stream[place : place + 1] for place in range(len(stream)))) == ["{\n}", "[DONE]"]


def test_an_event_counts_when_its_blank_line_came() -> None:
    events = Events()
    assert list(events.feed(b"data: half")) == []
    assert events.unfinished == "half"
    assert list(events.feed(b" a line\n")) == []
    assert list(events.feed(b"\n")) == ["half a line"]
    assert events.unfinished == ""


def test_a_byte_order_mark_and_damaged_text() -> None:
    assert read(b"\xef\xbb", b"\xbfdata: a\n\n") == ["a"]
    assert read(b"data: \xff\n\n") == ["�"]


@pytest.mark.parametrize("line", [b"data: " + b"x" * 65_536, b"data: " + b"x" * 65_536 + b"\n"])
def test_what_does_not_end_is_refused(line: bytes) -> None:
    chunks = [line] * (MAXIMUM_CHARACTERS // 65_536 + 2)
    with pytest.raises(TooLong):
        read(*chunks)


TEXT = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=8)


@settings(deadline=None)
@given(
    st.lists(st.lists(TEXT, min_size=1, max_size=3), max_size=5),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 500), max_size=6),
)
def test_where_bytes_are_cut_changes_nothing(events: list[list[str]], end: str, places: list[int]) -> None:
    stream = "".join("".join(f"data: {line}{end}" for line in lines) + end for lines in events).encode()
    assert read(*cut(stream, places)) == ["\n".join(lines) for lines in events]
