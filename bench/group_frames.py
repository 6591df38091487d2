"""Frames of group requests for the load generator, and the parts of the responses it needs.

The newest versions without tagged fields (JoinGroup 5, SyncGroup 3, Heartbeat 3, LeaveGroup 3, OffsetCommit 7), and
ConsumerGroupHeartbeat 1, which has them. A request begins with its length, a response with the correlation id.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tests.kit.raw import frame

OFFSET_COMMIT, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 10, 11, 12, 13, 14
CONSUMER_GROUP_HEARTBEAT = 68
MEMBER_ID_REQUIRED = 79
# The coordinator, or its topic, is not there yet.
NOT_YET = (14, 15, 16)

HEARTBEAT_ERROR_AT = 4 + 4 + 4  # length, correlation, throttle


def string(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else struct.pack(">h", len(text)) + text.encode()


def block(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def find_coordinator(group: str) -> bytes:
    return frame(FIND_COORDINATOR, 1, 0, string(group) + b"\0")


def join(group: str, member: str, topic: str, number: int, session_ms: int = 300_000) -> bytes:
    """`number` is in the member's own data: another one asks for a rebalance."""
    subscription = struct.pack(">hi", 1, 1) + string(topic) + block(struct.pack(">i", number)) + struct.pack(">i", 0)
    body = string(group) + struct.pack(">ii", session_ms, 300_000) + string(member) + string(None) + string("consumer")
    return frame(JOIN_GROUP, 5, 0, body + struct.pack(">i", 1) + string("range") + block(subscription))


@dataclass(frozen=True, slots=True)
class Joined:
    error: int
    generation: int
    leader: str
    member: str
    members: list[str]


def read_joined(reply: bytes) -> Joined:
    error, generation = struct.unpack_from(">hi", reply, 8)
    at = 14
    _, at = _string_at(reply, at)
    leader, at = _string_at(reply, at)
    member, at = _string_at(reply, at)
    count = struct.unpack_from(">i", reply, at)[0]
    at += 4
    members = []
    for _ in range(count):
        name, at = _string_at(reply, at)
        members.append(name)
        _, at = _string_at(reply, at)
        at += 4 + struct.unpack_from(">i", reply, at)[0]
    return Joined(error, generation, leader, member, members)


def _string_at(reply: bytes, at: int) -> tuple[str, int]:
    size = struct.unpack_from(">h", reply, at)[0]
    at += 2
    return (reply[at : at + size].decode(), at + size) if size > 0 else ("", at)


def sync(group: str, generation: int, member: str, assignments: dict[str, bytes]) -> bytes:
    body = string(group) + struct.pack(">i", generation) + string(member) + string(None) + struct.pack(">i", len(assignments))
    return frame(SYNC_GROUP, 3, 0, body + b"".join(string(name) + block(data) for name, data in assignments.items()))


def read_synced(reply: bytes) -> tuple[int, int]:
    """The error, and how many partitions were given."""
    error, size = struct.unpack_from(">hi", reply, 8)
    if not size:
        return error, 0
    at = 14 + 2
    topics = struct.unpack_from(">i", reply, at)[0]
    assert topics == 1
    _, at = _string_at(reply, at + 4)
    return error, struct.unpack_from(">i", reply, at)[0]


def assignment(topic: str, partitions: list[int]) -> bytes:
    each = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hi", 1, 1) + string(topic) + each + struct.pack(">i", 0)


def heartbeat(group: str, generation: int, member: str) -> bytes:
    return frame(HEARTBEAT, 3, 0, string(group) + struct.pack(">i", generation) + string(member) + string(None))


def leave(group: str, member: str) -> bytes:
    return frame(LEAVE_GROUP, 3, 0, string(group) + struct.pack(">i", 1) + string(member) + string(None))


def commit(group: str, generation: int, member: str, topic: str, partitions: int, offset: int) -> bytes:
    body = string(group) + struct.pack(">i", generation) + string(member) + string(None)
    body += struct.pack(">i", 1) + string(topic) + struct.pack(">i", partitions)
    body += b"".join(struct.pack(">iqi", partition, offset, -1) + string("") for partition in range(partitions))
    return frame(OFFSET_COMMIT, 7, 0, body)


def commit_error_at(topic: str) -> int:
    """Of the first partition, in an answer with its length."""
    return 4 + 4 + 4 + 4 + 2 + len(topic) + 4 + 4


# --- the new protocol ----------------------------------------------------------------------------------------------------


def _compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def _count(number: int) -> bytes:
    number += 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def consumer_heartbeat(group: str, member: str, epoch: int, topic: str | None, owned: tuple[bytes, list[int]] | None) -> bytes:
    """`owned`: topic id and partitions, None if they are as they were said last."""
    body = b"\0" + _compact(group) + _compact(member) + struct.pack(">i", epoch) + b"\0\0" + struct.pack(">i", 300_000)
    body += b"\0" if topic is None else b"\x02" + _compact(topic)
    body += b"\0\0"  # no pattern, no assignor
    if owned is None:
        body += b"\0"
    elif not owned[1]:
        body += b"\x01"
    else:
        topic_id, partitions = owned
        body += b"\x02" + topic_id + _count(len(partitions)) + struct.pack(f">{len(partitions)}i", *partitions) + b"\0"
    return frame(CONSUMER_GROUP_HEARTBEAT, 1, 0, body + b"\0")


@dataclass(frozen=True, slots=True)
class Beaten:
    error: int
    epoch: int
    given: tuple[bytes, list[int]] | None


def read_consumer_heartbeat(reply: bytes) -> Beaten:
    error = struct.unpack_from(">h", reply, 9)[0]
    at = 11
    for _ in range(2):  # message, member id
        size, at = _uvarint(reply, at)
        at += max(size - 1, 0)
    epoch = struct.unpack_from(">i", reply, at)[0]
    at += 8
    if reply[at] == 0xFF:
        return Beaten(error, epoch, None)
    topics, at = _uvarint(reply, at + 1)
    if topics <= 1:
        return Beaten(error, epoch, (bytes(16), []))
    topic_id = reply[at : at + 16]
    count, at = _uvarint(reply, at + 16)
    return Beaten(error, epoch, (topic_id, list(struct.unpack_from(f">{count - 1}i", reply, at))))


def _uvarint(reply: bytes, at: int) -> tuple[int, int]:
    shift = number = 0
    while True:
        byte = reply[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
