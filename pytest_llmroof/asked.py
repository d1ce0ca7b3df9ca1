"""A window that a Prometheus-compatible server is asked for: what may stand beside it, and what it must hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_llmroof.advice import AnyAdvice
from pytest_llmroof.errors import SourceError
from pytest_llmroof.gates.spec import TelemetrySource, WindowSpec
from pytest_llmroof.profiles.finding import find_profiles
from pytest_llmroof.taken import Block
from pytest_llmroof.telemetry.engine_entries import with_engines
from pytest_llmroof.telemetry.threads import secluded
from pytest_llmroof.telemetry.window import Window
from pytest_llmroof.units import grouped


def asks(spec: WindowSpec) -> bool:
    """Whether the window's telemetry is asked for, not sampled or read from files."""
    return any(source.kind == "prometheus" for source in spec.telemetry)


def frames(spec: WindowSpec) -> bool:
    """Whether a block of a test decides over the window's time: where it is sampled, or asked about the present.

    A source that names another ``end`` is asked about that, whatever the test does.
    """
    ends = [source.options.get("end", "now") for source in spec.telemetry if source.kind == "prometheus"]
    return spec.sampled or (bool(ends) and all(end == "now" for end in ends))


def within(spec: WindowSpec, block: Block) -> WindowSpec:
    """The specification, asked about a block: not a duration before some end, but from its start to its end."""
    return _with_options(spec, {"duration": block.end - block.start, "end": repr(block.end)})


def with_common_end(spec: WindowSpec) -> WindowSpec:
    """The specification, where a Prometheus source that names no ``end`` has the one that another of them names."""
    options = [source.options for source in spec.telemetry if source.kind == "prometheus"]
    ends = [given["end"] for given in options if "end" in given]
    return _with_options(spec, {"end": ends[0]}, given=True) if ends else spec


def _with_options(spec: WindowSpec, options: Mapping[str, object], *, given: bool = False) -> WindowSpec:
    """The specification with these options of its Prometheus sources; ``given``: where they have none of their own."""

    def changed(source: TelemetrySource) -> TelemetrySource:
        if source.kind != "prometheus":
            return source
        merged = {**options, **source.options} if given else {**source.options, **options}
        return replace(source, options=merged)

    return replace(spec, telemetry=tuple(map(changed, spec.telemetry)))


def ask(spec: WindowSpec, block: Block | None = None) -> Window:
    """The window as the server tells it, of a ``block`` where one is given.

    SourceError where it cannot, or where the window asks for what it cannot.
    """
    spec = within(spec, block) if block is not None else spec
    servers = [source for source in spec.telemetry if source.kind == "prometheus"]
    paths = [(source.path, source.shown) for source in spec.telemetry if source.path is not None]
    live = [source.shown for source in spec.telemetry if source.kind != "prometheus" and source.path is None]
    if live:
        # It would be sampled now, and what Prometheus scraped of it would count twice.
        raise SourceError(
            f"{', '.join(live)}: a live server cannot stand beside a Prometheus server",
            "give it a window of its own, or let Prometheus scrape it",
        )
    if spec.repeat > 1:
        raise SourceError(
            f"{servers[0].shown}: `repeat` measures live servers again; what Prometheus holds stays the same",
            "leave `repeat` out and widen `duration`, or write windows with different `end`",
        )
    window = secluded("llmroof-ask", f"{servers[0].shown} can't be asked", _answered, spec)
    if paths:
        from pytest_llmroof.telemetry.fleetfiles import with_files

        profiles = frozenset(file.path for file in find_profiles(paths))
        window = with_files(window, paths, with_engines(spec.engines), profiles)
    _refuse_few(spec, window)
    if block is None:
        return window
    note = (
        f"the window is what Prometheus scraped within the block of {block.end - block.start:.1f} s; it was asked "
        f"{block.waited_seconds:.3g} s after its end, one scrape interval later"
    )
    return replace(window, notes=(*window.notes, note))


def _answered(spec: WindowSpec) -> Window:
    """What the servers answer."""
    # Here, so that windows of files do not pay for an HTTP client.
    from pytest_llmroof.telemetry.fleetsource import prometheus_window

    return prometheus_window(
        *(source.options for source in spec.telemetry if source.kind == "prometheus"),
        duration_seconds=spec.duration_seconds,
        warmup_seconds=spec.warmup_seconds,
        served_model_name=spec.served_model_name,
        engines=with_engines(spec.engines),
    )


def _refuse_few(spec: WindowSpec, window: Window) -> None:
    refuse_few(spec, window, "widen `duration`, choose another `end`, or ask for fewer")


def refuse_few(spec: WindowSpec, window: Window, remedy: AnyAdvice) -> None:
    """SourceError where fewer requests finished than the window asks for, or nobody counted them."""
    if spec.min_requests is None:
        return
    finished = window.counter("requests_finished")
    if finished is None and window.client is not None:
        finished = window.client.completed
    if finished is None:
        raise SourceError("these sources do not count finished requests", "leave out `min_requests:`")
    if finished < spec.min_requests:
        raise SourceError(
            f"only {grouped(finished)} of the {grouped(spec.min_requests)} requests asked for (min_requests) finished",
            remedy,
        )


def of_files(spec: WindowSpec, window: Window) -> Window:
    """A window of files: what it asks of a live one holds for it too, or is said to change nothing."""
    refuse_few(spec, window, "record the load for longer, or ask for fewer")
    notes = []
    if spec.warmup_seconds and window.kind == "profile":
        notes.append("`warmup` changes nothing of a profile")
    if spec.repeat > 1:
        notes.append("`repeat` changes nothing: this telemetry was recorded before")
    return replace(window, notes=(*window.notes, *notes)) if notes else window
