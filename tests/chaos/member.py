"""One consumer of the chaos test, a process of its own: `member.py LOG TOPIC '{librdkafka settings}'`, until SIGTERM.

It writes down what happens to it, one line each, before anything follows from it; a kill loses no line. Times are nanoseconds of
CLOCK_MONOTONIC, which all processes of a machine share.

    A time p,p,...        these partitions were given
    R time p,p,...        these are given back (written before the group hears of it)
    L time p,p,...        these were lost: the group went on without this member
    C sent answered       a commit of positions was accepted
    S p:offset:value ...  records handed over (written before they are committed)
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

COMMIT_EACH_NS = 300_000_000


class Member:
    def __init__(self, path: str, topic: str, config: dict[str, Any]) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.topic = topic
        self.positions: dict[int, int] = {}
        self.sent = self.committed = 0
        self.going = True
        signal.signal(signal.SIGTERM, self.end)
        self.consumer = Consumer({**config, "on_commit": self.answered})
        self.consumer.subscribe([topic], on_assign=self.given, on_revoke=self.revoked, on_lost=self.lost)

    def end(self, *_: object) -> None:
        self.going = False

    def say(self, line: str) -> None:
        os.write(self.file, line.encode() + b"\n")

    def _moved(self, letter: str, partitions: list[TopicPartition]) -> None:
        self.say(f"{letter} {time.monotonic_ns()} {','.join(str(each.partition) for each in partitions)}")
        for each in partitions:
            self.positions.pop(each.partition, None)

    def given(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._moved("A", partitions)

    def revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._moved("R", partitions)

    def lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._moved("L", partitions)

    def answered(self, error: object, partitions: list[TopicPartition]) -> None:
        now = time.monotonic_ns()
        if error is None and all(each.error is None for each in partitions):
            self.say(f"C {self.sent} {now}")
        self.sent = 0

    def commit(self) -> None:
        """One at a time; again and again, also what is committed already: it is the proof of being a member."""
        now = time.monotonic_ns()
        if self.sent or not self.positions or now - self.committed < COMMIT_EACH_NS:
            return
        self.sent = self.committed = now
        try:
            places = [TopicPartition(self.topic, partition, at) for partition, at in self.positions.items()]
            self.consumer.commit(offsets=places, asynchronous=True)
        except KafkaException:
            self.sent = 0

    def run(self) -> None:
        while self.going:
            records = [each for each in self.consumer.consume(500, 0.1) if each.error() is None]
            if records:
                self.say(
                    "S " + " ".join(f"{each.partition()}:{each.offset()}:{(each.value() or b'').decode()}" for each in records)
                )
                for each in records:
                    self.positions[each.partition()] = each.offset() + 1  # type: ignore[index, operator]
            self.commit()
        self.consumer.close()


if __name__ == "__main__":
    Member(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])).run()
