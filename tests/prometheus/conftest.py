"""A server that speaks Prometheus' API from a script."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scripted import Script, scripted


@pytest.fixture
def script() -> Iterator[Script]:
    """Answers as its script says: a small fleet, where a test sets nothing else."""
    with scripted() as found:
        yield found
