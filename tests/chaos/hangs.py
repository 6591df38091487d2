"""Does the client library hang on Apache Kafka too? `python -m tests.chaos.hangs kafka|ottla SEED SECONDS`

The copiers of `test_exactly_once` under the same load, the broker killed again and again, and nobody else disturbed. Prints how
many calls of send_offsets_to_transaction came back neither in time nor in twice the time (`copier.py` ends itself then), and how
many transactions were committed.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker
from tests.chaos.test_exactly_once import BROKER, PARTITIONS, SETTLE_S, SINK, SOURCE, Copiers, Writer
from tests.kit.peers import KAFKA_4, ApacheKafka
from tests.kit.wait import until

AWAY_S = (0, 1, 3, 6)


def disturb(broker: Any, copiers: Copiers, chance: random.Random, seconds: float) -> int:
    kills = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(chance.uniform(1, 5))
        copiers.tend()
        broker.kill()
        time.sleep(chance.choice(AWAY_S))
        broker.start()
        kills += 1
    return kills


def said(path: Path) -> Counter[str]:
    words: Counter[str] = Counter()
    for notes in path.glob("run-*"):
        for line in notes.read_text().split("\n")[:-1]:
            word, *rest = json.loads(line)
            if word in ("gave up", "end"):
                words[f"{word}: {rest[-1] if word == 'gave up' else rest[1]}"] += 1
    return words


def main() -> None:
    name, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    # Kafka 4 does not take segments as small as those of the test.
    settings: dict[str, Any] = {**BROKER, "log.segment.bytes": 1 << 20}
    server: Any = ApacheKafka(KAFKA_4, **settings) if name == "kafka" else Broker(settings)
    with tempfile.TemporaryDirectory(prefix="ottla-hangs-") as scratch, server as broker:
        path = Path(scratch)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for made in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in (SOURCE, SINK)]).values():
            made.result(30)
        copiers, writer = Copiers(path, broker.bootstrap_servers), Writer(broker.bootstrap_servers, per_s=200)
        try:
            copiers.tend()
            until(lambda: said(path)["end: ok"] > 0, "a first copy", SETTLE_S, every_s=0.1)
            kills = disturb(broker, copiers, random.Random(seed), seconds)
            before = said(path)["end: ok"]
            until(
                lambda: said(path)["end: ok"] > before + 10,
                "copies after the kills",
                SETTLE_S,
                every_s=0.1,
                meanwhile=copiers.tend,
            )
        finally:
            writer.stop()
            copiers.close()
        print(f"{name}: {kills} kills of the broker; {dict(said(path))}")


if __name__ == "__main__":
    main()
