"""A pytest plugin for the suite, which imports Karapace: stands in for its library in Go, and for what its build writes.

Only Karapace's own server needs them. The suite runs against another one.
"""

from __future__ import annotations

import sys
from types import ModuleType


def _module(name: str, **content: object) -> None:
    module = ModuleType(name)
    vars(module).update(content)
    sys.modules[name] = module


def _unused(*_: object) -> None:
    raise NotImplementedError


_module("karapace.version", __version__="0", version="0")
_module(
    "karapace.core.protobuf.protopace.protopace",
    check_compatibility=_unused,
    format_proto=_unused,
    IncompatibleError=type("IncompatibleError", (Exception,), {}),
    Proto=type("Proto", (), {}),
)
