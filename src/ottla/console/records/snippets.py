"""The same selection of records in other languages, to copy. Pure.

A selection with positions or a key is given as offsets, which every language has: what was asked for relative to now reads the
same records later. What a language cannot select by is said in a comment.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

_POSITIONS = ("from", "until", "partitions", "key", "key_base64")
_FILTERS = ("where", "search", "key", "key_base64")

Ranges = Mapping[int, tuple[int, int]]
"""First offset and end of each partition."""


def needs_ranges(asked: Mapping[str, str]) -> bool:
    """Whether a selection is less than the whole topic, and not one without end."""
    return not _flag(asked, "live") and any(asked.get(name) for name in _POSITIONS)


def ranges_of(asked: Mapping[str, str], bounds: Ranges) -> Ranges:
    """Where the records of a selection are. Of one partition from the oldest on the limit counts: one record is asked for so."""
    ranges = {index: (start, end) for index, (start, end) in sorted(bounds.items()) if start < end}
    limit = asked.get("limit", "")
    if len(ranges) == 1 and limit.isdecimal() and asked.get("order") == "oldest" and not any(map(asked.get, _FILTERS)):
        ((index, (start, end)),) = ranges.items()
        return {index: (start, min(end, start + int(limit)))}
    return ranges


@dataclass(frozen=True, slots=True)
class Snippets:
    """`asked` are the parameters of the records endpoint."""

    servers: str
    topic: str
    url: str
    asked: Mapping[str, str]
    ranges: Ranges | None = None
    """None: all that is there, or comes."""
    schemas: bool = False
    """Whether records are read with their schemas."""

    @property
    def _live(self) -> bool:
        return _flag(self.asked, "live")

    @property
    def _filters(self) -> dict[str, str]:
        return {name: self.asked[name] for name in _FILTERS if self.asked.get(name)}

    def document(self) -> dict[str, str]:
        return {
            "python": self.python(),
            "pyspark": self.pyspark(),
            "kcat": self.kcat(),
            "ottla": self.ottla(),
            "curl": self.curl(),
        }

    @property
    def _key(self) -> bytes | None:
        if "key_base64" in self._filters:
            return base64.b64decode(self._filters["key_base64"])
        return self._filters["key"].encode("utf-8", "surrogateescape") if "key" in self._filters else None

    def _without(self, *able: str) -> str:
        """A comment on what a language does not select by."""
        missing = [f"{name}={value!r}" for name, value in self._filters.items() if name not in able]
        return f"# This does not select by {', '.join(missing)}.\n" if missing else ""

    # Commands

    def ottla(self) -> str:
        asked, filters = self.asked, self._filters
        partitions = [word for word in asked.get("partitions", "").split(",") if word.isdecimal()]
        grep = filters.get("search")
        if filters and not partitions and not self._live:
            words = ["ottla", "find", *([grep] if grep else []), "-t", self.topic]
            words += ["--key", filters["key"]] if "key" in filters else []
            words += ["--all-partitions"] if _flag(asked, "all_partitions") and "key" in filters else []
        else:
            words = ["ottla", "consume", self.topic, *(["--grep", grep] if grep else [])]
            words += [word for index in partitions for word in ("-p", index)]
            words += ["--follow"] if self._live else []
        words += ["--where", filters["where"]] if "where" in filters else []
        words += ["--regex"] if grep and _flag(asked, "regex") else []
        words += ["--ignore-case"] if grep and _flag(asked, "ignore_case") else []
        words += [word for name in ("from", "until") for word in self._position(name)]
        if words[1] == "consume" and asked.get("order") == "oldest" and asked.get("limit", "").isdecimal():
            words += ["--max-messages", asked["limit"]]
        words += ["--schema"] if self.schemas else []
        able = ("where", "search", "key") if words[1] == "find" else ("where", "search")
        return self._without(*able) + shlex.join([*words, "-b", self.servers])

    def _position(self, name: str) -> list[str]:
        word = self.asked.get(name, "")
        if word.startswith("group:"):
            # The command has no such position. Of one partition it is an offset.
            (start, end), *others = (self.ranges or {}).values() or [(0, 0), (0, 0)]
            word = "" if others else str(start if name == "from" else end)
        return [f"--{name}={word}"] if word.startswith("-") else [f"--{name}", word] if word else []

    def kcat(self) -> str:
        words = ["kcat", "-b", self.servers, "-C", "-t", self.topic]
        form = ["-f", "%p:%o %T %k %s\\n"]
        if self.ranges is None:
            rest = ["-o", "end"] if self._live else ["-o", "beginning", "-e"]
            return self._without() + shlex.join([*words, *rest, *form])
        lines = [
            shlex.join([*words, "-p", str(index), "-o", str(start), "-c", str(end - start), "-e", *form])
            for index, (start, end) in self.ranges.items()
        ]
        return self._without() + ("\n".join(lines) or "# There are no such records.")

    def curl(self) -> str:
        query = urlencode({name: value for name, value in self.asked.items() if value})
        address = f"{self.url}/api/topics/{quote(self.topic, safe='')}/records{'?' + query if query else ''}"
        return shlex.join(["curl", "-N", address])

    # Programs

    def python(self) -> str:
        tests = list(self._python_tests())
        imports = "import re\n\n" if any("re.search" in test for test in tests) else ""
        properties = {"bootstrap.servers": self.servers, "group.id": "copy", "enable.auto.commit": False}
        given = ", ".join(f"{json.dumps(name)}: {value!r}" for name, value in properties.items())
        partitions = "consumer.list_topics(TOPIC).topics[TOPIC].partitions"
        ranges = (
            f"{{index: consumer.get_watermark_offsets(TopicPartition(TOPIC, index)) for index in {partitions}}}"
            if self.ranges is None
            else repr(dict(self.ranges))
        )
        comment = self._without("search", "key", "key_base64")
        head = f"""{comment}{imports}from confluent_kafka import Consumer, TopicPartition

