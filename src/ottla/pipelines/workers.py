"""What makes a Python worker of Spark cheap to use again.

Spark keeps its Python workers and gives them one task after the other. After each task PySpark's own loop runs a full collection
of garbage, which walks through everything that was ever imported: 30 to 50 ms of CPU, several times for every micro-batch.
"""

from __future__ import annotations

import gc

_settled = False


def settle() -> None:
    """Called by each task of ours, in the worker: what the process has by now is not looked at again by collections.

    Once for a process only: what belongs to a later task is garbage when that task has ended. Nothing outside of a worker.
    """
    from pyspark import TaskContext

    global _settled
    if not _settled and TaskContext.get() is not None:
        _settled = True
        gc.freeze()
