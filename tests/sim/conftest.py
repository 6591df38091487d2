from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _collect() -> Iterator[None]:
    """Runs leave cycles of tasks and loops: collect them between tests, never inside of a run."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
