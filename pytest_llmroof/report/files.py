"""Files of reports: there whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


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


def _umask() -> int:
    """What the user allows new files; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