TOPIC = {json.dumps(self.topic)}
consumer = Consumer({{{given}}})
"""
        show = "print(message.partition(), message.offset(), message.key(), message.value())"
        if self._live:
            wanted = " and ".join(["message is not None", "message.error() is None", *tests])
            return f"""{head}consumer.subscribe([TOPIC])
while True:
    message = consumer.poll(1.0)
    if {wanted}:
        {show}
"""
        wanted = " and ".join(["message.offset() < end", *tests])
        return f"""{head}ranges = {ranges}  # by partition: the first offset, and the one behind the last
left = {{index: end for index, (start, end) in ranges.items() if start < end}}
consumer.assign([TopicPartition(TOPIC, index, ranges[index][0]) for index in left])
while left and (message := consumer.poll(5.0)) is not None:
    if message.error() is None and (end := left.get(message.partition())) is not None:
        if {wanted}:
            {show}
        if message.offset() >= end - 1:
            del left[message.partition()]
consumer.close()
"""

    def _python_tests(self) -> Iterator[str]:
        filters = self._filters
        if self._key is not None:
            yield f"message.key() == {self._key!r}"
        if "search" in filters:
            text = filters["search"].encode("utf-8", "surrogateescape")
            fields = "[message.key(), message.value(), *(value for _, value in message.headers() or [])]"
            flags = ", re.IGNORECASE" if _flag(self.asked, "ignore_case") else ""
            plain = not flags and not _flag(self.asked, "regex")
            pattern = f"{text!r}" if _flag(self.asked, "regex") else f"re.escape({text!r})"
            found = f"{text!r} in field" if plain else f"re.search({pattern}, field{flags})"
            yield f"any({found} for field in {fields} if field)"

    def pyspark(self) -> str:
        options = {"kafka.bootstrap.servers": self.servers}
        if self.ranges is None:
            options["subscribe"] = self.topic
        else:
            options["assign"] = json.dumps({self.topic: list(self.ranges)})
            for number, name in enumerate(("startingOffsets", "endingOffsets")):
                options[name] = json.dumps({self.topic: {str(index): bounds[number] for index, bounds in self.ranges.items()}})
        lines = "\n".join(f"    .option({json.dumps(name)}, {_literal(value)})" for name, value in options.items())
        tests = [f"\n    .where({test})" for test in self._pyspark_tests()]
        imports = "from pyspark.sql import functions as F\n\n" if tests else ""
        read = "readStream" if self._live else "read"
        columns = '"partition", "offset", "timestamp", "CAST(key AS STRING)", "CAST(value AS STRING)"'
        show = 'writeStream.format("console").start().awaitTermination()' if self._live else "show(truncate=False)"
        if self.ranges is not None and not self.ranges:
            return "# There are no such records.\n"
        return f"""{self._without("search", "key", "key_base64")}{imports}records = (
    spark.{read}.format("ottla")
{lines}
    .load(){"".join(tests)}
)
records.selectExpr({columns}).{show}
"""

    def _pyspark_tests(self) -> Iterator[str]:
        filters = self._filters
        if self._key is not None:
            yield f'F.hex("key") == "{self._key.hex().upper()}"'
        if "search" in filters:
            fields = 'F.concat_ws(" ", F.col("key").cast("string"), F.col("value").cast("string"))'
            if _flag(self.asked, "regex"):
                yield f"{fields}.rlike({('(?i)' if _flag(self.asked, 'ignore_case') else '') + filters['search']!r})"
            elif _flag(self.asked, "ignore_case"):
                yield f"F.lower({fields}).contains({filters['search'].lower()!r})"
            else:
                yield f"{fields}.contains({filters['search']!r})"


def _flag(asked: Mapping[str, str], name: str) -> bool:
    return asked.get(name, "").lower() in ("1", "true", "yes", "on")


def _literal(text: str) -> str:
    """A text with double quotes in it reads better in single ones."""
    return json.dumps(text) if '"' not in text else repr(text)
