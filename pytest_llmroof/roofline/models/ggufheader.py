"""The header of a GGUF file: its metadata and what it says about every tensor. The weights are never touched."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pytest_llmroof.data import load
from pytest_llmroof.errors import ConfigError, UnknownModelError

_MAGIC: Final = b"GGUF"
_STRING: Final = 8
_ARRAY: Final = 9
#: Formats of the metadata's numbers, by the number of their type.
_SCALARS: Final[Mapping[int, str]] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
#: Longer arrays are vocabularies: their length is kept, their content passed over.
_LONG_ARRAY: Final = 4096
_MOST_DIMENSIONS: Final = 4


class HeaderError(ConfigError):
    """What is wrong with a header; ``offset`` is the byte where it is."""

    def __init__(self, problem: str, offset: int) -> None:
        super().__init__(problem)
        self.offset = offset


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of the file. ``shape`` begins with the inputs, as the file has it; ``type`` is a name like ``Q4_K``."""

    name: str
    shape: tuple[int, ...]
    type: str
    elements: int
    bytes: int


@dataclass(frozen=True)
class Header:
    """Metadata by key, in which a long array is only its length, and the tensors in the file's order."""

    metadata: Mapping[str, Any]
    tensors: tuple[StoredTensor, ...]


def read_header(buffer: bytes | mmap.mmap) -> Header:
    """The header at the beginning of a file, which may be mapped. HeaderError where it is broken or cut off.

    UnknownModelError for a type of tensors that is not known here.
    """
    return _Reader(buffer).header()


class _Reader:
    """Walks through the bytes of one header."""

    def __init__(self, buffer: bytes | mmap.mmap) -> None:
        self.buffer = buffer
        self.size = len(buffer)
        self.place = 0
        self.order = "<"

    def header(self) -> Header:
        """All of it."""
        if self.size < len(_MAGIC) or self.buffer[: len(_MAGIC)] != _MAGIC:
            raise HeaderError("not a GGUF file: it does not begin with the letters GGUF", 0)
        self.place = len(_MAGIC)
        self.version()
        tensors, keys = self.number("Q", "the number of tensors"), self.number("Q", "the number of metadata keys")
        # Each takes some bytes of the file: a number beyond that is a broken one, and not to be counted to.
        for count, least in ((tensors, 24), (keys, 13)):
            if count * least > self.size - self.place:
                raise HeaderError(f"the file ends before its {tensors} tensors and {keys} metadata keys", self.size)
        metadata = dict(self.pair() for _ in range(keys))
        return Header(metadata, tuple(self.tensor() for _ in range(tensors)))

    def version(self) -> None:
        """The version, whose bytes tell their order."""
        start, version = self.place, self.number("I", "the version")
        if version & 0xFFFF == 0:
            self.place, self.order = start, ">"
            version = self.number("I", "the version")
        if version not in (2, 3):
            raise HeaderError(f"GGUF version {version}: versions 2 and 3 are read", start)

    def pair(self) -> tuple[str, Any]:
        """A key of the metadata and its value."""
        key = self.text("a metadata key")
        return key, self.value(self.number("I", f"the type of {key}"), key)

    def value(self, kind: int, key: str) -> Any:
        """A value of the metadata."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind], key)
        if kind == _STRING:
            return self.text(key)
        if kind == _ARRAY:
            return self.array(key)
        raise HeaderError(f"the value of {key} has the type {kind}, which GGUF does not have", self.place - 4)

    def array(self, key: str) -> Any:
        """An array's values, or its length where it is long."""
        kind, length = self.number("I", key), self.number("Q", key)
        if kind == _STRING:
            return self.texts(length, key)
        if kind not in _SCALARS:
            raise HeaderError(f"the array {key} has elements of the type {kind}", self.place - 12)
        form = f"{self.order}{min(length, _LONG_ARRAY)}{_SCALARS[kind]}"
        start = self.advance(length * struct.calcsize("<" + _SCALARS[kind]), key)
        return length if length > _LONG_ARRAY else list(struct.unpack_from(form, self.buffer, start))

    def texts(self, length: int, key: str) -> Any:
        """An array of texts, which are passed over: only how many they are is of use."""
        if length * 8 > self.size - self.place:
            raise HeaderError(f"the file ends inside of {key}", self.size)
        read = struct.Struct(self.order + "Q").unpack_from
        for _ in range(length):
            if self.place + 8 > self.size:
                raise HeaderError(f"the file ends inside of {key}", self.size)
            self.place += 8 + read(self.buffer, self.place)[0]
        self.advance(0, key)
        return length

    def tensor(self) -> StoredTensor:
        """What stands about one tensor."""
        start, name = self.place, self.text("a tensor's name")
        dimensions = self.number("I", f"the dimensions of {name}")
        if not 0 < dimensions <= _MOST_DIMENSIONS:
            raise HeaderError(f"the tensor {name!r} has {dimensions} dimensions", self.place - 4)
        shape = tuple(self.number("Q", f"the shape of {name}") for _ in range(dimensions))
        kind = self.number("I", f"the type of {name}")
        self.number("Q", f"the place of {name}")
        if kind not in _types():
            raise UnknownModelError(f"the tensor {name!r} has the type {kind}, which is none that is known here")
        type_name, block, size = _types()[kind]
        elements = 1
        for side in shape:
            elements *= side
        if elements == 0 or shape[0] % block:
            raise HeaderError(f"the tensor {name!r} of shape {shape} is not made of {type_name}'s blocks", start)
        return StoredTensor(name, shape, type_name, elements, elements // block * size)

    def text(self, what: str) -> str:
        """A text: its length, and so many bytes."""
        length = self.number("Q", what)
        start = self.advance(length, what)
        try:
            return self.buffer[start : start + length].decode()
        except UnicodeDecodeError:
            raise HeaderError(f"{what} is no UTF-8 text", start) from None

    def number(self, form: str, what: str) -> Any:
        """A number of a format of ``struct``."""
        form = self.order + form
        start = self.advance(struct.calcsize(form), what)
        return struct.unpack_from(form, self.buffer, start)[0]

    def advance(self, size: int, what: str) -> int:
        """Where the next ``size`` bytes begin, which are then behind."""
        start = self.place
        if start + size > self.size:
            raise HeaderError(f"the file ends inside of {what}", self.size)
        self.place = start + size
        return start


@cache
def _types() -> Mapping[int, tuple[str, int, int]]:
    return {number: tuple(entry) for number, entry in load("gguf.yaml")["types"].items()}
