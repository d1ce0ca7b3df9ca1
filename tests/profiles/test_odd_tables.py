"""Databases and tables of seldom shapes: nothing of them is a wrong figure, an exception or a lot of memory."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles import ncu_rows
from pytest_llmroof.profiles.ncu import read_ncu
from pytest_llmroof.profiles.nsys import read_nsys
from pytest_llmroof.profiles.nsys_stats import read_stats
from pytest_llmroof.profiles.recognise import recognise

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","gpu__time_duration.sum","dram__bytes.sum"\n"","","","","","","","","","","","ns","byte"\n'
)
YEAR_NS = 365 * 86_400 * 10**9


def launch(time: str, moved: str, number: int = 0) -> str:
    about = '"1","python","host","gemm<1, 2>","1","7","(256, 1, 1)","(1, 1, 1)","0","9.0"'
    return f'"{number}",{about},"{time}","{moved}"\n'


def table(tmp_path: Path, content: str | bytes, name: str = "kernels.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def database(tmp_path: Path, ends: list[int]) -> Path:
    path = tmp_path / "report.sqlite"
    with closing(sqlite3.connect(path)) as written:
        columns = "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, demangledName"
        written.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({columns} INTEGER)")
        written.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        written.execute("INSERT INTO StringIds VALUES (1, 'gemm')")
        rows = [(100_000 * number, end, 0, 7, number + 1, 1) for number, end in enumerate(ends)]
        written.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?)", rows)
        written.commit()
    return path


def test_a_database_that_lacks_a_part_of_its_last_page_is_cut_off(tmp_path: Path) -> None:
    """SQLite would read zeros in its place: rows without a name, a time, or a launch."""
    path = database(tmp_path, [100_000 * number + 80_000 for number in range(400)])
    whole = path.read_bytes()
    for missing in (1, 100, 2000, 4000):
        path.write_bytes(whole[:-missing])
        with pytest.raises(SourceError, match=r"is damaged: it has .* it is cut off"):
            read_nsys(path)


def test_nothing_lasts_a_year(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="1 row of its table CUPTI_ACTIVITY_KIND_KERNEL have no usable time"):
        read_nsys(database(tmp_path, [80_000, 180_000, 200_000 + YEAR_NS]))
    rows = f"Start (ns),Duration (ns),Strm,Name\n0,80,7,gemm\n100,{YEAR_NS},7,gemm\n"
    with pytest.raises(SourceError, match=":3: a piece of GPU work without a time"):
        read_stats(table(tmp_path, rows))


def test_a_damaged_database_is_not_read_whole_to_recognise_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table(tmp_path, b"SQLite format 3\0" + b"\1" * 100_000 + b"META_DATA_EXPORT", "report.sqlite")
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("the whole file was read"))
    assert recognise(path) == "nsys sqlite"


def test_a_damaged_schema_whose_words_are_no_text(tmp_path: Path) -> None:
    """What SQLite says of it quotes the damage, and Python cannot decode that."""
    path = database(tmp_path, [80_000])
    content = path.read_bytes()
    damaged = content.replace(b"tableStringIds", b"table\x80tringIds")
    assert damaged != content
    path.write_bytes(damaged)
    assert recognise(path) == "nsys sqlite"
    with pytest.raises(SourceError, match="is damaged"):
        read_nsys(path)


@pytest.mark.parametrize("line_end", ["\r", "\r\r", "x\rx\n"])
def test_carriage_returns_alone_end_no_lines(tmp_path: Path, line_end: str) -> None:
    with pytest.raises(SourceError, match=r"kernels\.csv:1: the table is damaged"):
        read_ncu(table(tmp_path, (HEAD + launch("1000", "2000")).replace("\n", line_end)))


def test_a_row_of_more_cells_than_the_head_has_is_not_read(tmp_path: Path) -> None:
    """Without its quotes, the commas of a kernel's name move every value: 1 would be the bytes."""
    with pytest.raises(SourceError, match=r"kernels\.csv:3: a row of .* cells, where the head has 13"):
        read_ncu(table(tmp_path, (HEAD + launch("1000", "2000")).replace('"', "")))


@pytest.mark.parametrize("text", ["1,00,000", "\u0661\u0662\u0663", "0x10", "5 apples"])
def test_a_value_that_is_no_number_is_said(tmp_path: Path, text: str) -> None:
    found = read_ncu(table(tmp_path, HEAD + launch("1000", text) + launch("1000", "2000", 1)))
    assert [one.dram_bytes is None for one in found.launches] == [True, False]
    assert found.notes == (f"kernels.csv:3: dram__bytes.sum is {text!r}, which is no number; it was left out",)


@pytest.mark.parametrize("text", ["n/a", "", "nan", "-inf"])
def test_a_value_that_is_not_there_is_not_worth_a_word(tmp_path: Path, text: str) -> None:
    assert read_ncu(table(tmp_path, HEAD + launch("1000", text))).notes == ()


def test_a_number_that_a_unit_makes_too_large_is_none(tmp_path: Path) -> None:
    (found,) = read_ncu(table(tmp_path, HEAD.replace('"byte"', '"Gbyte"') + launch("1000", "1e305"))).launches
    assert found.dram_bytes is None


def test_a_small_packed_table_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ncu_rows, "_LARGEST", 4 << 20)
    path = table(tmp_path, gzip.compress(HEAD.encode() + b"\n" * (64 << 20)), "kernels.csv.gz")
    with pytest.raises(SourceError, match="holds more than 4 MiB"):
        read_ncu(path)
