"""Mirrors topics of one cluster in another, each record exactly once. Never prints.

1. Records and progress are one transaction in the target: a killed mirror goes on behind its last commit.
2. A record keeps key, value, headers, timestamp and partition. Offsets are others; `offset_syncs` knows which.
3. A topic whose records came from the target is not mirrored back.
4. A topic that was made anew, on either side, is mirrored from its beginning: no commit mixes records of two topics of one name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ottla.cli.connection import Connection
from ottla.cli.consume import Bounds
from ottla.cli.copying.layout import topic_ids
from ottla.cli.copying.transfer import Transfer, headers_of, timestamp_of
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.mirror.acls import copy_acls
from ottla.cli.mirror.groups import GroupMirror
from ottla.cli.mirror.layout import keep_layouts
from ottla.cli.mirror.naming import GROUP_PREFIX, Naming
from ottla.cli.mirror.origins import Claim, claims
from ottla.cli.mirror.progress import CREATED, EMPTY, WITHDRAWN, Progress
from ottla.cli.offsets import log_bounds
from ottla.cli.positions import TopicIndex
from ottla.cli.reading import Reader

if TYPE_CHECKING:
    from confluent_kafka import Message

_COMMIT_S = 1.0
_COMMIT_RECORDS = 20_000
_BATCH_RECORDS = 500


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    naming: Naming
    name: str = ""
    """Tells mirrors of the same clusters apart."""
    groups: tuple[str, ...] = ()
    acls: bool = False
    from_beginning: bool = True
    replication_factor: int | None = None
    interval_s: float = 10.0
    compression: str = "none"


@dataclass(slots=True)
class Report:
    """What happened since the report before."""

    records: int = 0
    size_bytes: int = 0
    lag: dict[str, int] = field(default_factory=dict)
    """Records that are still to be mirrored, by source topic."""
    lost: dict[TopicIndex, int] = field(default_factory=dict)
    """Offsets that the source removed before they were mirrored."""
    groups: dict[str, int] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _OpenRun:
    """Records of one partition in the open transaction whose source offsets follow each other."""

    source: int
    count: int
    target: int | None = None


class _MadeAnew(Exception):
    """A topic of the source or the target was deleted while it was mirrored, and perhaps made again."""


class Mirror:
    def __init__(self, source: Connection, target: Connection, options: MirrorOptions) -> None:
        self._source = source
        self._target = target
        self._options = options
        self._source_cluster = str(source.metadata().cluster_id)
        self._target_cluster = str(target.metadata().cluster_id)
        if self._source_cluster == self._target_cluster and not options.naming.prefix:
            raise Failure(
                "source and target are the same cluster",
                "name another cluster with --to-bootstrap-servers, or pass --prefix",
                exit_code=EXIT_USAGE,
            )
        name = f".{options.name}" if options.name else ""
        self._transfer = Transfer(target, f"{GROUP_PREFIX}{self._source_cluster}{name}", compression=options.compression)
        self.has_begun = False
        """Whether both clusters answered, and let it do what it does: a later failure may pass."""
        self._found: dict[str, int] = {}
        """Partitions of each topic that matches the patterns, as of the last discovery."""
        self._came_through: dict[str, tuple[str, ...]] = {}
        """The topics that are mirrored, and the clusters through which their records came."""
        self._claimed: dict[str, int] = {}
        """The ranks of this mirror's claims."""
        self._names: dict[str, str] = {}
        """The topics that are mirrored, and their names in the target."""
        self._left_out: set[str] = set()
        """Topics that came from the target, which was told."""
        self._ids: dict[str, tuple[str, str]] = {}
        """Of each mirrored topic in the source and in the target, as of the last discovery."""
        self._progress: dict[TopicIndex, Progress] = {}
        self._runs: dict[TopicIndex, list[_OpenRun]] = {}
        self._report = Report()

    @property
    def name(self) -> str:
        """The group that holds the progress, and the transactional id."""
        return self._transfer.name

    def close(self) -> None:
        self._transfer.close()

    def run(self, told: Callable[[Report], None], *, follow: bool) -> None:
        """Mirror until the present ends, or for ever. Calls `told` after each interval and at the end."""
        self._transfer.begin()
        while True:
            self._discover()
            self.has_begun = True
            bounds = self._bounds(follow)
            reader = Reader(self._source, bounds)
            try:
                for _ in self._copy(reader, bounds):
                    self._tell(told, reader.positions)
                    if self._matching() != self._found:
                        break
                    self._report.done = self._keep_layouts()
                    self._check_made_anew(self._names)
                    if self._without_loops() != self._came_through:
                        break
                else:
                    self._tell(told, reader.positions)
                    if not follow:
                        return
                    time.sleep(self._options.interval_s)  # no topic matches yet
            except _MadeAnew:
                self._transfer.abort()
                self._runs.clear()

    # --- topics ---

    def _matching(self) -> dict[str, int]:
        known = self._source.metadata().topics
        return {topic: len(known[topic].partitions) for topic in self._options.naming.sources(known)}

    def _keep_layouts(self) -> list[str]:
        return keep_layouts(self._source, self._target, self._names, self._options.replication_factor)

    def _discover(self) -> None:
        """Find, create and alter topics, claim them, and read how far each is mirrored.

        Claims are looked at again after this mirror's own: another mirror may have claimed a topic meanwhile.
        """
        naming = self._options.naming
        self._found = self._matching()
        before = self._read_progress()
        self._claimed = _ranks(before)
        came_through = self._without_loops()
        self._names = {topic: naming.target(topic) for topic in came_through}
        there = self._target.metadata().topics
        created = {topic for topic, name in self._names.items() if name not in there}
        self._report.done.extend(self._keep_layouts())
        unclaimed = self._load(before, came_through, created)
        self._commit_progress(unclaimed)
        self._claimed = _ranks(self._progress)
        self._came_through = self._without_loops()
        self._names = {topic: name for topic, name in self._names.items() if topic in self._came_through}
        progress, self._progress = self._progress, {}
        for key, each in progress.items():
            if key[0] in self._names:
                self._progress[key] = replace(each, came_through=self._came_through[key[0]])
        self._commit_progress([key for key, each in self._progress.items() if each.came_through != progress[key].came_through])
        self._claimed = _ranks(self._progress)
        withdrawn = [key for key in {**before, **progress} if key[0] not in self._names]
        if withdrawn:
            self._transfer.commit({self._in_target(key): WITHDRAWN for key in withdrawn})
        if self._options.acls:
            copied = copy_acls(self._source, self._target, self._names, naming.prefix)
            self._report.done.extend(f"ACL created: {each}" for each in copied)

    def _commit_progress(self, keys: Collection[TopicIndex]) -> None:
        if keys:
            self._transfer.commit({self._in_target(key): self._progress[key].committed() for key in keys})

    def _without_loops(self) -> dict[str, tuple[str, ...]]:
        """The topics that are mirrored, and through which clusters their records go. Those that came from the target are not."""
        found = {}
        for topic, others in claims(self._source, self._found).items():
            mine = Claim(self._claimed[topic], self._source_cluster) if topic in self._claimed else None
            loops = [each for each in others if self._target_cluster in each.came_through]
            if all(mine is not None and mine.is_stronger_than(each) for each in loops):
                through = {cluster for each in others.difference(loops) for cluster in each.came_through}
                found[topic] = tuple(sorted({self._source_cluster, *through}))
                self._left_out.discard(topic)
            elif topic not in self._left_out:
                self._left_out.add(topic)
                self._report.done.append(f"topic {topic} is left out: its records came from the target cluster")
        return found

    def _read_progress(self) -> dict[TopicIndex, Progress]:
        """What is committed in the target of the topics that match."""
        keys = {self._in_target((topic, index)): (topic, index) for topic, count in self._found.items() for index in range(count)}
        read = {keys[key]: Progress.read(committed) for key, committed in self._transfer.committed(keys).items()}
        return {key: progress for key, progress in read.items() if progress is not None}

    def _load(
        self, before: Mapping[TopicIndex, Progress], came_through: Mapping[str, tuple[str, ...]], created: Collection[str]
    ) -> list[TopicIndex]:
        """Find where each partition goes on. Those whose progress is to be committed first."""
        keys = [(topic, index) for topic in came_through for index in range(self._found[topic])]
        self._ids = self._ids_of(self._names)
        bounds = log_bounds(self._source, keys, "read_committed")
        # Of a topic that was created just now some brokers may know no leaders yet.
        older = {self._in_target(key): key[0] for key in keys if key[0] not in created}
        written = {older[key] for key, (_, end) in log_bounds(self._target, older, "read_uncommitted").items() if end}
        self._progress, unclaimed = {}, []
        for key in keys:
            topic, (start, end) = key[0], bounds[key]
            progress = before.get(key)
            if progress is None or (progress.source_id, progress.target_id) != self._ids[topic]:
                progress = Progress(start if self._options.from_beginning else end, *self._ids[topic])
                progress.rank = CREATED if topic in created else 0 if topic in written else EMPTY
                unclaimed.append(key)
            elif progress.next_offset < start:
                self._report.lost[key] = start - progress.next_offset
                progress.next_offset = start
                unclaimed.append(key)  # so that it is told once
            progress.came_through = came_through[topic]
            self._progress[key] = progress
        return unclaimed

    def _ids_of(self, topics: Iterable[str]) -> dict[str, tuple[str, str]]:
        """The ids of each topic in the source and in the target."""
        names = {topic: self._names[topic] for topic in topics}
        source, target = topic_ids(self._source, list(names)), topic_ids(self._target, list(names.values()))
        return {topic: (source[topic], target[name]) for topic, name in names.items()}

    def _check_made_anew(self, topics: Iterable[str]) -> None:
        """_MadeAnew if one of them is not the topic that it was: what was read or written since may be of either."""
        try:
            now = self._ids_of(topics)
        except Failure as failure:
            raise _MadeAnew from failure  # deleted; if a broker is away the next request says so
        if any(self._ids[topic] != ids for topic, ids in now.items()):
            raise _MadeAnew

    def _bounds(self, follow: bool) -> Bounds:
        ends = log_bounds(self._source, list(self._progress), "read_committed")
        bounds = Bounds()
        for key, progress in self._progress.items():
            bounds.start[key] = progress.next_offset
            bounds.end[key] = None if follow else max(ends[key][1], progress.next_offset)
        return bounds

    def _in_target(self, key: TopicIndex) -> TopicIndex:
        return self._options.naming.target(key[0]), key[1]

    # --- records ---

    def _copy(self, reader: Reader, bounds: Bounds) -> Iterator[None]:
        """Copy what the reader reads; yields after the commit that ends an interval."""
        done = dict(bounds.start)
        pending, committed = 0, time.monotonic()
        told = committed
        for messages in reader.batches(_BATCH_RECORDS):
            for message in messages:
                self._send(message)
                self._report.size_bytes += len(message)
            self._report.records += len(messages)
            pending += len(messages)
            if pending >= _COMMIT_RECORDS or time.monotonic() - committed >= _COMMIT_S:
                done = self._commit(reader.positions, done)
                pending, committed = 0, time.monotonic()
                if committed - told >= self._options.interval_s:
                    told = committed
                    yield
        self._commit(reader.positions, done)

    def _send(self, message: Message) -> None:
        topic, index, offset = str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)
        runs = self._runs.setdefault((topic, index), [])
        first = not runs or runs[-1].source + runs[-1].count != offset
        if first:
            runs.append(_OpenRun(offset, 0))
        runs[-1].count += 1
        self._transfer.send(
            self._options.naming.target(topic),
            message.key(),
            message.value(),
            headers_of(message),
            partition=index,
            timestamp_ms=timestamp_of(message),
            delivered=_note_offset(runs[-1]) if first else None,
        )

    def _commit(self, positions: dict[TopicIndex, int], done: dict[TopicIndex, int]) -> dict[TopicIndex, int]:
        moved = {key: offset for key, offset in positions.items() if offset != done.get(key)}
        if moved:
            self._transfer.flush()
            self._check_made_anew({topic for topic, _ in moved})
            for key, runs in self._runs.items():
                for run in runs:
                    if run.target is not None:
                        self._progress[key].syncs.add(run.source, run.target, run.count)
            self._runs.clear()
            for key, offset in moved.items():
                self._progress[key].next_offset = offset
            self._transfer.commit({self._in_target(key): self._progress[key].committed() for key in moved})
        return dict(positions)

    # --- reports ---

    def _tell(self, told: Callable[[Report], None], positions: dict[TopicIndex, int]) -> None:
        report, self._report = self._report, Report()
        report.lag = dict.fromkeys(self._names, 0)
        for key, (_, end) in log_bounds(self._source, list(self._progress), "read_committed").items():
            report.lag[key[0]] += max(0, end - positions.get(key, end))
        if self._options.groups:
            groups = GroupMirror(self._source, self._target, self._options.groups)
            report.groups = groups.translate({key: each.syncs for key, each in self._progress.items()}, self._names)
        told(report)


def _ranks(progress: Mapping[TopicIndex, Progress]) -> dict[str, int]:
    """Of the claims to topics."""
    found: dict[str, int] = {}
    for (topic, _), each in progress.items():
        found[topic] = max(each.rank, found.get(topic, 0))
    return found


def _note_offset(run: _OpenRun) -> Callable[[Any, Message], None]:
    """A delivery report's callback that keeps the offset of the first record of a run."""

    def note(error: Any, message: Message) -> None:
        if error is None:
            run.target = message.offset()

    return note
