"""The options of `format("ottla")`, with the names of Spark's Kafka source.

Parses and checks them (`InvalidOption`). Never connects, imports no Spark. Spark pickles `SourceOptions` to its workers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from ottla.client.options import ClientOptions, InvalidOption, client_options
from ottla.types import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1

Positions = Mapping[TopicPartition, int]

_REGISTRY: Final = "registry."
_REGISTRY_OWN: Final = ("subject", "key.subject", "version", "mode")
_STRATEGIES = ("subscribe", "subscribePattern", "assign")
_KNOWN = (
    *_STRATEGIES,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "untilOffsets",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    # Accepted without effect: Spark's source uses them for its Java consumers.
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_BY_LOWER = {name.lower(): name for name in _KNOWN}
_REFUSED = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "set kafka.group.id to commit the offsets of each finished micro-batch",
    "key.deserializer": "keys are bytes; cast the column",
    "value.deserializer": "values are bytes; cast the column",
    "interceptor.classes": "there is no Java consumer",
}
_OURS = frozenset({"group.id", "isolation.level", "max.partition.fetch.bytes", "fetch.max.bytes"})
_DURATION = re.compile(r"\s*(\d+)\s*([a-z]*)\s*")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1}
_MAX_WAIT_MS = 15 * 60_000
_FETCH_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ReadBound:
    """Where a query starts or ends: one offset (EARLIEST, LATEST) or time for all partitions, or one for each partition."""

    option: str
    everywhere: int | None = None
    offsets: Positions | None = None
    timestamp_ms: int | None = None
    timestamps_ms: Positions | None = None


@dataclass(frozen=True, slots=True)
class RegistrySource:
    """The options `registry.*`: which columns a schema registry decodes."""

    settings: tuple[tuple[str, str], ...] = field(repr=False)
    """With the names of Confluent's clients."""
    subject: str | None
    """Of values. None leaves them as they are, as with `key_subject`."""
    key_subject: str | None
    version: int | str
    fails: bool
    """Whether a value that does not decode fails the query; else it is null."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    client: ClientOptions
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    starting: ReadBound | None = None
    ending: ReadBound | None = None
    until: Positions | None = None
    """A stream does not read beyond these offsets, nor partitions that are not named."""
    late_start_is_error: bool = True
    fail_on_data_loss: bool = True
    include_headers: bool = False
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    trigger_delay_max_ms: int = _MAX_WAIT_MS
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    group_id: str | None = None
    read_committed: bool = True
    fetch_bytes: int = _FETCH_BYTES
    registry: RegistrySource | None = None
    given: frozenset[str] = field(default_factory=frozenset)


def source_options(options: Mapping[str, str]) -> SourceOptions:
    given: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower.startswith("kafka."):
            if lower[6:] in _REFUSED:
                raise InvalidOption(name, value, f"it cannot be set: {_REFUSED[lower[6:]]}")
            given[lower] = value
        elif lower.startswith(_REGISTRY):
            given[lower] = value
        elif lower in _BY_LOWER:
            given[_BY_LOWER[lower]] = value
        elif lower != "path":
            near = get_close_matches(name, _KNOWN, 1)
            raise InvalidOption(name, value, f"there is no such option{f'; did you mean {near[0]}?' if near else ''}")
    chosen = [name for name in _STRATEGIES if name in given]
    if len(chosen) != 1:
        raise InvalidOption(
            " and ".join(chosen) or "subscribe",
            "" if not chosen else given[chosen[0]],
            "exactly one of subscribe (topics), subscribePattern (a regular expression) and assign (partitions) must be given",
        )
    return SourceOptions(
        client_options(given, _OURS),
        topics=_topics(given),
        pattern=_pattern(given),
        assigned=_assigned(given),
        starting=_position(given, "starting"),
        ending=_position(given, "ending"),
        until=_until(given),
        late_start_is_error=_one_of(given, "startingOffsetsByTimestampStrategy", ("error", "latest")) == "error",
        fail_on_data_loss=_bool(given, "failOnDataLoss", True),
        include_headers=_bool(given, "includeHeaders", False),
        offsets_per_trigger_max=_positive(given, "maxOffsetsPerTrigger"),
        offsets_per_trigger_min=_positive(given, "minOffsetsPerTrigger"),
        trigger_delay_max_ms=_duration_ms(given, "maxTriggerDelay", _MAX_WAIT_MS),
        partitions_min=_positive(given, "minPartitions"),
        records_per_partition_max=_positive(given, "maxRecordsPerPartition"),
        group_id=given.get("kafka.group.id") or None,
        read_committed=_one_of(given, "kafka.isolation.level", ("read_committed", "read_uncommitted")) == "read_committed",
        fetch_bytes=_positive(given, "kafka.max.partition.fetch.bytes") or _FETCH_BYTES,
        registry=_registry(given),
        given=frozenset(given),
    )


def check_stream(options: SourceOptions) -> SourceOptions:
    """The options, if a stream may have them."""
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if name in options.given:
            raise InvalidOption(name, "…", "a streaming query has no end; use spark.read")
    high, low = options.offsets_per_trigger_max, options.offsets_per_trigger_min
    if high is not None and low is not None and low > high:
        raise InvalidOption("minOffsetsPerTrigger", low, f"it is at most maxOffsetsPerTrigger, {high}")
    return options


def check_batch(options: SourceOptions) -> SourceOptions:
    """The options, if a batch query may have them."""
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "untilOffsets"):
        if name in options.given:
            raise InvalidOption(name, "…", "a batch query has no triggers; use spark.readStream")
    if options.starting is not None and (
        options.starting.everywhere == LATEST or LATEST in (options.starting.offsets or {}).values()
    ):
        raise InvalidOption(options.starting.option, "latest", "a batch query that starts at the end reads nothing")
    if options.ending is not None and (
        options.ending.everywhere == EARLIEST or EARLIEST in (options.ending.offsets or {}).values()
    ):
        raise InvalidOption(options.ending.option, "earliest", "a batch query that ends at the start reads nothing")
    return options


def _registry(given: Mapping[str, str]) -> RegistrySource | None:
    found = {name.removeprefix(_REGISTRY): value for name, value in given.items() if name.startswith(_REGISTRY)}
    if not found:
        return None
    if not found.get("url"):
        raise InvalidOption("registry.url", "", "it is the address of a schema registry: http://host:8081")
    topics = _topics(given) if "subscribe" in given else ()
    subject = found.get("subject") or (f"{topics[0]}-value" if len(topics) == 1 else None)
    if subject is None and "key.subject" not in found:
        raise InvalidOption("registry.subject", "", "it is the subject of the values, as these options may name several topics")
    version: int | str = found.get("version", "latest").lower()
    if version != "latest":
        version = _positive(given, "registry.version") or 0
    mode = _one_of(given, "registry.mode", ("failfast", "permissive"))
    settings = tuple(sorted((name, value) for name, value in found.items() if name not in _REGISTRY_OWN))
    return RegistrySource(settings, subject, found.get("key.subject") or None, version, mode == "failfast")


def _topics(given: Mapping[str, str]) -> tuple[str, ...]:
    if "subscribe" not in given:
        return ()
    topics = tuple(dict.fromkeys(filter(None, (name.strip() for name in given["subscribe"].split(",")))))
    if not topics:
        raise InvalidOption("subscribe", given["subscribe"], "it is a list of topics: one,two")
    return topics


def _pattern(given: Mapping[str, str]) -> str | None:
    if "subscribePattern" not in given:
        return None
    pattern = given["subscribePattern"].strip()
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidOption("subscribePattern", pattern, f"it is a regular expression: {error}") from None
    if not pattern:
        raise InvalidOption("subscribePattern", pattern, "it is a regular expression that matches whole topic names")
    return pattern


def _assigned(given: Mapping[str, str]) -> tuple[TopicPartition, ...]:
    if "assign" not in given:
        return ()
    allowed = 'it is JSON like {"topic":[0,1]}'
    document = _document(given, "assign", allowed)
    found = []
    for topic, partitions in document.items():
        if not isinstance(partitions, list) or not all(type(part) is int and part >= 0 for part in partitions):
            raise InvalidOption("assign", given["assign"], allowed)
        found += [TopicPartition(topic, partition) for partition in partitions]
    if not found:
        raise InvalidOption("assign", given["assign"], allowed)
    return tuple(sorted(set(found)))


def _position(given: Mapping[str, str], edge: str) -> ReadBound | None:
    """As in Spark, a time for all partitions wins over times by partition, and these win over offsets."""
    name = f"{edge}Timestamp"
    if name in given:
        if not given[name].strip().isdecimal():
            raise InvalidOption(name, given[name], "it is a number of milliseconds since 1970")
        return ReadBound(name, timestamp_ms=int(given[name]))
    name = f"{edge}OffsetsByTimestamp"
    if name in given:
        return ReadBound(name, timestamps_ms=_by_partition(given, name, 0, 'it is JSON like {"topic":{"0":1700000000000}}'))
    name = f"{edge}Offsets"
    if name not in given:
        return None
    word = given[name].strip().lower()
    if word in ("earliest", "latest"):
        return ReadBound(name, everywhere=EARLIEST if word == "earliest" else LATEST)
    allowed = 'it is earliest, latest, or JSON like {"topic":{"0":23,"1":-2}} (-2 is earliest, -1 latest)'
    return ReadBound(name, offsets=_by_partition(given, name, EARLIEST, allowed))


def _until(given: Mapping[str, str]) -> Positions | None:
    if "untilOffsets" not in given:
        return None
    return _by_partition(given, "untilOffsets", 0, 'it is JSON like {"topic":{"0":23,"1":17}}')


def _by_partition(given: Mapping[str, str], name: str, lowest: int, allowed: str) -> Positions:
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _document(given, name, allowed).items():
        if topic.startswith("#"):
            continue  # a topic id
        if not isinstance(partitions, dict):
            raise InvalidOption(name, given[name], allowed)
        for partition, value in partitions.items():
            if not partition.isdecimal() or type(value) is not int or value < lowest:
                raise InvalidOption(name, given[name], allowed)
            found[TopicPartition(topic, int(partition))] = value
    if not found:
        raise InvalidOption(name, given[name], allowed)
    return found


def _document(given: Mapping[str, str], name: str, allowed: str) -> dict[str, Any]:
    try:
        document = json.loads(given[name])
    except ValueError:
        raise InvalidOption(name, given[name], allowed) from None
    if not isinstance(document, dict):
        raise InvalidOption(name, given[name], allowed)
    return document


def _bool(given: Mapping[str, str], name: str, default: bool) -> bool:
    value = given.get(name, str(default)).strip().lower()
    if value not in ("true", "false"):
        raise InvalidOption(name, given[name], "it is true or false")
    return value == "true"


def _one_of(given: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    value = given.get(name, allowed[0]).strip().lower()
    if value not in allowed:
        raise InvalidOption(name, given[name], f"it is one of {', '.join(allowed)}")
    return value


def _positive(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    value = given[name].strip()
    if not value.isdecimal() or int(value) < 1:
        raise InvalidOption(name, given[name], "it is a whole number above 0")
    return int(value)


def _duration_ms(given: Mapping[str, str], name: str, default: int) -> int:
    if name not in given:
        return default
    found = _DURATION.fullmatch(given[name].lower())
    if found is None or found[2] not in _UNITS_MS:
        raise InvalidOption(name, given[name], "it is a time like 500ms, 30s, 15m or 1h")
    return int(found[1]) * _UNITS_MS[found[2]]
