"""Words for the vendor of the accelerator: a remedy or a command that speaks of another vendor's tools helps nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pytest_llmroof.advice import AnyAdvice, as_advice
from pytest_llmroof.analysis.facts import WindowFacts
from pytest_llmroof.data import load
from pytest_llmroof.roofline.catalogue import accelerator_for_device

#: Whose words the data hold, also for an accelerator of which nobody says whose it is.
NVIDIA: Final = "NVIDIA"
_UNCHANGED: Final = object()


def vendor_of(facts: WindowFacts) -> str:
    """The accelerator's vendor: as it was described, else as the counters' devices are in the catalogue."""
    accelerator = facts.deployment.accelerator
    if accelerator is not None:
        return accelerator.vendor or NVIDIA
    hardware = facts.window.hardware
    names = [gpu.device_name for gpu in hardware.gpus if gpu.device_name] if hardware is not None else []
    known = {found.vendor for name in names if (found := accelerator_for_device(name)) is not None}
    return known.pop() or NVIDIA if len(known) == 1 else NVIDIA


def remedy_words(title: str, vendor: str) -> Mapping[str, str] | None:
    """What of a remedy (title, detail) is said in other words; None where it is no remedy there."""
    words = _words("remedies", title, vendor)
    if words is _UNCHANGED:
        return {}
    return None if words is None else {str(key): str(text) for key, text in words.items()}


def instrument_for(name: str, vendor: str) -> AnyAdvice | None:
    """How to look with the vendor's own instrument of this kind; None where it has none."""
    return _advice(_words("instruments", name, vendor), load("scenarios.yaml")["instruments"][name])


def remedy_for(name: str, vendor: str) -> AnyAdvice | None:
    """What to collect, by a key of ``measuring.yaml``; None where nothing of this vendor's is read."""
    return _advice(_words("measuring", name, vendor), load("measuring.yaml")["remedies"][name])


def profile_wanted(vendor: str) -> AnyAdvice:
    """How to take a profile of a server: PyTorch's is everybody's."""
    words = remedy_for("profile", vendor)
    assert words is not None
    return words


def elsewhere_for(key: str, reason: str, vendor: str) -> str:
    """Why engine metrics do not hold something, and who would tell."""
    words = _words("elsewhere", key, vendor)
    return reason if words is _UNCHANGED or words is None else str(words)


def clock_command(cause: str, vendor: str) -> str | None:
    """The command that tells why a clock is low; None where it is not known."""
    found = load("vendors.yaml")["clock"][cause].get(vendor)
    return None if found is None else str(found)


def link_name(vendor: str | None) -> str:
    """What the links between accelerators of one node are called."""
    names = load("vendors.yaml")["links"]
    return str(names.get(vendor or NVIDIA, names["other"]))


def _words(section: str, key: str, vendor: str) -> Any:
    words = load("vendors.yaml")[section].get(key)
    if words is None or vendor == NVIDIA:
        return _UNCHANGED
    return words.get(vendor, words.get("other", _UNCHANGED)) if vendor in words or "other" in words else _UNCHANGED


def _advice(words: Any, otherwise: Mapping[str, str] | str) -> AnyAdvice | None:
    if words is _UNCHANGED:
        return as_advice(otherwise)
    return None if words is None else as_advice(words)
