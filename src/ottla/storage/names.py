"""The names of files and directories, which are Kafka's, and their parsing."""

from __future__ import annotations

import base64
import re
from typing import Final

from ottla.types import TopicPartition

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
"""The files of a segment. A `.snapshot` is also named after an offset, but belongs to the log."""

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
CUT: Final = ".cut"
"""Ottla's own: behind `.log`, what recovery cut off. Kafka ignores such files."""

DELETE_DIR: Final = "-delete"
FUTURE_DIR: Final = "-future"
STRAY_DIR: Final = "-stray"
METADATA_DIR: Final = "__cluster_metadata-0"

EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
REPLICA_SWAP: Final = "replica-swap"
"""Ottla's own: marks the directory of a log that was moved here. Another one of the same name is the source of the move."""
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANED_OFFSETS: Final = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
META_PROPERTIES: Final = "meta.properties"
LOCK: Final = ".lock"

_NAME_LENGTH_MAX = 255
_PARTITION_DIR = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>[0-9]{1,10})")
_FUTURE_DIR = re.compile(_PARTITION_DIR.pattern + r"\.[0-9a-f]{32}" + FUTURE_DIR)
_DELETED_DIR = re.compile(r".+-[0-9]{1,10}\.[0-9a-f]{32}" + DELETE_DIR)
_OFFSET_FILE = re.compile(r"(?P<offset>[0-9]{20})(?P<suffix>\..+)")


def offset_file(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def parse_offset_file(name: str) -> tuple[int, str] | None:
    """The offset and the suffix of a file named after an offset; None for other files."""
    match = _OFFSET_FILE.fullmatch(name)
    return (int(match["offset"]), match["suffix"]) if match else None


def partition_dir(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def parse_partition_dir(name: str) -> TopicPartition | None:
    """The partition of a directory; None for other directories, also deleted, future and stray ones."""
    if name.endswith((DELETE_DIR, FUTURE_DIR, STRAY_DIR)):
        return None
    match = _PARTITION_DIR.fullmatch(name)
    return TopicPartition(match["topic"], int(match["partition"])) if match else None


def retired_dir(partition: TopicPartition, unique: bytes, suffix: str) -> str:
    """The name of a deleted or stray log's directory. The topic is shortened to the file system's limit."""
    tail = f"-{partition.partition}.{unique.hex()}{suffix}"
    return partition.topic[: _NAME_LENGTH_MAX - len(tail)] + tail


def is_deleted_dir(name: str) -> bool:
    """Whether a directory belongs to a deleted log."""
    return _DELETED_DIR.fullmatch(name) is not None


def future_dir(partition: TopicPartition, unique: bytes) -> str:
    """The directory of a log that is being moved. ValueError if the name of the topic is too long for it."""
    name = f"{partition_dir(partition)}.{unique.hex()}{FUTURE_DIR}"
    if len(name) > _NAME_LENGTH_MAX:
        raise ValueError(f"topic {partition.topic} cannot be moved: its name is too long")
    return name


def parse_future_dir(name: str) -> TopicPartition | None:
    match = _FUTURE_DIR.fullmatch(name)
    return TopicPartition(match["topic"], int(match["partition"])) if match else None


def uuid_text(uuid: bytes) -> str:
    """A uuid in Kafka's form: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def parse_uuid(text: str) -> bytes:
    """ValueError if the text is not a uuid."""
    uuid = base64.urlsafe_b64decode(text.encode() + b"==")
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is not a uuid")
    return uuid
