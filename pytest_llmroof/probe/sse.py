"""Server-sent events as the WHATWG standard has them, from bytes that may be cut anywhere."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Final

#: No chunk of a completion is longer; a stream without line ends would fill the memory.
MAXIMUM_CHARACTERS: Final = 4 * 2**20


class TooLong(ValueError):
    """An event that does not end."""


class Events:
    """Takes bytes as they come and gives the ``data`` of every event that they complete.

    Lines end in LF, CR LF or CR; comments and fields other than ``data`` are skipped; lines of data are joined by LF.
    An event counts when the blank line behind it is there. TooLong for one of more than 4 Mi characters.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8-sig")(errors="replace").decode
        self._rest = ""
        self._data: list[str] = []
        self._length = 0
        self._after_cr = False

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The events that these bytes complete."""
        text = self._decode(chunk)
        if self._after_cr and text:
            # The LF of a CR LF that was cut between the two ends no second line.
            text = text.removeprefix("\n")
            self._after_cr = False
        self._after_cr = text.endswith("\r") or (self._after_cr and not text)
        *lines, self._rest = (self._rest + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for line in lines:
            yield from self._line(line)
        if self._length + len(self._rest) > MAXIMUM_CHARACTERS:
            raise TooLong

    @property
    def unfinished(self) -> str:
        """The data of an event that was begun and not completed."""
        found = [*self._data, *self._value(self._rest)]
        return "\n".join(found)

    def _line(self, line: str) -> Iterator[str]:
        if line:
            values = self._value(line)
            self._data += values
            self._length += sum(map(len, values))
            if self._length > MAXIMUM_CHARACTERS:
                raise TooLong
            return
        data, self._data, self._length = self._data, [], 0
        if data:
            yield "\n".join(data)

    @staticmethod
    def _value(line: str) -> list[str]:
        """The value of a line of data; nothing for any other line."""
        name, _, value = line.partition(":")
        return [value.removeprefix(" ")] if name == "data" else []
