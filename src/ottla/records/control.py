"""Control records: the markers that end a transaction in each partition it touched.

Owns: the bytes of a marker's key and value, and the control batch around it. Never decides when one is written.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.errors import MalformedInput
from ottla.records.record import Record, build_batch

ABORT: Final = 0
COMMIT: Final = 1

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


def build_end_txn_marker(
    kind: int, *, coordinator_epoch: int, producer_id: int, producer_epoch: int, timestamp_ms: int, base_offset: int = 0
) -> bytes:
    """The control batch that commits or aborts what a producer wrote to a partition."""
    record = (_KEY.pack(0, kind), _VALUE.pack(0, coordinator_epoch), (), timestamp_ms)
    return build_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def control_type(record: Record) -> int:
    """ABORT, COMMIT or, for control records of later kinds (leader change, snapshots), their own number."""
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
