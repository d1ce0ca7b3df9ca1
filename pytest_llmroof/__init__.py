"""Performance gates for LLM serving: a pytest plugin over the roofline."""

import importlib
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """``GateBreach``, imported only by whoever asks for it: an unused plugin costs nothing."""
    if name == "GateBreach":
        return importlib.import_module("pytest_llmroof.breach").GateBreach
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
