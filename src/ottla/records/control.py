"""Control records: key and value of the markers that end a transaction in a partition. `own` builds the batch."""

from __future__ import annotations

import struct
from typing import Final

from ottla.errors import MalformedInput
from ottla.records.record import Record

ABORT: Final = 0
COMMIT: Final = 1

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


_COMMIT_KEY: Final = _KEY.pack(0, COMMIT)
_ABORT_KEY: Final = _KEY.pack(0, ABORT)


def marker_fields(commit: bool, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Key and value of an end-transaction marker."""
    return _COMMIT_KEY if commit else _ABORT_KEY, _VALUE.pack(0, coordinator_epoch)


def control_type(record: Record) -> int:
    """ABORT, COMMIT, or the number of another control record type."""
    if record.key is None or len(record.key) < _KEY.size:
        raise MalformedInput("a control record without a type")
    version, kind = _KEY.unpack_from(record.key)
    if version < 0:
        raise MalformedInput(f"control record key of version {version}")
    return int(kind)


def coordinator_epoch_of(record: Record) -> int:
    """The epoch of the coordinator that wrote an end-transaction marker."""
    if record.value is None or len(record.value) < _VALUE.size:
        raise MalformedInput("an end-transaction marker without a coordinator epoch")
    version, epoch = _VALUE.unpack_from(record.value)
    if version < 0:
        raise MalformedInput(f"end-transaction marker of version {version}")
    return int(epoch)
