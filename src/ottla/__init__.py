"""Ottla: a Kafka-compatible streaming platform in Python. `ARCHITECTURE.md` is the map of this package."""

from __future__ import annotations

import importlib
import os
import sys

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`import ottla; ottla.testing.Broker()`, `ottla.spark.session()`, `ottla.connect()` work; import loads nothing."""
    if name in ("client", "spark", "testing"):
        return importlib.import_module(f"ottla.{name}")
    if name == "connect":
        return importlib.import_module("ottla.notebook.cluster").connect
    raise AttributeError(f"module 'ottla' has no attribute {name!r}")


def _tell_spark() -> None:
    """Make `format("ottla")` work in Spark sessions of this process, those that start later and one that runs.

    Spark looks for it with PYSPARK_DRIVER_PYTHON, or else the first `python3` of the PATH, which may be one without Ottla.
    """
    names = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    first = next((folder for folder in folders if os.access(os.path.join(folder, "python3"), os.X_OK)), None)
    if sys.executable and os.path.dirname(sys.executable) != first and not any(name in os.environ for name in names):
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if "pyspark.sql" in sys.modules:
        # By name: the broker, which imports this package, depends on no Spark.
        importlib.import_module("ottla.spark").adopt()


_tell_spark()
