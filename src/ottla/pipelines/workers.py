"""Keeps Spark's reused Python workers cheap.

Spark gives a Python worker one task after the other. After each task PySpark runs a full garbage collection, which walks all
imported modules: 30 to 50 ms of CPU, several times per micro-batch.
"""

from __future__ import annotations

import gc

_is_frozen = False


def exclude_imports_from_gc() -> None:
    """Exclude the objects that exist now from later collections. Only the first call in a worker has an effect."""
    from pyspark import TaskContext

    global _is_frozen
    if not _is_frozen and TaskContext.get() is not None:
        _is_frozen = True
        gc.freeze()
