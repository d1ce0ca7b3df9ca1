"""Files of reports: there whole, or not at all. Standard output: written whole, or an error that says so."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pytest_llmroof.errors import SourceError


def write_whole(path: Path, text: str) -> None:
    """Write the text as UTF-8 with plain line ends; a reader never sees half of it. Raises OSError."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:  # an interrupt, too: no half of a file is left
        temporary.unlink(missing_ok=True)
        raise


def print_whole(text: bytes) -> None:
    """Write to standard output, as UTF-8 like any file. SourceError where it does not take all of it."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
    except OSError as error:
        # The interpreter writes what is left at its end, and would complain in words of its own.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        raise SourceError(f"standard output can't be written: {error.strerror or error}") from None


def _umask() -> int:
    """What the user allows new files; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
