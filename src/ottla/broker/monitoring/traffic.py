"""Records and bytes: of the broker, and by topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ottla.broker.replicas.partitions import Partitions
from ottla.broker.replicas.traffic import TopicTraffic, Traffic
from ottla.metrics.family import Family, Sample, escaped, single
from ottla.metrics.table import METRICS, TRAFFIC

_BY_TOPIC: Final[dict[str, Callable[[TopicTraffic], int]]] = {
    "messagesin": lambda traffic: traffic.messages_in,
    "bytesin": lambda traffic: traffic.bytes_in,
    "bytesout": lambda traffic: traffic.bytes_out,
    "bytesrejected": lambda traffic: traffic.bytes_rejected,
    "totalproducerequests": lambda traffic: traffic.produce_requests,
    "totalfetchrequests": lambda traffic: traffic.fetch_requests,
    "failedproducerequests": lambda traffic: traffic.failed_produce_requests,
    "failedfetchrequests": lambda traffic: traffic.failed_fetch_requests,
    "producemessageconversions": lambda traffic: 0,
    "fetchmessageconversions": lambda traffic: 0,
}
_OF_ALL: Final[dict[str, Callable[[TopicTraffic], int]]] = {
    "replicationbytesin": lambda traffic: traffic.replication_bytes_in,
    "replicationbytesout": lambda traffic: traffic.replication_bytes_out,
    "reassignmentbytesin": lambda traffic: traffic.reassignment_bytes_in,
    "reassignmentbytesout": lambda traffic: traffic.reassignment_bytes_out,
    "invalidmessagecrcrecords": lambda traffic: traffic.wrong_crc,
    "invalidmagicnumberrecords": lambda traffic: traffic.wrong_magic,
    "invalidoffsetorsequencerecords": lambda traffic: traffic.wrong_offset,
    "nokeycompactedtopicrecords": lambda traffic: traffic.without_key,
}


def traffic_families(traffic: Traffic, partitions: Partitions) -> Iterator[Family]:
    traffic.keep_only({key[0] for key in partitions.by_key})
    total = traffic.total()
    topics = [(f'{{topic="{escaped(name)}"}}', each) for name, each in sorted(traffic.by_topic.items())]
    for name, value_of in _BY_TOPIC.items():
        metric = METRICS[f"{TRAFFIC}_{name}_total"]
        yield Family(metric.name, "counter", metric.help, _samples(total, topics, value_of))
    for name, value_of in _OF_ALL.items():
        yield single(METRICS[f"{TRAFFIC}_{name}_total"], value_of(total))


def _samples(
    total: TopicTraffic, topics: list[tuple[str, TopicTraffic]], value_of: Callable[[TopicTraffic], int]
) -> Iterator[Sample]:
    yield "", value_of(total)
    for labels, each in topics:
        yield labels, value_of(each)
