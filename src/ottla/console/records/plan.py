"""What a request for records asks for: partitions, offsets, selection, order, limits."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ottla.cli.connection import Connection, unknown_partition
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.find.bounds import Extents, only_of_key
from ottla.cli.offsets import log_bounds, resolve
from ottla.cli.positions import TopicIndex, parse_position
from ottla.cli.selection import Selection, select
from ottla.console.endpoint import Call, Param, bad
from ottla.console.records.continuing import read_word
from ottla.console.records.documents import FORMAT_WORDS
from ottla.console.schema import BOOLEAN, INTEGER, STRING, one_of

LIMIT_MAX: Final = 10_000
BUDGET_BYTES: Final = 1 << 30
BUDGET_BYTES_MAX: Final = 1 << 40
BUDGET_S: Final = 60
BUDGET_S_MAX: Final = 3600
_OF_GROUP: Final = "group:"

FORMAT_PARAMS = (
    Param("key_format", "How to read keys", one_of(*FORMAT_WORDS)),
    Param("value_format", "How to read values", one_of(*FORMAT_WORDS)),
)
SELECTION_PARAMS = (
    Param("from", "A position: beginning, end, 120, -1000, 10m, an ISO time, @ms, group:NAME", STRING),
    Param("until", "A position, exclusive", STRING),
    Param("partitions", "Only these, between commas", STRING),
    Param("search", "A text in key, value or headers", STRING),
    Param("regex", "1: search is a regular expression (RE2)", BOOLEAN),
    Param("ignore_case", "1: search finds capitals and small letters alike", BOOLEAN),
    Param("where", "An expression of the filter language", STRING),
    Param("key", "Exactly this key, in the partition where producers put it", STRING),
    Param("key_base64", "The same, for a key that is no text", STRING),
    Param("all_partitions", "1: look for the key in all partitions", BOOLEAN),
    Param("isolation", "read_committed or read_uncommitted", one_of("read_committed", "read_uncommitted")),
)
PARAMS = (
    *SELECTION_PARAMS,
    Param("order", "newest or oldest first", one_of("newest", "oldest")),
    Param("limit", f"Records to find, at most {LIMIT_MAX}", INTEGER),
    *FORMAT_PARAMS,
    Param("budget_bytes", "Bytes to scan at most; 0: no limit", INTEGER),
    Param("budget_s", "Seconds to scan at most", INTEGER),
    Param("continue", "The token of the end of an earlier search", STRING),
    Param("live", "1: what comes from now on, without end", BOOLEAN),
)


@dataclass(frozen=True, slots=True)
class Plan:
    topics: list[str]
    selection: Selection
    start: str
    until: str | None
    partitions: list[int] | None
    all_partitions: bool
    isolation: str
    newest_first: bool
    limit: int
    budget_bytes: int
    budget_s: float
    left: Mapping[TopicIndex, tuple[int, int, list[int]]] | None
    """What an earlier search has left; instead of the positions."""

    @classmethod
    def of(cls, call: Call, topics: Sequence[str]) -> Plan:
        """Failure if a parameter is wrong. Asks no broker."""
        word = call.word("continue")
        start = call.word("from") or ("end" if call.flag("live") else "beginning")
        until = call.word("until")
        now_ms = int(time.time() * 1000)
        for position in (start, until):
            if position is not None and not position.startswith(_OF_GROUP):
                parse_position(position, now_ms)
        return cls(
            list(topics),
            _selection(call),
            start,
            until,
            call.numbers("partitions"),
            call.flag("all_partitions"),
            call.choice("isolation", ("read_committed", "read_uncommitted")),
            call.choice("order", ("newest", "oldest")) == "newest",
            call.number("limit", 100, low=1, high=LIMIT_MAX),
            call.number("budget_bytes", BUDGET_BYTES, high=BUDGET_BYTES_MAX) or BUDGET_BYTES_MAX,
            call.number("budget_s", BUDGET_S, low=1, high=BUDGET_S_MAX),
            None if word is None else read_word(word),
        )

    def bounds(self, connection: Connection) -> tuple[Extents, list[str]]:
        """The offsets to scan of each partition, and what is to be said of them. Blocking."""
        if self.left is not None:
            connection.topics({topic for topic, _ in self.left})
            if not {topic for topic, _ in self.left} <= set(self.topics):
                raise bad("continue is of a search in other topics")
            return {key: (start, end) for key, (start, end, _) in self.left.items()}, []
        keys: list[TopicIndex] = []
        partitions: dict[str, int] = {}
        for topic in connection.topics(self.topics):
            name = str(topic.topic)
            partitions[name] = len(topic.partitions)
            for partition in self.partitions or ():
                if partition not in topic.partitions:
                    raise unknown_partition(name, partition, len(topic.partitions))
            keys += [(name, index) for index in sorted(self.partitions or topic.partitions)]
        extent = log_bounds(connection, keys, self.isolation)
        starts = _resolved(connection, extent, self.start, self.isolation)
        ends = _resolved(connection, extent, self.until or "end", self.isolation)
        bounds = {key: (starts[key], max(starts[key], ends[key])) for key in extent}
        if self.selection.key is not None and not self.all_partitions:
            return only_of_key(bounds, self.selection.key, partitions)
        return bounds, []

    def in_topics(self, topics: Sequence[str]) -> Plan:
        return replace(self, topics=list(topics))

    def also(self, selection: Selection) -> Plan:
        """With the expression of another selection too."""
        if self.selection.where is not None:
            raise bad("header= and where= exclude each other", 'write headers["name"] == "value" in where')
        return replace(self, selection=Selection(selection.where, self.selection.grep, self.selection.key))

    @property
    def yielded(self) -> dict[TopicIndex, list[int]]:
        return {key: shown for key, (_, _, shown) in (self.left or {}).items()}


def _selection(call: Call) -> Selection:
    search, key_base64 = call.word("search"), call.word("key_base64")
    selection = select_for(
        call.word("where"),
        search,
        call.word("key"),
        regex=call.flag("regex") and search is not None,
        ignore_case=call.flag("ignore_case") and search is not None,
    )
    if key_base64 is not None:
        try:
            selection.key = base64.b64decode(key_base64, validate=True)
        except ValueError:
            raise bad(f"key_base64={key_base64!r} is not base64") from None
    return selection


def select_for(
    where: str | None, search: str | None = None, key: str | None = None, *, regex: bool = False, ignore_case: bool = False
) -> Selection:
    """The selection of a request. A Failure says that the request is wrong."""
    try:
        return select(where, search, key, regex=regex, ignore_case=ignore_case)
    except Failure as failure:
        raise Failure(failure.message, failure.hint, code="BAD_REQUEST", exit_code=EXIT_USAGE) from None


def _resolved(connection: Connection, extent: Extents, position: str, isolation: str) -> dict[TopicIndex, int]:
    if position.startswith(_OF_GROUP):
        from ottla.cli.group.view import committed_offsets

        committed = committed_offsets(connection, position.removeprefix(_OF_GROUP))
        # Where the group has read nothing, it will begin at the start.
        return {key: min(max(committed.get(key, start), start), end) for key, (start, end) in extent.items()}
    found = parse_position(position, int(time.time() * 1000))
    return resolve(connection, extent, found, clamp=True, isolation=isolation)
