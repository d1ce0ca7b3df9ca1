"""Models in GGUF files: the header is read whatever the file's size, the parts of a split file together."""

from __future__ import annotations

import mmap
import re
import stat
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from pytest_llmroof.errors import ConfigError, LlmroofError, Position, UnknownModelError
from pytest_llmroof.roofline.models.gguf import GgufModel
from pytest_llmroof.roofline.models.ggufheader import Header, HeaderError, read_header
from pytest_llmroof.roofline.models.ggufreading import model_from_gguf

_PART: Final = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def gguf_model(path: Path, shown: str, position: Position | None) -> GgufModel:
    """The model in a GGUF file, or in all files of a split one if ``path`` is one of them.

    ConfigError with the file and the byte where a header is broken, and at ``position`` where a file is missing;
    UnknownModelError for what is not understood.
    """
    paths = _parts(path)
    stamps = []
    for part in paths:
        try:
            found = part.stat()
        except OSError as error:
            raise ConfigError(f"model: {_beside(shown, part)} cannot be read: {error.strerror}", position) from None
        if not stat.S_ISREG(found.st_mode):  # a pipe would be waited for
            kind = "a folder, not a file" if stat.S_ISDIR(found.st_mode) else "not a file"
            raise ConfigError(f"model: {_beside(shown, part)} is {kind}", position)
        stamps.append((found.st_mtime_ns, found.st_size))
    outcome = _read(tuple(paths), shown, tuple(stamps))
    if isinstance(outcome, LlmroofError):
        raise outcome.with_traceback(None)
    return outcome


@cache
def _read(paths: tuple[Path, ...], shown: str, stamps: tuple[tuple[int, int], ...]) -> GgufModel | LlmroofError:
    """Read once for all windows that name it, as long as the files stay the same; what went wrong is kept too."""
    headers = []
    for path in paths:
        name = _beside(shown, path)
        try:
            headers.append(_header(path))
        except HeaderError as error:
            problem = f"the header is broken: {error.problem}; is the file whole?"
            return ConfigError(problem, Position(f"{name}:byte {error.offset}"))
        except UnknownModelError as error:
            return UnknownModelError(f"{name}: {error}")
        except OSError as error:
            return ConfigError(f"cannot be read: {error.strerror}", Position(name))
    try:
        return model_from_gguf(_joined(headers), _PART.sub("", paths[0].name).removesuffix(".gguf"))
    except ConfigError as error:
        return ConfigError(error.problem, Position(shown))
    except UnknownModelError as error:
        return UnknownModelError(f"{shown}: {error}")


def forget_headers() -> None:
    """Read files again, whatever was read of files with the same name, size and time."""
    _read.cache_clear()


def _header(path: Path) -> Header:
    with path.open("rb") as file:
        if not path.stat().st_size:
            return read_header(b"")
        # Mapped: only the pages of the header are ever read.
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return read_header(mapped)


def _joined(headers: Sequence[Header]) -> Header:
    """One header of all parts: the first has the metadata, each its own tensors."""
    first = headers[0]
    count, tensors = first.metadata.get("split.count", 1), tuple(each for header in headers for each in header.tensors)
    if count > 1 and count != len(headers):
        raise ConfigError(
            f"one of {count} files of a split model: name it as its tool did (NAME-00001-of-{count:05}.gguf), "
            "beside the others"
        )
    stated = first.metadata.get("split.tensors.count", len(tensors))
    if stated != len(tensors):
        raise ConfigError(f"its {len(headers)} files hold {len(tensors)} tensors, not the {stated} that it says")
    return Header(first.metadata, tensors)


def _parts(path: Path) -> list[Path]:
    """All files of a split model, in order; else the file itself."""
    found = _PART.search(path.name)
    if found is None:
        return [path]
    stem, count = path.name[: found.start()], int(found[2])
    return [path.with_name(f"{stem}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]


def _beside(shown: str, path: Path) -> str:
    """How a file is shown that stands beside the one that was named."""
    folder, slash, _ = shown.rpartition("/")
    return f"{folder}{slash}{path.name}"
