"""Which partitions and offsets a query reads. Runs on the driver and asks the cluster; reads no records, knows no Spark.

Also detects lost data: records that the query should read and that no longer exist (retention, a deleted or recreated topic).
`failOnDataLoss` says whether lost data is an error or a warning.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping

from ottla.client.blocking import Client, Topic
from ottla.client.offsets import list_offsets
from ottla.client.options import InvalidOption
from ottla.errors import ErrorCode, KafkaError
from ottla.pipelines.data_source.offsets import OffsetRange, SourceOffsets, topic_id_text
from ottla.pipelines.data_source.options import EARLIEST, LATEST, Positions, ReadBound, SourceOptions
from ottla.types import TopicPartition

logger = logging.getLogger("ottla.source")

FAIL_ON_DATA_LOSS_HINT = "set failOnDataLoss=false to continue with the remaining records"


class DataLost(Exception):
    """Records that the query should read no longer exist. The message names topic, partition and offsets."""


class ReadPlanner:
    def __init__(self, options: SourceOptions, client: Client) -> None:
        self.options = options
        self.client = client

    def lost(self, what: str) -> None:
        """Report lost data: DataLost, or a warning without failOnDataLoss."""
        if self.options.fail_on_data_loss:
            raise DataLost(f"{what}; {FAIL_ON_DATA_LOSS_HINT}")
        logger.warning("%s; continuing with the remaining records", what)

    def partitions(self, *, missing_ok: bool = False) -> SourceOffsets:
        """The partitions that the options select, each with offset 0, and the ids of their topics."""
        options = self.options
        if options.pattern is not None:
            matches = re.compile(options.pattern).fullmatch
            topics = {name: topic for name, topic in self.client.topics().items() if not topic.is_internal and matches(name)}
        else:
            names = options.topics or tuple(dict.fromkeys(where.topic for where in options.assigned))
            topics = self.client.describe(names)
            absent = [name for name in names if name not in topics]
            if absent and not missing_ok:
                # Ask again with retries: a new topic is not known to every broker at once.
                topics |= {name: self._existing(name) for name in absent}
        wanted = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
        if options.assigned:
            gone = sorted(set(options.assigned) - set(wanted))
            if gone and not missing_ok:
                raise InvalidOption("assign", str(gone[0]), "there is no such partition")
            wanted = [where for where in options.assigned if where in set(wanted)]
        ids = {name: topic_id_text(topics[name].topic_id) for name in dict.fromkeys(where.topic for where in wanted)}
        return SourceOffsets(dict.fromkeys(wanted, 0), {name: text for name, text in ids.items() if text is not None})

    def _existing(self, name: str) -> Topic:
        try:
            return self.client.topic(name)
        except KafkaError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise KafkaError(error.code, f"topic {name} does not exist at {self.options.client}") from None
            raise

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offsets: last stable offsets with read_committed, else high watermarks."""
        return self._list(dict.fromkeys(partitions, LATEST))

    def _list(self, wanted: Positions) -> dict[TopicPartition, int]:
        found = list_offsets(self.client, wanted, read_committed=self.options.read_committed)
        return {where: entry.offset for where, entry in found.items()}

    def first(self, partitions: Iterable[TopicPartition], default: int) -> dict[TopicPartition, int]:
        """The offsets where a new query starts."""
        starting = self.options.starting or ReadBound("startingOffsets", everywhere=default)
        return self._resolve(starting, list(partitions), is_start=True)

    def last(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets where a batch query ends."""
        ending = self.options.ending or ReadBound("endingOffsets", everywhere=LATEST)
        return self._resolve(ending, list(partitions), is_start=False)

    def _resolve(self, position: ReadBound, partitions: list[TopicPartition], *, is_start: bool) -> dict[TopicPartition, int]:
        if position.everywhere is not None:
            return self._list(dict.fromkeys(partitions, position.everywhere))
        if position.offsets is not None:
            given = self._complete(position, position.offsets, partitions)
            return {**given, **self._list({where: offset for where, offset in given.items() if offset < 0})}
        if position.timestamp_ms is not None:
            times: Positions = dict.fromkeys(partitions, position.timestamp_ms)
        else:
            assert position.timestamps_ms is not None
            times = self._complete(position, position.timestamps_ms, partitions)
        found = self._list(times)
        late = [where for where, offset in found.items() if offset < 0]
        if late and is_start and self.options.late_start_is_error:
            raise InvalidOption(
                position.option,
                times[late[0]],
                f"{late[0]} has no record that late (startingOffsetsByTimestampStrategy=latest starts at the end)",
            )
        return found | self.latest(late)

    def _complete(self, position: ReadBound, given: Positions, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
        unknown = sorted(set(given) - set(partitions))
        if unknown:
            raise InvalidOption(position.option, str(unknown[0]), "the query does not read that partition")
        absent = sorted(set(partitions) - set(given))
        if absent:
            raise InvalidOption(
                position.option, str(absent[0]), "it must name every partition that the query reads; this one is missing"
            )
        return given

    def surviving(self, start: SourceOffsets, now: SourceOffsets) -> SourceOffsets:
        """`start` without partitions whose data was lost, which it reports. `now` holds the present end offsets."""
        kept: dict[TopicPartition, int] = {}
        remade: set[str] = set()
        for where, offset in start.positions.items():
            was, present = start.topic_ids.get(where.topic), now.topic_ids.get(where.topic)
            if where not in now.positions:
                self.lost(f"{where} was deleted; the query has read it up to offset {offset}")
            elif was is not None and present is not None and was != present:
                if where.topic not in remade:
                    remade.add(where.topic)
                    self.lost(
                        f"topic {where.topic} was deleted and recreated (topic id {was}, now {present}); the query has read "
                        f"partition {where.partition} up to offset {offset}, which now ends at {now.positions[where]}"
                    )
            elif now.positions[where] < offset:
                self.lost(
                    f"{where} ends at offset {now.positions[where]}, before offset {offset}, up to which the query has read it: "
                    "records were lost or the topic was recreated"
                )
            else:
                kept[where] = offset
        return SourceOffsets(kept, now.topic_ids)

    def ranges(self, start: SourceOffsets, end: SourceOffsets) -> list[OffsetRange]:
        """The offset ranges between two offsets of a query."""
        wanted: list[OffsetRange] = []
        for where, stop in end.positions.items():
            begin = start.positions.get(where, 0)
            was, present = start.topic_ids.get(where.topic), end.topic_ids.get(where.topic)
            if stop < begin or (was is not None and present is not None and was != present):
                # The topic was recreated; `surviving` has reported it.
                begin = 0
            if begin < stop:
                wanted.append(OffsetRange(where, begin, stop))
        return self.present(wanted)

    def present(self, wanted: list[OffsetRange]) -> list[OffsetRange]:
        """The ranges without the offsets that retention has removed, which it reports."""
        if not wanted:
            return []
        earliest = self._list(dict.fromkeys((entry.where for entry in wanted), EARLIEST))
        found: list[OffsetRange] = []
        for entry in wanted:
            first = earliest[entry.where]
            if first > entry.start:
                gone = min(first, entry.end)
                self.lost(
                    f"offsets {entry.start} to {gone - 1} of {entry.where} are gone: its log now starts at {first} (retention or "
                    f"DeleteRecords); the query wants {entry.start} to {entry.end - 1}"
                )
                entry = entry._replace(start=gone)
            if entry.size > 0:
                found.append(entry)
        return found
