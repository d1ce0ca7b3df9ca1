"""The bytes of a file, unpacked where it is packed: whatever its name says, in pieces, and with what is wrong told."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from pytest_llmroof.errors import SourceError

PIECE: Final = 1 << 20
"""Bytes of a piece: small against the memory that reading may take, large against what a piece costs."""

_MAGIC: Final = b"\x1f\x8b"


class Packed:
    """Reads a plain or gzip file once. ``notes`` tell what was mended; ``unfinished`` that the packed data just end."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.notes: list[str] = []
        self.unfinished = False
        self._path = path

    def pieces(self) -> Iterator[bytes]:
        """The content, in order. Raises SourceError where it cannot be read or unpacked."""
        try:
            with self._path.open("rb") as file:
                packed = file.read(2) == _MAGIC
                file.seek(0)
                if packed:
                    yield from self._unpacked(file)
                else:
                    yield from iter(lambda: file.read(PIECE), b"")
        except OSError as error:
            raise SourceError(f"{self.name} cannot be read: {error.strerror or error}") from None

    def _unpacked(self, file: BinaryIO) -> Iterator[bytes]:
        """Of every gzip member after the other, as gzip itself does."""
        unpacker, rest = _unpacker(), b""
        while True:
            read = rest or file.read(PIECE // 4)
            if not read:
                self.unfinished = not unpacker.eof
                return
            try:
                piece = unpacker.decompress(read, PIECE)
            except zlib.error:
                raise SourceError(
                    f"{self.name}: the packed data are damaged before byte {file.tell()}",
                    f"copy the file again, and check it with gzip -t {self.name}",
                ) from None
            rest = unpacker.unconsumed_tail
            if piece:
                yield piece
            if unpacker.eof:
                rest = (unpacker.unused_data or file.read(PIECE // 4)).lstrip(b"\0")
                if not rest:
                    return
                if len(rest) == 1:
                    rest += file.read(PIECE // 4)
                if not rest.startswith(_MAGIC):
                    self.notes.append(f"{self.name}: what follows the packed data is no gzip, and was left out")
                    return
                unpacker = _unpacker()


def _unpacker() -> zlib._Decompress:
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
