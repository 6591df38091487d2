"""Loads kafka-python once with its own warnings off (it reads its schemas through a deprecated call); ours stay errors."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kafka
    import kafka.admin
    import kafka.producer  # noqa: F401
