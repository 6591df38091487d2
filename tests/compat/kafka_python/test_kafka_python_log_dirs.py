"""kafka-python moves a replica to another data directory (F6), and sees it there."""

from __future__ import annotations

from pathlib import Path

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from tests.kit.subject import running
from tests.kit.wait import until

RECORDS = 500


def test_a_replica_moves(tmp_path: Path) -> None:
    dirs = ",".join(str(tmp_path / name) for name in ("one", "two"))
    with running(log_dirs=dirs) as subject:
        admin = KafkaAdminClient(bootstrap_servers=subject.bootstrap_servers)
        producer = KafkaProducer(bootstrap_servers=subject.bootstrap_servers)
        consumer = KafkaConsumer(bootstrap_servers=subject.bootstrap_servers, group_id=None)
        try:
            admin.create_topics([NewTopic("t", 2, 1)])
            sent = [producer.send("t", value=b"%d" % number, partition=0) for number in range(RECORDS)]
            producer.flush(60)
            assert [each.get(60).offset for each in sent] == list(range(RECORDS))
            [here] = [each.parent.name for each in tmp_path.glob("*/t-0")]
            there = "two" if here == "one" else "one"
            outcome = admin.alter_replica_log_dirs({("t", 0, 1): str(tmp_path / there), ("t", 1, 1): "/nowhere"})
            assert sorted(error.__name__ for error in outcome.values()) == ["LogDirNotFoundError", "NoError"]
            until(
                lambda: (admin.describe_log_dirs(), [each.parent.name for each in tmp_path.glob("*/t-0")] == [there])[1],
                "the replica is in the other directory",
            )
            partition = TopicPartition("t", 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            values: list[bytes] = []
            while len(values) < RECORDS:
                found = consumer.poll(timeout_ms=60_000)
                assert found, f"only {len(values)} records"
                values += [record.value for record in found[partition]]
            assert values == [b"%d" % number for number in range(RECORDS)]
        finally:
            consumer.close()
            producer.close()
            admin.close()
