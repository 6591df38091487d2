"""Ottla: a Kafka-compatible streaming platform in Python. `ARCHITECTURE.md` is the map of this package."""

from __future__ import annotations

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`import ottla; ottla.testing.Broker()` works, and `import ottla` alone loads nothing."""
    if name in ("client", "testing"):
        import importlib

        return importlib.import_module(f"ottla.{name}")
    raise AttributeError(f"module 'ottla' has no attribute {name!r}")
