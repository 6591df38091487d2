"""The same selection of records in other languages, to copy. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from urllib.parse import quote, urlencode


def snippets(servers: str, topic: str, url: str, asked: Mapping[str, str], *, schemas: bool = False) -> dict[str, str]:
    """`asked` are the parameters of the records endpoint. `schemas`: whether records are read with their schemas."""
    return {
        "python": _python(servers, topic, asked),
        "pyspark": _pyspark(servers, topic, asked),
        "kcat": _kcat(servers, topic, asked),
        "ottla": _ottla(servers, topic, asked, schemas),
        "curl": _curl(url, topic, asked),
    }


def _ottla(servers: str, topic: str, asked: Mapping[str, str], schemas: bool) -> str:
    searching = bool(asked.get("search") or asked.get("where") or asked.get("key"))
    words = ["ottla", "find"] if searching else ["ottla", "consume", topic]
    if asked.get("search"):
        words.append(asked["search"])
    if searching:
        words += ["-t", topic]
    words += [word for name in ("where", "key") if asked.get(name) for word in (f"--{name}", asked[name])]
    words += ["--regex"] if asked.get("regex") == "1" else []
    words += ["--ignore-case"] if asked.get("ignore_case") == "1" else []
    words += [word for name in ("from", "until") if _position(asked, name) for word in (f"--{name}", _position(asked, name))]
    if not searching:
        words += [word for index in _partitions(asked) for word in ("-p", index)]
        words += ["--follow"] if asked.get("live") == "1" else []
    return shlex.join([*words, *(["--schema"] if schemas else []), "-b", servers])


def _position(asked: Mapping[str, str], name: str) -> str:
    word = asked.get(name, "")
    return "" if word.startswith("group:") else word


def _partitions(asked: Mapping[str, str]) -> list[str]:
    return [word for word in asked.get("partitions", "").split(",") if word.isdecimal()]


def _curl(url: str, topic: str, asked: Mapping[str, str]) -> str:
    query = urlencode({name: value for name, value in asked.items() if value})
    address = f"{url}/api/topics/{quote(topic, safe='')}/records{'?' + query if query else ''}"
    return shlex.join(["curl", "-N", address])


def _kcat(servers: str, topic: str, asked: Mapping[str, str]) -> str:
    start, until = _position(asked, "from"), _position(asked, "until")
    words = ["kcat", "-b", servers, "-C", "-t", topic]
    for index in _partitions(asked)[:1]:
        words += ["-p", index]
    words += ["-o", f"s@{start[1:]}" if start.startswith("@") else start or "beginning"]
    words += ["-o", f"e@{until[1:]}"] if until.startswith("@") else []
    words += [] if asked.get("live") == "1" else ["-e"]
    return shlex.join([*words, "-f", "%p:%o %T %k %s\\n"])


def _python(servers: str, topic: str, asked: Mapping[str, str]) -> str:
    partitions = ", ".join(_partitions(asked))
    chosen = f"[{partitions}]" if partitions else "consumer.list_topics(TOPIC).topics[TOPIC].partitions"
    start = _position(asked, "from")
    offset = start if start.isdecimal() else "OFFSET_END" if start == "end" else "OFFSET_BEGINNING"
    assign = "consumer.assign([TopicPartition(TOPIC, index, START) for index in PARTITIONS])"
    if start.startswith("@"):
        assign = (
            "at = [TopicPartition(TOPIC, index, START) for index in PARTITIONS]\nconsumer.assign(consumer.offsets_for_times(at))"
        )
        offset = start[1:]
    return f"""from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, TopicPartition

TOPIC = {json.dumps(topic)}
consumer = Consumer({{"bootstrap.servers": {json.dumps(servers)}, "group.id": "copy", "enable.auto.commit": False}})
PARTITIONS = {chosen}
START = {offset}
{assign}
while (message := consumer.poll(5.0)) is not None:
    if message.error() is None:
        print(message.partition(), message.offset(), message.key(), message.value())
consumer.close()
"""


def _pyspark(servers: str, topic: str, asked: Mapping[str, str]) -> str:
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    for name, option in (("from", "startingTimestamp"), ("until", "endingTimestamp")):
        word = _position(asked, name)
        if word.startswith("@"):
            options[option] = word[1:]
    lines = "\n".join(f"    .option({json.dumps(name)}, {json.dumps(value)})" for name, value in options.items())
    return f"""records = (
    spark.read.format("ottla")
{lines}
    .load()
)
records.selectExpr("partition", "offset", "timestamp", "CAST(key AS STRING)", "CAST(value AS STRING)").show()
"""
