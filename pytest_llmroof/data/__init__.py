"""What changes often: catalogues, names, thresholds and wording, as YAML."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any


@cache
def load(name: str) -> Any:
    """The content of a packaged YAML file, read once. Treat it as read-only."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(files(__package__).joinpath(name).read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 - safe loaders
