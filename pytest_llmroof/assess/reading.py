"""The sources of a window: what its telemetry, its recordings and its profiles say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from pytest_llmroof.asked import ask, asks, of_files
from pytest_llmroof.errors import SourceError
from pytest_llmroof.gates.spec import WindowSpec
from pytest_llmroof.profiles.finding import find_profiles
from pytest_llmroof.profiles.profile import Profile, ProfileFile
from pytest_llmroof.taken import Taken
from pytest_llmroof.telemetry.engine_entries import with_engines
from pytest_llmroof.telemetry.reading import read_window
from pytest_llmroof.telemetry.window import SourceInfo, Window

#: What messages call a recording that is only kept while pytest runs.
UNNAMED: Final = "live"
#: The kind of a window that nothing but profiles tells of.
PROFILED: Final = "profile"


def profile_files(spec: WindowSpec) -> tuple[ProfileFile, ...]:
    """The files among the window's telemetry, and in its recordings, that a profiler wrote."""
    return find_profiles([(source.path, source.shown) for source in spec.telemetry if source.path is not None])


def read_profiles(spec: WindowSpec) -> Profile | None:
    """What the window's profiles tell; None without any. One that cannot be read is in there, with the reason."""
    files = profile_files(spec)
    if not files:
        return None
    # Here, so that windows without a profile do not pay for NumPy.
    from pytest_llmroof.profiles.reading import read_profile

    return read_profile(files)


def read(spec: WindowSpec, taken: Taken | None = None) -> list[Window]:
    """The window's telemetry, and that of its repeats. Raises SourceError where there is none, or it can't be read."""
    if spec.unset:
        names = ", ".join(f"${name}" for name in spec.unset)
        raise SourceError(f"environment variable {names} is not set and has no default", f"set {names} for pytest")
    if not spec.telemetry:
        in_file = spec.id.partition("::")[0].endswith((".yaml", ".yml"))
        key = "telemetry:" if in_file else "@pytest.mark.llmroof(telemetry=[...])"
        raise SourceError("the window names no telemetry", f"write `{key}` or give --llmroof-telemetry=SOURCE")
    paths = [(source.path, source.shown) for source in spec.telemetry if source.path is not None]
    if taken is not None and taken.failure is not None:
        raise SourceError(*taken.failure)
    if asks(spec):
        return [taken.window if taken and taken.window else ask(spec, taken.block if taken else None)]
    if not spec.sampled:
        return [of_files(spec, _read_files(spec, paths))]
    if taken is None:
        raise SourceError("the window was not measured")
    return [
        _read_recording(spec, [one, *paths], f"window {number} of {len(taken.recordings)}: ")
        for number, one in enumerate(taken.recordings, 1)
    ]


def _read_files(spec: WindowSpec, paths: Sequence[tuple[Path, str]]) -> Window:
    """Files; a duration that was given for live windows counts only where they carry no clock."""
    profiles = frozenset(file.path for file in profile_files(spec))
    read_lasting = partial(
        read_window,
        paths,
        served_model_name=spec.served_model_name,
        engines=with_engines(spec.engines),
        elsewhere=profiles,
        warmup_seconds=spec.warmup_seconds,
    )
    if spec.duration_fallback:
        window = read_lasting()
        if window.duration_seconds is not None:
            return window
    window = read_lasting(duration_seconds=spec.duration_seconds)
    return replace(window, kind=PROFILED, title="a profile") if not window.kind else window


def _read_recording(spec: WindowSpec, paths: Sequence[tuple[Path, str]], which: str) -> Window:
    """A recording that was made for this window (the first of the paths), with the files that belong to it."""
    try:
        engines, profiles = with_engines(spec.engines), frozenset(file.path for file in profile_files(spec))
        window = read_window(
            paths, served_model_name=spec.served_model_name, engines=engines, elsewhere=profiles
        )  # fmt: skip
    except SourceError as error:
        raise SourceError(error.reason if spec.repeat == 1 else which + error.reason, error.remedy) from None
    if paths[0][1] != UNNAMED:
        return window
    # Nobody keeps this recording: reports name the servers.
    servers = ", ".join(source.shown for source in spec.telemetry if source.kind == "url")
    infos = (
        SourceInfo(info.kind, servers) if info.location == UNNAMED else info for info in window.sources
    )  # fmt: skip
    return replace(window, sources=tuple(dict.fromkeys(infos)))
