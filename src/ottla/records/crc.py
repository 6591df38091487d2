"""CRC-32C of the package `crc32c`, which uses the processor's instruction.

The package's `__init__` reads its version from the installed metadata, which takes a twentieth of a broker's start. So its
extension module is imported directly if possible.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Protocol

from ottla.types import Buffer


class Crc32c(Protocol):
    def __call__(self, data: Buffer, value: int = 0, /) -> int:
        """The CRC of data; `value` is that of the bytes before it."""
        ...


def _find() -> Crc32c:
    package = PathFinder.find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", places) if places is not None else None
    if spec is None or spec.loader is None:
        from crc32c import crc32c

        return crc32c
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Crc32c = module.crc32c
    return found


crc32c: Crc32c = _find()
