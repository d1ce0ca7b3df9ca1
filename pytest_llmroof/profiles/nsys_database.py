"""A database that Nsight Systems exported, read without trusting it.

It is opened for reading only, as one that nobody changes, so that nothing is ever written beside it. What it calls a
table must be one: views, virtual tables, generated columns and triggers are not run. Tables that hold the process's
environment, arguments or output cannot be read from here at all.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Final

import numpy as np

from pytest_llmroof.advice import Advice
from pytest_llmroof.errors import SourceError
from pytest_llmroof.profiles.timeline import Int64

ROWS: Final = 1 << 14
"""Rows that are read at once: few enough that a processor's cache holds them while they are looked at."""
_LONGEST_VALUE: Final = 64 << 20
_LONGEST_NAME: Final = 8192
_LEAST_ROW_BYTES: Final = 4
_LATEST: Final = 1 << 62
_LONGEST_NS: Final = 30 * 86_400 * 10**9
"""Nothing lasts longer than 30 days."""
_AT_ONCE: Final = 500
_CODE: Final = {"read": sqlite3.SQLITE_READ, "select": sqlite3.SQLITE_SELECT, "function": sqlite3.SQLITE_FUNCTION}
_FUNCTIONS: Final = frozenset({"coalesce", "typeof", "substr", "like", "count", "length"})
_READ: Final = re.compile(
    r"CUPTI_ACTIVITY_KIND_(?:KERNEL|MEMCPY|MEMSET|GRAPH_TRACE|RUNTIME|SYNCHRONIZATION|OVERHEAD)(?:_V\d{1,3})?"
    r"|PROFILER_OVERHEAD|NVTX_EVENTS|StringIds|DIAGNOSTIC_EVENT"
    r"|TARGET_INFO_(?:GPU|CUDA_GPU|CUDA_DEVICE|SESSION_START_TIME)|META_DATA_EXPORT",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Table:
    """A table that is there: its name, and the columns that it really stores, in lower case; ``never_null`` among
    these are those that the database itself keeps free of NULL.
    """

    name: str
    columns: frozenset[str]
    never_null: frozenset[str] = frozenset()

    def first(self, *columns: str, otherwise: int | None = None) -> str:
        """The first value of some columns that is not NULL, as an expression; missing columns count as such."""
        there = [column.lower() for column in columns if column.lower() in self.columns]
        if there and there[0] in self.never_null:
            return f'"{there[0]}"'
        given = [*(f'"{column}"' for column in there), *([] if otherwise is None else [str(otherwise)])]
        return f"COALESCE({', '.join(given)})" if len(given) > 1 else given[0] if given else "NULL"


class Database:
    """The tables of one export. Everything raises SourceError where the file is damaged, with what SQLite says."""

    def __init__(self, path: Path, place: str) -> None:
        self.place = place
        for pending in ("-wal", "-journal"):
            beside = path.with_name(path.name + pending)
            if beside.is_file() and beside.stat().st_size:
                raise SourceError(
                    f"{place} is not finished: {beside.name} beside it holds changes that are not in it yet",
                    "wait until nsys export has ended, or export it again",
                )
        size = path.stat().st_size
        self._longest = max(size // _LEAST_ROW_BYTES, 1)
        with self._words():
            self._connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
            try:
                self._check_size(size)
                self._prepare()
            except BaseException:  # an interrupt, too: no file stays open
                self._connection.close()
                raise

    def _check_size(self, size: int) -> None:
        """Refuse a file whose last page is cut off: SQLite reads zeros in its place."""
        ((pages,),) = self._connection.execute("PRAGMA page_count")
        ((page,),) = self._connection.execute("PRAGMA page_size")
        if pages * page > size:
            raise self.damaged(f"it has {size} bytes of {pages * page}: it is cut off")

    def _prepare(self) -> None:
        database = self._connection
        # Text that is not UTF-8 is still text.
        database.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        schema = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        listed = database.execute(schema).fetchall()
        self.tables: Mapping[str, Table] = {
            name.lower(): self._described(name)
            for name, definition in listed
            if _READ.fullmatch(str(name)) and not re.match(r"\s*CREATE\W+VIRTUAL", str(definition), re.IGNORECASE)
        }
        allowed = set(self.tables)

        def authorise(action: int, first: str | None, second: str | None, *_: str | None) -> int:
            if action == _CODE["read"] and str(first).lower() in allowed:
                return sqlite3.SQLITE_OK
            if action == _CODE["function"] and str(second).lower() in _FUNCTIONS:
                return sqlite3.SQLITE_OK
            return sqlite3.SQLITE_OK if action == _CODE["select"] else sqlite3.SQLITE_DENY

        database.set_authorizer(authorise)

    def _described(self, name: str) -> Table:
        """A table by what its database tells of its columns: place, name, type, whether NULL is kept out."""
        rows = self._connection.execute(f'PRAGMA table_info("{name}")').fetchall()
        columns = {str(row[1]).lower(): bool(row[3]) for row in rows}
        return Table(name, frozenset(columns), frozenset(column for column, kept in columns.items() if kept))

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def table(self, name: str) -> Table | None:
        """The table of a name, or of its newest old variant (``_V3``); None where none of them holds a row."""
        variants = [known for known in self.tables if re.fullmatch(rf"{name.lower()}_v\d+", known)]
        variants.sort(key=lambda known: int(known.rpartition("_v")[2]), reverse=True)
        for known in (name.lower(), *variants):
            table = self.tables.get(known)
            if table is not None and next(self.rows(f'SELECT 1 FROM "{table.name}" LIMIT 1'), None):
                return table
        return None

    def rows(self, query: str, values: Sequence[int] = ()) -> Iterator[tuple[object, ...]]:
        """The rows of a query, of any type."""
        with self._words():
            yield from self._connection.execute(query, tuple(values))

    def numbers(self, table: Table, expressions: Sequence[str], where: str = "") -> Iterator[Int64]:
        """Blocks of rows by columns of whole numbers. Raises ValueError where something else is among them."""
        query = f'SELECT {", ".join(expressions)} FROM "{table.name}"{where and f" WHERE {where}"}'
        count = 0
        with self._words():
            flat = chain.from_iterable(self._connection.execute(query))
            while True:
                try:
                    block = np.fromiter(islice(flat, ROWS * len(expressions)), dtype=np.int64)
                except (TypeError, OverflowError) as error:
                    raise ValueError(str(error)) from None
                if not len(block):
                    return
                count += len(block) // len(expressions)
                if count > self._longest:
                    raise self.damaged(f"{table.name} gives more rows than the file has room for")
                yield np.ascontiguousarray(block.reshape(-1, len(expressions)).T)

    def strings(self, identifiers: Iterable[int]) -> dict[int, str]:
        """The strings of these identifiers, those that are there. No other string is looked at."""
        table = self.tables.get("stringids")
        if table is None or not {"id", "value"} <= table.columns:
            return {}
        wanted = [identifier for identifier in identifiers if identifier >= 0]
        found: dict[int, str] = {}
        for begin in range(0, len(wanted), _AT_ONCE):
            some = wanted[begin : begin + _AT_ONCE]
            query = (
                f"SELECT id, substr(value, 1, {_LONGEST_NAME}) FROM StringIds "
                f"WHERE id IN ({', '.join('?' * len(some))})"
            )
            rows = self.rows(query, some)
            found |= {number: text for number, text in rows if isinstance(number, int) and isinstance(text, str)}
        return found

    def damaged(self, what: str) -> SourceError:
        """The error of a file that is damaged in some way."""
        return SourceError(
            f"{self.place} is damaged: {what}",
            Advice(
                "export it again, and wait until that has ended", "nsys export --type sqlite --force-overwrite true ..."
            ),
        )

    @contextmanager
    def _words(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise self.damaged(f"SQLite says {str(error)[:200]!r}") from None
        except UnicodeDecodeError:  # what SQLite says quotes the damage
            raise self.damaged("SQLite's words on it cannot be read either") from None


def timed(start: str = "start", end: str = "end") -> str:
    """The condition that a row has usable times."""
    return (
        f'typeof("{start}") = \'integer\' AND typeof("{end}") = \'integer\' AND "{end}" >= "{start}" '
        f'AND "{start}" > {-_LATEST} AND "{end}" < {_LATEST} AND "{end}" - "{start}" < {_LONGEST_NS}'
    )


def whole(expression: str) -> str:
    """An expression that is -1 wherever it is no whole number."""
    return f"CASE WHEN typeof({expression}) = 'integer' THEN {expression} ELSE -1 END"


def usable(start: Int64, end: Int64) -> bool:
    """Whether all times are ones."""
    if not bool(((end >= start) & (start > -_LATEST) & (end < _LATEST)).all()):
        return False
    return not len(start) or int((end - start).max()) < _LONGEST_NS
