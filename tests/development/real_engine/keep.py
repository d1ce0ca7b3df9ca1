"""Pack a run's results as test data: recordings and reports as they were written, in one archive that git can hold.

Pages of one recording are nearly the same, and pack to a hundredth. Only the texts that a benchmark generated are left
out. Nothing may name a folder of this machine.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from development.real_engine.engines import Broken

REPORTS: Final = ("live.json", "test.json", "probe.json", "recorded.json")
FACTS: Final = ("cpu.yaml", "random-llama/config.json")
#: Of a GGUF file the header is kept (30.7 kB), as that is all that is read of it.
HEADER: Final = 32 * 2**10


def results(folder: Path, target: Path) -> None:
    """Write ``run.tar.xz``. Broken where a file would tell of this machine."""
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target / "run.tar.xz", "w:xz", preset=9) as archive:
        for path in _wanted(folder):
            content = _cut(path)
            for private in {str(folder.parent), str(Path.home())}:
                if private.encode() in content:
                    raise Broken(f"{path} names {private}, and would be kept: nothing of this machine belongs there")
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def _wanted(folder: Path) -> Iterator[Path]:
    yield from (folder / name for name in (*FACTS, *REPORTS))
    yield from folder.glob("*.gguf")
    yield from (*sorted(folder.glob("*-load.json")), *folder.glob("llama-bench.json"))
    for top in ("recordings", "kept"):
        yield from (path for path in sorted((folder / top).rglob("*")) if path.is_file())


def _cut(path: Path) -> bytes:
    if path.suffix == ".gguf":
        with path.open("rb") as file:
            return file.read(HEADER)
    content = path.read_bytes()
    if path.name != "bench.json":
        return content
    document = json.loads(content)
    document.pop("generated_texts", None)
    return json.dumps(document).encode()
