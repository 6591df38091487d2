"""Two rounds of checkpoints fall together: recovery points and log starts both write the log starts.

Found by kafka-python's suite: 30 s after its start a broker on which records had been deleted declared its directory offline,
because two workers replaced the same file through the same temporary one.
"""

from __future__ import annotations

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.testing import Broker
from tests.kit.raw import RawConnection, batch, produce_frame, read_produced

TOPICS = 30


def test_log_starts_written_by_two_rounds_at_once() -> None:
    together = dict.fromkeys(("log.flush.offset.checkpoint.interval.ms", "log.flush.start.offset.checkpoint.interval.ms"), 5)
    with Broker(together) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        broker.create_topic("t", TOPICS)
        with RawConnection(broker.bootstrap_servers) as connection:
            for offset in range(1, 11):
                for partition in range(TOPICS):
                    assert read_produced(connection.call(produce_frame("t", partition, batch([b"x"])))).error == 0
                    for deleted in admin.delete_records([TopicPartition("t", partition, offset)]).values():
                        assert deleted.result(60).low_watermark == offset
        assert "offline" not in broker.log
        assert broker.running
