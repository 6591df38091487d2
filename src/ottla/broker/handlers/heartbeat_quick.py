"""What members of classic groups send all the time, answered without building messages: that they live.

Owns a short cut through Heartbeat, all versions. Reads the request, has the group take it (`classic.beat`), and answers, if the
member is known, nothing is going on in its group, and all that its group has written is committed. Of everything else, and of
every error, it says None before anything was changed, and `heartbeat` does the whole of it: what it answers is, byte for byte,
what `heartbeat` would have (tests/broker/test_heartbeat_quick.py holds the two against each other). Compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.broker.network.context import RequestContext
from ottla.errors import KafkaError
from ottla.wire.big_endian import int32

if TYPE_CHECKING:
    from mypy_extensions import i64

    from ottla.broker.replicas.partition import Partition

_THROTTLE_FROM: Final = 1
_INSTANCES_FROM: Final = 3
_FLEXIBLE_FROM: Final = 4

_WELL_V0: Final = b"\0\0\0\6", b"\0\0"
_WELL: Final = b"\0\0\0\12", b"\0\0\0\0\0\0"
_WELL_FLEXIBLE: Final = b"\0\0\0\14", b"\0\0\0\0\0\0\0\0"
"""A reply's length, and what follows the correlation id: the header's tags, throttle time, error, tags, as far as there are."""


def quick(frame: memoryview, position: i64, correlation_id: int, context: RequestContext) -> bytes | None:
    """The reply to a request whose body begins at `position`, or None: somebody else shall answer it."""
    version: i64 = context.version
    body = bytes(frame[position:])
    instance_id: str | None = None
    end: i64 = 0
    length: i64 = 0
    try:
        if version >= _FLEXIBLE_FROM:
            at: i64 = body[0]
            if at > 127 or at < 2:
                return None
            group_id = body[1:at].decode()
            generation = int32(body, at)
            at += 4
            end = body[at]
            if end > 127 or end < 2:
                return None
            end += at
            member_id = body[at + 1 : end].decode()
            length = body[end]
            if length > 127:
                return None
            at = end + 1
            if length > 0:
                at = end + length
                instance_id = body[end + 1 : at].decode()
            if body[at] != 0:
                return None  # tags
            at += 1
        else:
            at = 2 + (body[0] << 8 | body[1])
            group_id = body[2:at].decode()
            generation = int32(body, at)
            at += 4
            end = at + 2 + (body[at] << 8 | body[at + 1])
            member_id = body[at + 2 : end].decode()
            at = end
            if version >= _INSTANCES_FROM:
                length = body[at] << 8 | body[at + 1]
                at += 2
                if length < 0x8000:
                    instance_id = body[at : at + length].decode()
                    at += length
                elif length != 0xFFFF:
                    return None
    except (IndexError, UnicodeDecodeError):
        return None  # shorter than what it should hold, or no text
    if at != len(body) or not _take(context.broker, group_id, generation, member_id, instance_id):
        return None
    if version >= _FLEXIBLE_FROM:
        head, tail = _WELL_FLEXIBLE
    elif version >= _THROTTLE_FROM:
        head, tail = _WELL
    else:
        head, tail = _WELL_V0
    return head + bytes(frame[4:8]) + tail  # the correlation id as it came


def _take(broker: Any, group_id: str, generation: int, member_id: str, instance_id: str | None) -> bool:
    groups: Any = broker.groups
    try:
        hosted, shard = groups.shards.find(group_id)
    except KafkaError:
        return False
    partition: Partition | None = broker.partitions.by_key.get(hosted.topic_partition)
    if partition is None or partition.log.high_watermark < partition.log.log_end_offset:
        return False
    now_s: float = broker.world.clock.monotonic()
    taken: bool = shard.classic.beat(group_id, generation, member_id, instance_id, int(now_s * 1000))
    return taken
