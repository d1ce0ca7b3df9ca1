"""Names of models: what a hub or a server calls them, and what a name tells of the checkpoint's precision."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from pytest_llmroof.data import load

#: What a name may end in without being another model: tuned checkpoints have the shape of the base.
_TUNED = re.compile(r"(-(instruct|chat|hf|base))+$")


def plain_name(name: str) -> str:
    """``meta-llama/Llama-3.1-70B-Instruct`` -> ``llama-3.1-70b``: lower case, organisation and tuning cut.

    Only one organisation is cut: a path of several folders names files, not a model of the hub.
    """
    organisation, slash, rest = name.strip().casefold().partition("/")
    bare = rest if slash and organisation and "/" not in rest else name.strip().casefold()
    return _TUNED.sub("", bare)


@cache
def catalogue_keys() -> Mapping[str, str]:
    """Every name that a catalogue entry goes by, in plain form -> its key."""
    entries: Mapping[str, Mapping[str, list[str]]] = load("models.yaml")
    return {name: key for key, entry in entries.items() for name in (key, *entry.get("also", ()))}


def precision_hint(served_name: str) -> str | None:
    """What a served name says about the weights' precision: ``FP8``, ``AWQ``, ``W4A16``, ``Q4_K_M``; None: nothing.

    Only whole words count, in any case; 16-bit words are no hint.
    """
    found = _hints().search(served_name)
    return found[0].upper() if found else None


@cache
def _hints() -> re.Pattern[str]:
    words = "|".join(load("precisions.yaml")["served_names"])
    return re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])", re.IGNORECASE)
