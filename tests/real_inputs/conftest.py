"""Gates on what people fed to tools of this field."""

from __future__ import annotations

import pytest
from judging import Judge


@pytest.fixture
def judge(pytester: pytest.Pytester) -> Judge:
    return Judge(pytester)
