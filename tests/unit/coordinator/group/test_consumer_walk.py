"""Random walks with members of both protocols: no partition is owned twice (G05), epochs never go back, a reload changes nothing
(G07, G11), and when all is quiet everything is owned.

The members here are models of real clients: each has what it owns, gives up late if at all, loses replies, restarts, changes its
protocol and its subscription. What a member owns counts until it has given it up or the group has thrown it out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from ottla.coordinator.group.classic_group import ClassicGroup, State
from ottla.coordinator.group.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    EmbeddedTopicPartitions,
    read_assignment,
    read_subscription,
)
from ottla.errors import ErrorCode
from ottla.wire.codec import encode

STEPS = 150
TOPICS = ("t", "u", "v")
REBALANCE_MS = 30_000

Owned = set[tuple[str, int]]


class Client:
    """What both kinds have."""

    def __init__(self, host: Any, chance: random.Random, name: str, instance: str | None) -> None:
        self.host = host
        self.chance = chance
        self.member_id = name
        self.instance = instance
        self.topics = self._some_topics()
        self.pattern = ""
        self.epoch = 0
        self.owned: Owned = set()
        self.told: Owned | None = None
        self.says_all = False

    def _some_topics(self) -> list[str]:
        return self.chance.sample(TOPICS, self.chance.randint(1, 3))

    def lose_all(self) -> None:
        self.owned = set()
        self.told = None
        self.epoch = 0

    def by_topic(self) -> dict[str, list[int]]:
        return {topic: sorted(p for t, p in self.owned if t == topic) for topic in {t for t, _ in self.owned}}


class ModernClient(Client):
    """Of the new protocol."""

    def act(self, *, lazy: bool = False, loses_reply: bool = False) -> None:
        if self.told is not None and not lazy:
            # Give up first; what is new is taken with it, for the coordinator gave only what is free.
            self.owned = set(self.told)
            self.told = None
        known = self.host.shard.groups.topics.topics
        owned = {topic: parts for topic, parts in self.by_topic().items() if topic in known}
        if self.epoch == 0:
            response = self.host.beat(
                self.member_id, 0, self.topics, pattern=self.pattern, instance=self.instance, rebalance_ms=REBALANCE_MS
            )
        elif self.says_all:
            response = self.host.beat(
                self.member_id,
                self.epoch,
                self.topics,
                owned,
                pattern=self.pattern,
                instance=self.instance,
                rebalance_ms=REBALANCE_MS,
            )
        else:
            response = self.host.beat(self.member_id, self.epoch, owned=owned, instance=self.instance)
        # Who missed a reply says everything the next time.
        self.says_all = loses_reply
        if loses_reply:
            return
        if response.error_code:
            assert response.error_code in (
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_INSTANCE_ID,
                ErrorCode.UNRELEASED_INSTANCE_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
            )
            self.lose_all()
            return
        assert response.member_epoch >= self.epoch, "a member's epoch never goes back"
        self.epoch = response.member_epoch
        if response.assignment is not None:
            names = self.host.shard.groups.topics.topic_names
            self.told = {
                (names[topic.topic_id], p)
                for topic in response.assignment.topic_partitions
                if topic.topic_id in names
                for p in topic.partitions
            }
            # From this moment on it may read what is new, before it has given up the rest.
            self.owned |= self.told

    def subscribe(self) -> None:
        self.topics = self._some_topics()
        self.pattern = self.chance.choice(["", "", "[tu]"])
        if self.epoch:
            self.host.beat(self.member_id, self.epoch, self.topics, pattern=self.pattern, instance=self.instance)
            self.says_all = True

    def leave(self) -> None:
        if self.epoch:
            forever = self.instance is None or self.chance.random() < 0.5
            self.host.beat(self.member_id, -1 if forever else -2, instance=self.instance)
        self.lose_all()


class ClassicClient(Client):
    """Of the classic protocol: eager, or cooperative."""

    def __init__(self, host: Any, chance: random.Random, name: str, instance: str | None) -> None:
        super().__init__(host, chance, name, instance)
        self.member_id = ""
        self.cooperative = chance.random() < 0.5
        self.joined: int | None = None
        self.synced: int | None = None

    def lose_all(self) -> None:
        super().lose_all()
        self.member_id = ""
        self.joined = self.synced = None

    def act(self, *, lazy: bool = False, loses_reply: bool = False) -> None:
        if self.synced is not None:
            self._hear_sync()
        elif self.joined is not None:
            self._hear_join()
        elif self.epoch == 0:
            self._join()
        else:
            code = self.host.heartbeat(self.member_id, self.epoch, instance=self.instance)
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                if not lazy:
                    self._join()
            elif code:
                self.lose_all()

    def _join(self) -> None:
        if not self.cooperative:
            self.owned = set()
        held = [EmbeddedTopicPartitions(topic=topic, partitions=parts) for topic, parts in self.by_topic().items()]
        subscription = ConsumerProtocolSubscription(topics=self.topics, owned_partitions=held)
        self.joined = self.host.join(
            self.member_id,
            instance=self.instance,
            protocols={"range": b"\0\1" + encode(subscription, 1)},
            rebalance_ms=REBALANCE_MS,
            version=9 if self.member_id or self.instance is not None else 3,
        )
        if self.joined in self.host.answers:
            self._hear_join()

    def _hear_join(self) -> None:
        if self.joined not in self.host.answers:
            return
        answer, self.joined = self.host.answers[self.joined], None
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.member_id = answer.member_id
            self.epoch = max(self.epoch, 0)
            self._join()
            return
        if answer.error_code:
            self.lose_all()
            return
        self.member_id, self.epoch = answer.member_id, answer.generation_id
        assignments = {}
        if answer.leader == self.member_id and not answer.skip_assignment:
            assignments = self._assign(answer.members)
        self.synced = self.host.sync(self.member_id, self.epoch, assignments, instance=self.instance)
        self._hear_sync()

    def _assign(self, members: list[Any]) -> dict[str, bytes]:
        """As a cooperative assignor does: what another still has is given to nobody in this round."""
        known = self.host.shard.groups.topics.topics
        subscriptions = {member.member_id: read_subscription(member.metadata) for member in members}
        parts: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in subscriptions}
        for topic in TOPICS:
            readers = sorted(member_id for member_id, said in subscriptions.items() if topic in said.topics)
            for partition in range(len(known[topic].partitions)) if topic in known and readers else ():
                owner = next(
                    (
                        member_id
                        for member_id, said in subscriptions.items()
                        if any(held.topic == topic and partition in held.partitions for held in said.owned_partitions)
                    ),
                    None,
                )
                reader = readers[partition % len(readers)]
                if owner is None or owner == reader:
                    parts[reader].setdefault(topic, []).append(partition)
        return {
            member_id: b"\0\1"
            + encode(
                ConsumerProtocolAssignment(
                    assigned_partitions=[EmbeddedTopicPartitions(topic=t, partitions=p) for t, p in topics.items()]
                ),
                1,
            )
            for member_id, topics in parts.items()
        }

    def _hear_sync(self) -> None:
        if self.synced not in self.host.answers:
            return
        answer, self.synced = self.host.answers[self.synced], None
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._join()
        elif answer.error_code:
            self.lose_all()
        else:
            assigned = read_assignment(answer.assignment).assigned_partitions
            given = {(topic.topic, partition) for topic in assigned for partition in topic.partitions}
            gave_up = self.owned - given
            self.owned = given
            if gave_up:
                # A cooperative client joins again when it has given something up.
                self._join()

    def subscribe(self) -> None:
        if self.joined is None and self.synced is None:
            self.topics = self._some_topics()
            if self.epoch:
                self._join()

    def leave(self) -> None:
        if self.epoch and self.instance is None:
            self.host.leave((self.member_id, None))
        self.lose_all()


class World:
    def __init__(self, host: Any, seed: int, *, classic: bool) -> None:
        self.host = host
        self.chance = random.Random(seed)
        self.classic = classic
        self.clients: list[Client] = []
        self.counts = {"t": 3, "u": 2}
        self.names = 0
        self.epoch = 0
        host.set_topics(**self.counts)

    def start(self) -> None:
        self.names += 1
        instance = self.chance.choice([None, None, "i", "j"])
        if instance is not None and any(client.instance == instance for client in self.clients):
            instance = None
        kind = ClassicClient if self.classic and self.chance.random() < 0.5 else ModernClient
        client = kind(self.host, self.chance, f"m{self.names}", instance)
        if isinstance(client, ModernClient) and self.chance.random() < 0.3:
            client.pattern = "[tuv]"
        self.clients.append(client)

    def step(self) -> None:
        chance, clients = self.chance, self.clients
        match chance.randrange(20):
            case 0 if len(clients) < 6:
                self.start()
            case 1 if clients:
                # Gone without a word, or with one.
                client = clients.pop(chance.randrange(len(clients)))
                if chance.random() < 0.6:
                    client.leave()  # type: ignore[attr-defined]
            case 2 if clients:
                chance.choice(clients).subscribe()  # type: ignore[attr-defined]
            case 3:
                topic = chance.choice(TOPICS)
                if chance.random() < 0.2 and len(self.counts) > 1:
                    self.counts.pop(topic, None)
                    for client in clients:
                        client.owned = {part for part in client.owned if part[0] != topic}
                        client.told = None if client.told is None else {part for part in client.told if part[0] != topic}
                else:
                    self.counts[topic] = min(self.counts.get(topic, 0) + 1, 6)
                self.host.set_topics(**self.counts)
            case 4:
                group = self.host.shard.groups.by_id.get("g")
                if group is None or isinstance(group, ConsumerGroup):
                    if chance.random() < 0.5:
                        self.host.compact()
                    self.host.reload()
            case 5 | 6 | 7:
                self.pass_time(chance.choice([10, 1000, 4000, 9000]))
            case _ if clients:
                client = chance.choice(clients)
                client.act(lazy=chance.random() < 0.3, loses_reply=chance.random() < 0.05)  # type: ignore[attr-defined]
        self.check()

    def pass_time(self, ms: int) -> None:
        self.host.advance(ms)
        group = self.host.shard.groups.by_id.get("g")
        members = set(group.members) if group is not None else set()
        for client in self.clients:
            waits = isinstance(client, ClassicClient) and (client.joined is not None or client.synced is not None)
            if client.epoch and client.member_id not in members and not waits:
                # Its session is over: a real client notices by its own clock.
                client.lose_all()

    def check(self) -> None:
        group = self.host.shard.groups.by_id.get("g")
        if group is None:
            return
        number = group.epoch if isinstance(group, ConsumerGroup) else group.generation
        assert number >= self.epoch, "the group's epoch never goes back"
        self.epoch = number if group.members else 0
        if isinstance(group, ConsumerGroup):
            check_group(group)
        if isinstance(group, ConsumerGroup) or not self.classic:
            owners: dict[tuple[str, int], str] = {}
            for client in self.clients:
                if client.member_id in group.members:
                    for part in client.owned:
                        assert part not in owners, f"{part} is owned by {owners[part]} and {client.member_id}"
                        owners[part] = client.member_id

    def settle(self) -> None:
        """Nothing happens any more but heartbeats."""
        for _ in range(80):
            self.pass_time(2500)
            for client in self.clients:
                client.act()  # type: ignore[attr-defined]
            self.check()
        group = self.host.shard.groups.by_id.get("g")
        if not self.clients:
            return
        assert group is not None
        assert set(group.members) == {client.member_id for client in self.clients}
        assert group.state_name == "Stable", group.state_name
        modern = any(isinstance(client, ModernClient) for client in self.clients)
        assert isinstance(group, ConsumerGroup if modern else ClassicGroup), "it is what its members are"
        if not modern:
            # Here the members watch their topics themselves, which these do not.
            return
        wanted = set()
        for client in self.clients:
            topics = set(client.topics) | (set(client.pattern.strip("[]")) if client.pattern else set())
            wanted |= {(topic, p) for topic in topics for p in range(self.counts.get(topic, 0))}
        owned = [part for client in self.clients for part in client.owned]
        assert sorted(owned) == sorted(wanted), "each partition has one owner"


def check_group(group: ConsumerGroup) -> None:
    assert group.assignment_epoch <= group.epoch
    assert group.instances == {m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None}
    owners: dict[bytes, dict[int, str]] = {}
    for member_id, member in group.members.items():
        assert member.member_id == member_id
        assert member.epoch <= group.assignment_epoch
        for owned in (member.assigned, member.pending_revocation):
            for topic, partitions in owned.items():
                for partition in partitions:
                    assert partition not in owners.setdefault(topic, {}), "owned twice"
                    owners[topic][partition] = member_id
    assert group.owners == owners
    assert group.target.keys() <= group.members.keys()


@pytest.mark.parametrize("seed", range(20))
def test_members_of_the_new_protocol(seed: int, new_host: Callable[..., Any]) -> None:
    interval_ms = (0, 1000)[seed % 2]
    world = World(new_host(consumer_assignment_interval_ms=interval_ms), seed, classic=False)
    for _ in range(STEPS):
        world.step()
    world.settle()


@pytest.mark.parametrize("seed", range(20))
def test_members_of_both_protocols(seed: int, new_host: Callable[..., Any]) -> None:
    world = World(new_host(consumer_assignment_interval_ms=(0, 1000)[seed % 2]), seed, classic=True)
    for _ in range(STEPS):
        world.step()
    world.settle()
    group = world.host.shard.groups.by_id.get("g")
    if isinstance(group, ClassicGroup) and group.members:
        assert group.state is State.STABLE
