"""What there is to read: topics, partitions, offsets, asked of the cluster by the driver.

Owns: which partitions the options mean, from where to where, and the judgement of lost data: records that should be read and are
not there any more (retention, a topic that was deleted, or deleted and made again). `failOnDataLoss` decides whether that is an
error or a warning. Reads no records, knows no Spark.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping

from ottla.client.blocking import Client, Topic
from ottla.client.offsets import list_offsets
from ottla.client.options import InvalidOption
from ottla.errors import ErrorCode, KafkaError
from ottla.pipelines.source_offsets import Offsets, Range, topic_id_text
from ottla.pipelines.source_options import EARLIEST, LATEST, Position, Positions, SourceOptions
from ottla.types import TopicPartition

logger = logging.getLogger("ottla.source")

_ADVICE = "set failOnDataLoss to false to go on with what is there"


class DataLost(Exception):
    """Records that were to be read are gone. The message names topic, partition and offsets."""


class Plan:
    def __init__(self, options: SourceOptions, client: Client) -> None:
        self.options = options
        self.client = client

    def lost(self, what: str) -> None:
        """DataLost, or a warning."""
        if self.options.fail_on_data_loss:
            raise DataLost(f"{what}; {_ADVICE}")
        logger.warning("%s; going on with what is there", what)

    def partitions(self, *, missing_ok: bool = False) -> Offsets:
        """The partitions that the options mean, each at position 0, and the ids of their topics, as they are now."""
        options = self.options
        if options.pattern is not None:
            matches = re.compile(options.pattern).fullmatch
            topics = {name: topic for name, topic in self.client.topics().items() if not topic.is_internal and matches(name)}
        else:
            names = options.topics or tuple(dict.fromkeys(where.topic for where in options.assigned))
            topics = self.client.describe(names)
            absent = [name for name in names if name not in topics]
            if absent and not missing_ok:
                # One more look, with the patience that a topic made a moment ago deserves.
                topics |= {name: self._existing(name) for name in absent}
        wanted = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
        if options.assigned:
            gone = sorted(set(options.assigned) - set(wanted))
            if gone and not missing_ok:
                raise InvalidOption("assign", str(gone[0]), "there is no such partition")
            wanted = [where for where in options.assigned if where in set(wanted)]
        ids = {name: topic_id_text(topics[name].topic_id) for name in dict.fromkeys(where.topic for where in wanted)}
        return Offsets(dict.fromkeys(wanted, 0), {name: text for name, text in ids.items() if text is not None})

    def _existing(self, name: str) -> Topic:
        try:
            return self.client.topic(name)
        except KafkaError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise KafkaError(error.code, f"topic {name} does not exist at {self.options.client}") from None
            raise

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends; with read_committed those of what is stable."""
        return self._list(dict.fromkeys(partitions, LATEST))

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._list(dict.fromkeys(partitions, EARLIEST))

    def _list(self, wanted: Positions) -> dict[TopicPartition, int]:
        found = list_offsets(self.client, wanted, read_committed=self.options.read_committed)
        return {where: entry.offset for where, entry in found.items()}

    def first(self, partitions: Iterable[TopicPartition], default: int) -> dict[TopicPartition, int]:
        """Where a new query begins."""
        starting = self.options.starting or Position("startingOffsets", everywhere=default)
        return self._resolve(starting, list(partitions), is_start=True)

    def last(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where a batch ends."""
        ending = self.options.ending or Position("endingOffsets", everywhere=LATEST)
        return self._resolve(ending, list(partitions), is_start=False)

    def _resolve(self, position: Position, partitions: list[TopicPartition], *, is_start: bool) -> dict[TopicPartition, int]:
        if position.everywhere is not None:
            return self._list(dict.fromkeys(partitions, position.everywhere))
        if position.offsets is not None:
            given = self._complete(position, position.offsets, partitions)
            found = dict(given)
            found |= self._list({where: offset for where, offset in given.items() if offset < 0})
            return found
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
                f"{late[0]} has no record as late as that (startingOffsetsByTimestampStrategy=latest begins at the end)",
            )
        return found | self.latest(late)

    def _complete(self, position: Position, given: Positions, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
        unknown = sorted(set(given) - set(partitions))
        if unknown:
            raise InvalidOption(position.option, str(unknown[0]), "that partition is not among those to read")
        absent = sorted(set(partitions) - set(given))
        if absent:
            raise InvalidOption(position.option, str(absent[0]), "it must name every partition that is read; this one is missing")
        return given

    def behind(self, start: Offsets, now: Offsets) -> Offsets:
        """The start as it counts against what is there now: without what is gone, judged. `now` holds the present ends."""
        kept: dict[TopicPartition, int] = {}
        remade: set[str] = set()
        for where, offset in start.positions.items():
            was, present = start.topic_ids.get(where.topic), now.topic_ids.get(where.topic)
            if where not in now.positions:
                self.lost(f"{where} is gone, its topic or partition was deleted; it had been read up to offset {offset}")
            elif was is not None and present is not None and was != present:
                if where.topic not in remade:
                    remade.add(where.topic)
                    self.lost(
                        f"topic {where.topic} was deleted and made again (its id was {was}, now it is {present}); "
                        f"partition {where.partition} had been read up to offset {offset}, now it ends at {now.positions[where]}"
                    )
            elif now.positions[where] < offset:
                self.lost(
                    f"{where} ends at offset {now.positions[where]}, before offset {offset}, up to which it had been read: "
                    "records were lost or the topic was made again"
                )
            else:
                kept[where] = offset
        return Offsets(kept, now.topic_ids)

    def ranges(self, start: Offsets, end: Offsets) -> list[Range]:
        """What to read between two offsets of a query."""
        wanted: list[Range] = []
        for where, stop in end.positions.items():
            begin = start.positions.get(where, 0)
            was, present = start.topic_ids.get(where.topic), end.topic_ids.get(where.topic)
            if stop < begin or (was is not None and present is not None and was != present):
                # Judged when this end was chosen: the topic was made again.
                begin = 0
            if begin < stop:
                wanted.append(Range(where, begin, stop))
        return self.present(wanted)

    def present(self, wanted: list[Range]) -> list[Range]:
        """The ranges without what retention has removed, judged."""
        if not wanted:
            return []
        earliest = self.earliest(entry.where for entry in wanted)
        found: list[Range] = []
        for entry in wanted:
            first = earliest[entry.where]
            if first > entry.start:
                gone = min(first, entry.end)
                self.lost(
                    f"offsets {entry.start} to {gone - 1} of {entry.where} are gone: it begins at {first} now (retention, or "
                    f"records deleted); {entry.start} to {entry.end - 1} were to be read"
                )
                entry = entry._replace(start=gone)
            if entry.size > 0:
                found.append(entry)
        return found
