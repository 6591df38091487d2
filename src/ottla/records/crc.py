"""The CRC-32C of the package `crc32c`, which uses the processor's own instruction for it.

Its `__init__` looks up its own version in the metadata of all that is installed, and brings a parser of command lines along: a
twentieth of a broker's start. So the compiled half is loaded by itself where it can be found, and is the same function.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

from ottla.types import Buffer


def _find() -> Callable[[Buffer], int]:
    package = PathFinder.find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", places) if places is not None else None
    if spec is None or spec.loader is None:
        from crc32c import crc32c

        return crc32c
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[Buffer], int] = module.crc32c
    return found


crc32c: Callable[[Buffer], int] = _find()
