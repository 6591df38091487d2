"""Ottla: a Kafka-compatible streaming platform in Python. `ARCHITECTURE.md` is the map of this package."""

from __future__ import annotations

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`import ottla; ottla.testing.Broker()`, `ottla.spark.session()`, `ottla.connect()` work; import loads nothing."""
    import importlib

    if name in ("client", "spark", "testing"):
        return importlib.import_module(f"ottla.{name}")
    if name == "connect":
        return importlib.import_module("ottla.notebook.cluster").connect
    raise AttributeError(f"module 'ottla' has no attribute {name!r}")
