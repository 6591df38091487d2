"""The main job, small: a broker, orders streaming in, a consumer showing them live, and a sum that proves nothing was lost.

Run it with `make demo`. It starts a real broker on a free port with a data directory of its own, sends orders through
librdkafka, follows them with a second client, kills the broker with SIGKILL half way, brings it back on the same files, and
compares what was acknowledged with what was read. It leaves nothing running and nothing on disk.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.live import Live
from rich.table import Table

from ottla.testing import Broker

TOPIC = "orders"
PARTITIONS = 3
ORDERS = 6_000
CUSTOMERS = ("ada", "bohumil", "clara", "dora", "emil", "franz", "grete", "hermann")


@dataclass
class Tally:
    """What one side of the demonstration has seen."""

    orders: Counter[str] = field(default_factory=Counter)
    revenue: Counter[str] = field(default_factory=Counter)
    ids: Counter[int] = field(default_factory=Counter)
    offsets: dict[int, int] = field(default_factory=dict)

    def add(self, order: dict[str, object]) -> None:
        customer = str(order["customer"])
        self.orders[customer] += 1
        self.revenue[customer] += int(str(order["cents"]))
        self.ids[int(str(order["id"]))] += 1


def produce(bootstrap_servers: str, acknowledged: Tally, half_way: threading.Event) -> None:
    """Send the orders and count an order only when the broker has acknowledged it.

    The producer is idempotent: what was written but not acknowledged when the broker was killed is sent again, and kept once.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "acks": "all",
            "linger.ms": 5,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "reconnect.backoff.max.ms": 200,
            "logger": _quiet(),
        }
    )
    chance = random.Random(1883)

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            sys.exit(f"an order was not accepted: {error}")
        acknowledged.add(json.loads(message.value() or b"{}"))

    for number in range(ORDERS):
        customer = chance.choice(CUSTOMERS)
        order = {"id": number, "customer": customer, "cents": chance.randrange(100, 20_000)}
        producer.produce(TOPIC, key=customer, value=json.dumps(order), on_delivery=delivered)
        producer.poll(0)
        if number == ORDERS // 2:
            half_way.set()
        if number % 20 == 0:
            time.sleep(0.01)
    producer.flush()


def table(seen: Tally, note: str) -> Table:
    view = Table(title="orders, live from the topic", caption=note, title_justify="left", caption_justify="left")
    view.add_column("customer")
    view.add_column("orders", justify="right")
    view.add_column("revenue", justify="right")
    for customer in CUSTOMERS:
        view.add_row(customer, f"{seen.orders[customer]:,}", f"{seen.revenue[customer] / 100:,.2f}")
    view.add_section()
    view.add_row("all", f"{seen.orders.total():,}", f"{seen.revenue.total() / 100:,.2f}")
    return view


def _quiet() -> object:
    """librdkafka's own log lines ("broker is down") would tear the live table; what matters reaches the callbacks."""
    import logging

    logger = logging.getLogger("demo.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


def main() -> int:
    console = Console()
    console.print("demo: starting a broker (a process of its own, data in a temporary directory)")
    began = time.perf_counter()
    with Broker() as broker:
        console.print(f"demo: {broker.bootstrap_servers} is ready after {(time.perf_counter() - began) * 1000:.0f} ms")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "logger": _quiet()})
        for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
            future.result(10)
        console.print(f"demo: topic {TOPIC!r} with {PARTITIONS} partitions; {ORDERS:,} orders are on their way")

        acknowledged, seen, half_way = Tally(), Tally(), threading.Event()
        sender = threading.Thread(target=produce, args=(broker.bootstrap_servers, acknowledged, half_way), daemon=True)
        sender.start()

        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "unused: the partitions are assigned by hand",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "logger": _quiet(),
            }
        )
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        note = "the first half"
        deadline = time.monotonic() + 90
        with Live(table(seen, note), console=console, refresh_per_second=10) as live:
            while sender.is_alive() or seen.orders.total() < acknowledged.orders.total():
                if time.monotonic() > deadline:
                    sys.exit("the orders did not arrive within 90 seconds")
                for message in consumer.consume(500, 0.1):
                    if message.error() is None:
                        partition, offset = message.partition() or 0, message.offset() or 0
                        assert offset == seen.offsets.get(partition, -1) + 1, "an offset was skipped or repeated"
                        seen.offsets[partition] = offset
                        seen.add(json.loads(message.value() or b"{}"))
                if half_way.is_set():
                    half_way.clear()
                    broker.kill()
                    broker.restart()
                    note = "after SIGKILL, on the same files"
                live.update(table(seen, note))
        sender.join()
        consumer.close()

        lost = acknowledged.ids.keys() - seen.ids.keys()
        doubled = [number for number, count in seen.ids.items() if count > acknowledged.ids[number]]
        same_sums = acknowledged.revenue == seen.revenue
        console.print(
            f"\ndemo: {acknowledged.ids.total():,} orders acknowledged, {seen.ids.total():,} read; "
            f"{len(lost)} lost, {len(doubled)} doubled, sums {'equal' if same_sums else 'DIFFERENT'}"
        )
    console.print("demo: the broker is stopped and its data removed")
    return 0 if not lost and not doubled and same_sums else 1


if __name__ == "__main__":
    sys.exit(main())
