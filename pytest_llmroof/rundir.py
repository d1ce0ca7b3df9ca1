"""A folder that all processes of a run share: where live windows are recorded, and workers learn of each other's."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_llmroof.errors import SourceError

#: Under which key the controller tells its workers of the folder.
_WORKER_KEY: Final = "llmroof_dir"
_FOLDER: Final = pytest.StashKey[Path]()


def run_folder(config: pytest.Config) -> Path:
    """The run's folder: made when it is first asked for, and removed at the end by the process that made it."""
    found = config.stash.get(_FOLDER, None)
    if found is None:
        given = getattr(config, "workerinput", {}).get(_WORKER_KEY)
        if given is None:
            found = Path(tempfile.mkdtemp(prefix="pytest-llmroof-"))
            config.add_cleanup(partial(shutil.rmtree, found, ignore_errors=True))
        else:
            found = Path(given)
            # A worker on another host has a folder of its own there.
            found.mkdir(mode=0o700, parents=True, exist_ok=True)
        config.stash[_FOLDER] = found
    return found


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Around whatever writes into the run's folder: what the disk does not take is a SourceError."""
    try:
        yield
    except OSError as error:
        problem = f"the run's temporary files can't be written: {error.strerror or error}"
        raise SourceError(problem, "is the disk full?") from None


class RunFolder:
    """Registered where the user is: hands the folder to pytest-xdist's workers."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker."""
        node.workerinput[_WORKER_KEY] = str(run_folder(node.config))


def kept_recordings(config: pytest.Config) -> Iterator[Path]:
    """Every recording of the run that is kept, as seen from where pytest was called."""
    folder = config.stash.get(_FOLDER, None)
    if folder is None:
        return
    from pytest_llmroof.taken import Taken

    for stored in sorted(folder.glob("*.json")):
        for recording, _shown in Taken.read(stored).recordings:
            place = config.invocation_params.dir
            yield recording.relative_to(place) if recording.is_relative_to(place) else recording
