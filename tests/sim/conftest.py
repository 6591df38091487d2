from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _collect() -> Iterator[None]:
    """The runs make cycles of tasks and loops; collected between tests, never in the middle of a run."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
