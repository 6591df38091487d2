"""Copies a topic to another, exactly once: `copier.py NOTES RUN '{librdkafka settings}' SOURCE SINK`, until SIGTERM or a kill.

One member of a group, one transactional id; what it read, a transformed copy and its new position are one transaction. It writes
down what it is about to do before it does it and what it heard after, one JSON list a line, so that a kill loses no intention:

    ["committed", partition, offset|null, start, end]   what it was told its position is
    ["seek", partition, offset]
    ["poll", partition, [[offset, value], ...], start, end]
    ["begin", transaction, [[partition, value], ...], {partition: position}, start]
    ["sent", transaction, [[offset|null, start, end|null], ...]]    in the order of `begin`
    ["commit", transaction, time], ["end", transaction, "ok"|"failed", time]
    ["again", why], ["aborted before its commit", why]
    ["gave up", why]   it cannot go on, and is to be started again, as people do it

Times are nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

GIVEN_UP = 3
PATIENCE_NS = 30_000_000_000
HUNG_S = 10
now = time.monotonic_ns


class Copier:
    def __init__(self, notes: str, run: str, config: dict[str, Any], source: str, sink: str) -> None:
        self.file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.run_name, self.source, self.sink = run, source, sink
        self.going = True
        self.count = 0
        signal.signal(signal.SIGTERM, self.stop)
        common, reading, writing = config["common"], config["consumer"], config["producer"]
        self.producer = Producer({**common, **writing})
        self.again(lambda: self.producer.init_transactions(5))
        self.consumer = Consumer({**common, **reading})
        self.consumer.subscribe([source], on_assign=self.given)

    def stop(self, *_: object) -> None:
        self.going = False

    def note(self, *words: object) -> None:
        os.write(self.file, json.dumps(words).encode() + b"\n")

    def again(self, call: Any) -> None:
        """While it says that this helps; what it was is known only then. Not for ever."""
        deadline = now() + PATIENCE_NS
        while True:
            try:
                call()
                return
            except KafkaException as exception:
                if not exception.args[0].retriable() or now() > deadline:
                    raise
                self.note("again", str(exception))

    def send_offsets(self, places: list[TopicPartition], metadata: Any) -> None:
        """librdkafka 2.16 can wait here for ever, whatever timeout it is given, once the coordinator's broker has been away
        for a while (its issues 5456 and 5511): then the process ends itself. It is the library's fault, and not to be mended in
        a broker: with `python tests/chaos/hangs.py kafka 1 120` Apache Kafka 4.3.0 is killed 6 times, and 4 calls do not come
        back; with `hangs.py ottla 1 60` it is 6 calls after 11 kills."""
        watch = threading.Timer(HUNG_S, self.hung)
        watch.start()
        try:
            self.producer.send_offsets_to_transaction(places, metadata, 5)
        finally:
            watch.cancel()

    def hung(self) -> None:
        self.note("gave up", "send_offsets_to_transaction does not come back")
        os._exit(GIVEN_UP)

    def positions(self, partitions: list[int]) -> list[TopicPartition]:
        """What the group has committed; with read_committed, it is asked for when no transaction is about to change it."""
        start = now()
        places = self.consumer.committed([TopicPartition(self.source, each) for each in partitions], 20)
        for place in places:
            if place.error is not None:
                raise KafkaException(place.error)
            self.note("committed", place.partition, place.offset if place.offset >= 0 else None, start, now())
            place.offset = max(place.offset, 0)
            self.note("seek", place.partition, place.offset)
        return places

    def given(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.assign(self.positions([each.partition for each in partitions]))

    def run(self) -> None:
        while self.going:
            start = now()
            messages = [each for each in self.consumer.consume(50, 0.2) if each.error() is None]
            if messages:
                self.copy(messages, start)
        self.consumer.close()

    def copy(self, messages: list[Message], start: int) -> None:
        by_partition: dict[int, list[Message]] = {}
        for each in messages:
            by_partition.setdefault(each.partition(), []).append(each)  # type: ignore[arg-type]
        for partition, those in by_partition.items():
            self.note("poll", partition, [[each.offset(), (each.value() or b"").decode()] for each in those], start, now())
        name = f"{self.run_name}.{self.count}"
        self.count += 1
        copies = [
            (partition, f"{(each.value() or b'').decode()}@{name}") for partition, those in by_partition.items() for each in those
        ]
        ends = {partition: those[-1].offset() + 1 for partition, those in by_partition.items()}  # type: ignore[operator]
        self.note("begin", name, copies, ends, now())
        sent: list[list[int | None]] = [[None, 0, None] for _ in copies]
        committing = False
        try:
            self.producer.begin_transaction()
            for place, (partition, value) in zip(sent, copies, strict=True):
                place[1] = now()

                def delivered(error: KafkaError | None, message: Message, place: list[int | None] = place) -> None:
                    if error is None:
                        place[0], place[2] = message.offset(), now()

                self.producer.produce(self.sink, value.encode(), partition=partition, on_delivery=delivered)
            self.producer.flush(20)
            self.note("sent", name, sent)
            places = [TopicPartition(self.source, partition, end) for partition, end in ends.items()]
            metadata = self.consumer.consumer_group_metadata()
            self.again(lambda: self.send_offsets(places, metadata))
            self.note("commit", name, now())
            committing = True
            self.again(lambda: self.producer.commit_transaction(10))
            self.note("end", name, "ok", now())
        except KafkaException as exception:
            if not exception.args[0].txn_requires_abort():
                raise
            self.again(lambda: self.producer.abort_transaction(10))
            self.note("end", name, "failed", now())
            if not committing:
                self.note("aborted before its commit", str(exception))
            for place in self.positions(list(by_partition)):  # type: ignore[assignment]
                self.consumer.seek(place)  # type: ignore[arg-type]


def main() -> int:
    notes, run, config, source, sink = sys.argv[1:]
    copier = None
    try:
        copier = Copier(notes, run, json.loads(config), source, sink)
        copier.run()
    except KafkaException as exception:
        with open(notes, "a") as file:
            file.write(json.dumps(["gave up", str(exception)]) + "\n")
        return GIVEN_UP
    return 0


if __name__ == "__main__":
    code = main()
    # Closing would abort an open transaction and leave the group in order; who gives up here does neither, as if it were killed.
    os._exit(code)
