"""A dialogue about fetch sessions that a seed decides (KIP-227): begun, continued, changed, mistaken, forgotten, ended.

What is compared is what a fetcher goes by: the error of the reply, which session it names if any, and of each partition it tells
of everything but the bytes. Not the order of partitions: Kafka names those it does not know last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import scan_batches
from ottla.records.record import build_batch
from tests.compat.log.log_chance import NOWHERE, Visitor

FIRST_SEED: Final = 10_000
"""From here on seeds are of these dialogues."""


@dataclass(slots=True)
class Session:
    number: int
    """In the order of their beginning: ids are each broker's own."""
    id: int
    epoch: int
    with_ids: bool


class Fetcher(Visitor):
    def __init__(self, host: str, port: int, seed: int) -> None:
        super().__init__(host, port, seed)
        self.sessions: list[Session] = []
        self.numbers: dict[int, int] = {}

    def places(self, most: int) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for _ in range(self.chance.randint(0, most)):
            name, index = self.somewhere()
            if index not in found.setdefault(name, []):
                found[name].append(index)
        return found

    async def fetch(self) -> None:
        chance = self.chance
        how = chance.choices(
            ("new", "next", "wrong epoch", "unknown", "other kind", "begin anew", "end", "again"), (20, 60, 4, 3, 4, 4, 4, 4)
        )[0]
        session = chance.choice(self.sessions) if self.sessions else None
        if session is None and how not in ("new", "unknown"):
            how = "new"
        with_ids = session.with_ids if session is not None and how != "new" else chance.random() < 0.5
        if how == "other kind":
            with_ids = not with_ids
        version = chance.randint(13, 18) if with_ids else chance.randint(7, 12)
        request = FetchRequest(max_wait_ms=0, max_bytes=1_000_000, isolation_level=chance.choice((0, 1)))
        request.topics = [
            FetchTopic(
                topic=name,
                topic_id=self.ids.get(name, NOWHERE),
                partitions=[
                    FetchPartition(
                        partition=index,
                        fetch_offset=self.some_offset(),
                        current_leader_epoch=chance.choices((-1, 0, 1), (80, 15, 5))[0] if version >= 9 else -1,
                        partition_max_bytes=1_000_000,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in self.places(3 if how == "next" else 4).items()
        ]
        if how == "next" and chance.random() < 0.4:
            request.forgotten_topics_data = [
                ForgottenTopic(topic=name, topic_id=self.ids.get(name, NOWHERE), partitions=indexes)
                for name, indexes in self.places(4).items()
            ]
        if version >= 15:
            request.replica_state = ReplicaState(replica_id=-1)
        match how:
            case "new":
                request.session_epoch = 0
            case "unknown":
                request.session_id, request.session_epoch = chance.choice(((1, 5), (0, 3), (-4, 1)))
            case _:
                assert session is not None
                epochs = {"wrong epoch": session.epoch + 7, "begin anew": 0, "end": -1, "again": max(session.epoch - 1, 1)}
                request.session_id, request.session_epoch = session.id, epochs.get(how, session.epoch)
        answer = await self.ask("fetch", version, request)
        asked = [
            (topic.topic, [(each.partition, each.fetch_offset, each.current_leader_epoch) for each in topic.partitions])
            for topic in request.topics
        ]
        forgotten = [(topic.topic, topic.partitions) for topic in request.forgotten_topics_data]
        of = f"{how} of {session.number}" if session is not None and how not in ("new", "unknown") else how
        if answer is None:
            self.tell(f"fetch {of} {asked} without {forgotten} v{version}", "hangs up")
            return
        if answer.session_id not in self.numbers:
            self.numbers[answer.session_id] = len(self.numbers) if answer.session_id else -1
        number = self.numbers[answer.session_id]
        if how in ("begin anew", "end") and session is not None:
            self.sessions.remove(session)
        if answer.error_code == ErrorCode.NONE:
            if how in ("new", "begin anew") and answer.session_id:
                self.sessions.append(Session(number, answer.session_id, 1, with_ids))
            elif session is not None and how in ("next", "again", "other kind"):
                session.epoch = request.session_epoch + 1
                if not answer.session_id:
                    self.sessions.remove(session)
        self.tell(
            f"fetch {of} {asked} without {forgotten} v{version}",
            ErrorCode(answer.error_code).name,
            number,
            self.told(answer, with_ids),
        )

    def told(self, answer: Any, with_ids: bool) -> list[object]:
        names = {topic_id: name for name, topic_id in self.ids.items()}
        found: list[object] = [
            (
                names.get(topic.topic_id, "nowhere") if with_ids else topic.topic,
                each.partition_index,
                ErrorCode(each.error_code).name,
                each.high_watermark,
                each.last_stable_offset,
                each.log_start_offset,
                each.aborted_transactions,
                [(batch.base_offset, batch.last_offset) for batch in scan_batches(each.records or b"")[0]],
            )
            for topic in answer.responses
            for each in topic.partitions
        ]
        return sorted(found, key=str)

    async def produce(self) -> None:
        name, index = self.somewhere()
        if name not in self.ids or index not in (0, 1) or name == self.topic("small"):
            return
        data = PartitionProduceData(index=index, records=build_batch([(b"key", b"value", (), self.began_ms)]))
        topics = [TopicProduceData(name=name, partition_data=[data])]
        answer = await self.ask("produce", 8, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics))
        self.tell(f"produce to {name} {index}", answer.responses[0].partition_responses[0].base_offset)

    async def delete_records(self) -> None:
        name, index = self.somewhere()
        topic = DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=index, offset=-1)])
        if name != self.topic("compact") and name in self.ids:
            answer = await self.ask("delete_records", 1, DeleteRecordsRequest(topics=[topic], timeout_ms=30_000))
            self.tell(f"delete records of {name} {index}", answer.topics[0].partitions[0].low_watermark)

    async def step(self) -> None:
        acts = {self.fetch: 70, self.produce: 25, self.delete_records: 5}
        await self.chance.choices(list(acts), list(acts.values()))[0]()
