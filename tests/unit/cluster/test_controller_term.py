"""Changes of topics, partitions and configs on request, without a store (W05, F2, F63, C02)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from ottla.cluster import znodes
from ottla.cluster.controller_term import ControllerTerm, MetadataUpdate, TopicResult, reelect
from ottla.cluster.image import BrokerImage, ClusterImage, Endpoint, PartitionImage, TopicImage
from ottla.cluster.requests import (
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    FoundTopic,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from ottla.cluster.settings import BrokerSettings
from ottla.cluster.topic_changes import first_state
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Check, Create, SetData
from ottla.sim.kernel.machine import SeededRandom

CONTROLLER = ControllerTerm(1, epoch=7, epoch_version=6)
SETTINGS = BrokerSettings.parse({"num.partitions": "2"})


def cluster(*broker_ids: int) -> ClusterImage:
    brokers = {number: BrokerImage(number, 1, None, (Endpoint("PLAINTEXT", "h", number),)) for number in broker_ids}
    return ClusterImage("cluster", 1, brokers)


def create(
    image: ClusterImage, *asked: NewTopic, settings: BrokerSettings = SETTINGS
) -> tuple[MetadataUpdate, list[TopicResult]]:
    return CONTROLLER.create_topics(image, settings, asked, SeededRandom(random.Random(5)))


def with_topic(name: str = "t", count: int = 2, image: ClusterImage | None = None) -> ClusterImage:
    decision, outcomes = create(image or cluster(1), NewTopic(name, count))
    assert isinstance(outcomes[0], TopicImage), outcomes
    return decision.image


def error_of(outcomes: Sequence[TopicResult | KafkaError | None]) -> KafkaError:
    (outcome,) = outcomes
    assert isinstance(outcome, KafkaError), outcome
    assert outcome.detail
    return outcome


def test_a_new_topic_is_written_under_the_controllers_epoch() -> None:
    decision, (topic,) = create(cluster(1), NewTopic("t", 1, config={"retention.ms": " 5 "}))
    assert isinstance(topic, TopicImage)
    assert decision.changes == [
        Check("/controller_epoch", 6),
        Create("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}'),
        Create("/brokers/topics/t", znodes.encode_topic(topic.topic_id, [first_state((1,))])),
        Create("/brokers/topics/t/partitions"),
        Create("/brokers/topics/t/partitions/0"),
        Create(
            "/brokers/topics/t/partitions/0/state",
            b'{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":7,"isr":[1]}',
        ),
    ]
    assert decision.image.topics["t"] is topic
    assert decision.image.topic_by_id(topic.topic_id) is topic


def test_defaults_come_from_the_broker() -> None:
    settings = BrokerSettings.parse({"num.partitions": "4", "default.replication.factor": "2"})
    _, (topic,) = create(cluster(1, 2, 3), NewTopic("t"), settings=settings)
    assert isinstance(topic, TopicImage)
    assert [len(partition.replicas) for partition in topic.partitions] == [2] * 4


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (NewTopic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("gr\u00fcn"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("line\n"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("existing.topic"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("existing_topic"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 10_001), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", config={"retention.msec": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", config={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", config={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", 1, assignments=[(0, (1,))]), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", replication_factor=1, assignments=[(0, (1,))]), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignments=[(0, ())]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, (1, 1))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, (9,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(1, (1,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, (1,)), (0, (2,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, (1,)), (1, (1, 2))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(-1, (1,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=str,
)
def test_w05_what_is_refused_and_changes_nothing(asked: NewTopic, code: ErrorCode) -> None:
    image = with_topic("existing.topic", image=cluster(1, 2, 3))
    decision, outcomes = create(image, asked)
    assert error_of(outcomes).code is code
    assert decision.empty
    assert decision.image is image


def test_names_that_are_allowed() -> None:
    names = ["a" * 249, "...", "a-b_c.D9", "__consumer_offsets"]
    _, outcomes = create(cluster(1), *(NewTopic(name) for name in names))
    assert [outcome.name for outcome in outcomes if isinstance(outcome, TopicImage)] == names


def test_manual_assignment_is_kept_and_its_first_broker_leads() -> None:
    _, (topic,) = create(cluster(1, 2, 3), NewTopic("t", assignments=[(1, (3, 1)), (0, (2, 3))]))
    assert isinstance(topic, TopicImage)
    assert [partition.replicas for partition in topic.partitions] == [(2, 3), (3, 1)]
    assert [partition.leader for partition in topic.partitions] == [2, 3]


def test_topics_of_one_request_stand_for_themselves_but_see_each_other() -> None:
    decision, outcomes = create(
        cluster(1), NewTopic("a.b"), NewTopic("a_b"), NewTopic("c", 1, 5), NewTopic("d"), NewTopic("e"), NewTopic("e")
    )
    codes = [outcome.code if isinstance(outcome, KafkaError) else None for outcome in outcomes]
    assert codes == [
        None,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        None,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert set(decision.image.topics) == {"a.b", "d"}


def test_many_partitions_in_one_request_are_refused_before_they_fill_the_memory() -> None:
    """As a whole and before they are planned, as Kafka does: a thousand topics of 9,999 partitions would hold up all others."""
    many = [NewTopic(f"t{number}", 9_999) for number in range(1000)]
    decision, outcomes = create(cluster(1), *many, NewTopic("c", 1), NewTopic("d", 1), NewTopic("d", 1))
    codes = [outcome.code for outcome in outcomes if isinstance(outcome, KafkaError)]
    assert codes == [ErrorCode.POLICY_VIOLATION] * 1001 + [ErrorCode.INVALID_REQUEST] * 2
    assert decision.empty
    _, (outcome,) = create(cluster(1), NewTopic("t", 10_000))
    assert isinstance(outcome, TopicImage)


def test_partitions_added_in_one_request_are_counted_together() -> None:
    image = with_topic("b", 1, with_topic("a", 1))
    asked = [NewPartitions("a", 6_001), NewPartitions("b", 6_001), NewPartitions("c", 2)]
    decision, outcomes = CONTROLLER.create_partitions(image, asked)
    codes = [outcome.code for outcome in outcomes if isinstance(outcome, KafkaError)]
    assert codes == [ErrorCode.POLICY_VIOLATION] * 2 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert decision.empty
    _, outcomes = CONTROLLER.create_partitions(image, [NewPartitions("a", 5_001), NewPartitions("b", 5_001)])
    assert all(isinstance(outcome, TopicImage) for outcome in outcomes)


def test_names_that_collide_within_one_request() -> None:
    _, outcomes = create(cluster(1), NewTopic("a.b"), NewTopic("a_b"))
    assert isinstance(outcomes[0], TopicImage)
    assert isinstance(outcomes[1], KafkaError)
    assert outcomes[1].code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_sentence_about_replicas_says_how_many_brokers_there_are() -> None:
    _, outcomes = create(cluster(1), NewTopic("t", 1, 3))
    assert error_of(outcomes).detail == "replication factor 3 is larger than the number of brokers: the cluster has 1 broker"


def test_deleting_by_name_and_by_id() -> None:
    image = with_topic("b", image=with_topic("a"))
    topic_id = image.topics["b"].topic_id
    decision, outcomes = CONTROLLER.delete_topics(image, SETTINGS, ["a", topic_id])
    assert [outcome.name for outcome in outcomes if isinstance(outcome, TopicImage)] == ["a", "b"]
    assert decision.image.topics == {}
    assert decision.image.topic_names == {}
    paths = [change.path for change in decision.changes]
    assert paths[0] == "/controller_epoch"
    # Children before parents, as the store demands.
    assert paths.index("/brokers/topics/a/partitions/0/state") < paths.index("/brokers/topics/a/partitions/0")
    assert paths.index("/brokers/topics/a/partitions") < paths.index("/brokers/topics/a")
    assert "/config/topics/a" in paths


def test_deleting_what_is_not_there_or_twice_or_forbidden() -> None:
    image = with_topic("a")
    assert error_of(CONTROLLER.delete_topics(image, SETTINGS, ["x"])[1]).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error_of(CONTROLLER.delete_topics(image, SETTINGS, [bytes(16)])[1]).code is ErrorCode.UNKNOWN_TOPIC_ID
    decision, outcomes = CONTROLLER.delete_topics(image, SETTINGS, ["a", image.topics["a"].topic_id])
    assert [outcome.code for outcome in outcomes if isinstance(outcome, KafkaError)] == [ErrorCode.INVALID_REQUEST] * 2
    assert decision.empty
    forbidden = BrokerSettings.parse({"delete.topic.enable": "false"})
    decision, outcomes = CONTROLLER.delete_topics(image, forbidden, ["a"])
    assert error_of(outcomes).code is ErrorCode.TOPIC_DELETION_DISABLED
    assert decision.empty


def test_f2_partitions_only_grow() -> None:
    image = with_topic("t", 2)
    before = image.topics["t"]
    decision, (topic,) = CONTROLLER.create_partitions(image, [NewPartitions("t", 4)])
    assert isinstance(topic, TopicImage)
    assert len(topic.partitions) == 4
    assert topic.partitions[:2] == before.partitions
    assert topic.topic_id == before.topic_id
    assert decision.changes[1] == SetData("/brokers/topics/t", znodes.encode_topic(topic.topic_id, [first_state((1,))] * 4))
    assert [change.path for change in decision.changes[2:]] == [
        "/brokers/topics/t/partitions/2",
        "/brokers/topics/t/partitions/2/state",
        "/brokers/topics/t/partitions/3",
        "/brokers/topics/t/partitions/3/state",
    ]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (NewPartitions("x", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions("t", 2), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", -5), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 20_000), ErrorCode.POLICY_VIOLATION),
        (NewPartitions("t", 3, [(1,), (1,)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [(9,)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [(1, 2)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=str,
)
def test_growing_that_is_refused(asked: NewPartitions, code: ErrorCode) -> None:
    image = with_topic("t", 2, image=cluster(1, 2))
    decision, outcomes = CONTROLLER.create_partitions(image, [asked])
    assert error_of(outcomes).code is code
    assert decision.empty


def alter(image: ClusterImage, name: str, *changes: tuple[int, str, str | None], replace: bool = False, kind: int = 2) -> object:
    asked = ConfigAlteration(kind, name, [ConfigChange(*change) for change in changes], replace)
    decision, (outcome,) = CONTROLLER.alter_configs(image, SETTINGS, [asked])
    if outcome is not None:
        assert decision.empty
        return outcome.code
    if kind == ResourceType.TOPIC:
        return decision.image.topics[name].config
    return decision.image.broker_configs[name]


SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def test_single_settings_of_a_topic_change_and_the_others_stay() -> None:
    decision, _ = create(cluster(1), NewTopic("t", config={"retention.ms": "5", "segment.bytes": "100"}))
    image = decision.image
    assert alter(image, "t", (SET, "retention.ms", "6")) == {"retention.ms": "6", "segment.bytes": "100"}
    assert alter(image, "t", (DELETE, "retention.ms", None)) == {"segment.bytes": "100"}
    assert alter(image, "t", (DELETE, "flush.ms", None)) == {"retention.ms": "5", "segment.bytes": "100"}
    assert alter(image, "t", (SET, "flush.ms", "1"), replace=True) == {"flush.ms": "1"}
    assert alter(image, "t", replace=True) == {}


def test_lists_are_added_to_and_taken_from() -> None:
    image = with_topic()
    assert alter(image, "t", (APPEND, "cleanup.policy", "compact")) == {"cleanup.policy": "delete,compact"}
    assert alter(image, "t", (APPEND, "cleanup.policy", "delete")) == {"cleanup.policy": "delete"}
    decision, _ = create(cluster(1), NewTopic("t", config={"cleanup.policy": "delete,compact"}))
    assert alter(decision.image, "t", (SUBTRACT, "cleanup.policy", "delete")) == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("x", (SET, "retention.ms", "6"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("", (SET, "retention.ms", "6"), ErrorCode.INVALID_REQUEST),
        ("a b", (SET, "retention.ms", "6"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("t", (SET, "retention.ms", None), ErrorCode.INVALID_REQUEST),
        ("t", (APPEND, "cleanup.policy", None), ErrorCode.INVALID_REQUEST),
        ("t", (APPEND, "cleanup.policy", ""), ErrorCode.INVALID_CONFIG),
        ("t", (9, "retention.ms", "6"), ErrorCode.INVALID_REQUEST),
        ("t", (SET, "retention.ms", "x"), ErrorCode.INVALID_CONFIG),
        ("t", (SET, "retention.msec", "1"), ErrorCode.INVALID_CONFIG),
        ("t", (APPEND, "retention.ms", "1"), ErrorCode.INVALID_CONFIG),
        ("t", (APPEND, "nonsense", "1"), ErrorCode.INVALID_CONFIG),
        ("t", (APPEND, "cleanup.policy", "shred"), ErrorCode.INVALID_CONFIG),
    ],
    ids=str,
)
def test_topic_settings_that_are_refused(name: str, change: tuple[int, str, str | None], code: ErrorCode) -> None:
    assert alter(with_topic(), name, change) is code


def test_settings_of_a_broker_and_of_all_brokers() -> None:
    image = cluster(1)
    assert alter(image, "1", (SET, "message.max.bytes", "6"), kind=4) == {"message.max.bytes": "6"}
    assert alter(image, "", (SET, "message.max.bytes", "6"), kind=4) == {"message.max.bytes": "6"}
    decision, _ = CONTROLLER.alter_configs(
        image, SETTINGS, [ConfigAlteration(4, "", [ConfigChange(SET, "message.max.bytes", "6")])]
    )
    assert decision.changes[1] == Create("/config/brokers/<default>", b'{"version":1,"config":{"message.max.bytes":"6"}}')
    decision, _ = CONTROLLER.alter_configs(
        decision.image, SETTINGS, [ConfigAlteration(4, "", [ConfigChange(DELETE, "message.max.bytes", None)])]
    )
    assert decision.changes[1] == SetData("/config/brokers/<default>", b'{"version":1,"config":{}}')


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("2", (SET, "message.max.bytes", "6"), ErrorCode.INVALID_REQUEST),
        ("one", (SET, "message.max.bytes", "6"), ErrorCode.INVALID_REQUEST),
        ("01", (SET, "message.max.bytes", "6"), ErrorCode.INVALID_REQUEST),
        ("1", (SET, "broker.id", "6"), ErrorCode.INVALID_REQUEST),
        ("1", (DELETE, "log.dirs", None), ErrorCode.INVALID_REQUEST),
        ("1", (SET, "message.max.bytes", "x"), ErrorCode.INVALID_CONFIG),
        ("1", (SET, "message.max.byte", "1"), ErrorCode.INVALID_CONFIG),
        ("", (SET, "ssl.keystore.type", "JKS"), ErrorCode.INVALID_CONFIG),
    ],
    ids=str,
)
def test_broker_settings_that_are_refused(name: str, change: tuple[int, str, str | None], code: ErrorCode) -> None:
    assert alter(cluster(1), name, change, kind=4) is code


def test_other_resources_and_doubles_are_refused() -> None:
    assert alter(cluster(1), "1", (SET, "a", "b"), kind=8) is ErrorCode.INVALID_REQUEST
    assert alter(cluster(1), "1", (SET, "a", "b"), kind=99) is ErrorCode.INVALID_REQUEST
    assert alter(with_topic(), "t", (SET, "retention.ms", "1"), (DELETE, "retention.ms", None)) is ErrorCode.INVALID_REQUEST
    asked = ConfigAlteration(2, "t", [ConfigChange(SET, "retention.ms", "1")])
    decision, outcomes = CONTROLLER.alter_configs(with_topic(), SETTINGS, [asked, asked])
    assert [outcome.code for outcome in outcomes if outcome] == [ErrorCode.INVALID_REQUEST] * 2
    assert decision.empty


def test_f63_producer_ids_come_in_blocks_of_a_thousand_compared_with_the_nodes_version() -> None:
    changes, block = CONTROLLER.next_producer_ids(-1, 0)
    assert block == range(1000)
    assert changes == [
        Check("/controller_epoch", 6),
        SetData("/latest_producer_id_block", b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}', 0),
    ]
    assert CONTROLLER.next_producer_ids(999, 1)[1] == range(1000, 2000)
    with pytest.raises(KafkaError, match="no producer ids left"):
        CONTROLLER.next_producer_ids(2**63 - 500, 1)


def test_a_start_gives_every_partition_a_new_leader_epoch() -> None:
    image = with_topic("t", 2)
    decision = CONTROLLER.take_leadership(image)
    assert [(part.leader, part.leader_epoch, part.partition_epoch) for part in decision.image.topics["t"].partitions] == [
        (1, 1, 1),
        (1, 1, 1),
    ]
    assert decision.changes[1] == SetData(
        "/brokers/topics/t/partitions/0/state",
        b'{"version":1,"leader":1,"leader_epoch":1,"controller_epoch":7,"isr":[1]}',
        0,
    )


def test_only_a_living_in_sync_replica_leads() -> None:
    partition = PartitionImage(1, 4, (2, 3), (1, 2, 3), 9)
    assert reelect(partition, {1, 2, 3}) == PartitionImage(2, 5, (2, 3), (1, 2, 3), 10)
    assert reelect(partition, {1, 3}) == PartitionImage(3, 5, (3,), (1, 2, 3), 10)
    assert reelect(partition, {1}) == PartitionImage(-1, 5, (2, 3), (1, 2, 3), 10), "not in sync: nobody"


def test_a_directory_with_an_absurd_number_makes_no_topic_of_the_gap_before_it() -> None:
    found = [FoundTopic("stranger", None, frozenset({99_999_999}))]
    adoption = CONTROLLER.adopt(cluster(1), found, SeededRandom(random.Random(5)))
    assert not adoption.update.image.topics
    assert adoption.warnings == ["stranger-99999999 is not adopted: 99999999 partitions before it are missing"]


def test_topics_found_on_disk_are_adopted_with_their_ids() -> None:
    found = [
        FoundTopic("old", b"\x01" * 16, frozenset({0, 1})),
        FoundTopic("hole", None, frozenset({0, 3})),
        FoundTopic("__consumer_offsets", b"\x02" * 16, frozenset({0})),
    ]
    adoption = CONTROLLER.adopt(cluster(1), found, SeededRandom(random.Random(5)))
    topics = adoption.update.image.topics
    assert topics["old"].topic_id == b"\x01" * 16
    assert [part.replicas for part in topics["old"].partitions] == [(1,), (1,)]
    assert [part.leader for part in topics["old"].partitions] == [1, 1]
    # What the settings of the topic were, the directory does not tell: nothing may be removed meanwhile.
    assert topics["old"].config == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert topics["__consumer_offsets"].config["cleanup.policy"] == "compact"
    assert len(topics["hole"].partitions) == 4
    assert len(topics["hole"].topic_id) == 16
    assert "without the partitions 1, 2" in adoption.warnings[0]
    assert "3 topics were found" in adoption.warnings[1]
    assert adoption.update.changes[-1] == Create("/ottla/adopted")


def test_adopting_nothing_still_leaves_its_mark() -> None:
    adoption = CONTROLLER.adopt(cluster(1), [], SeededRandom(random.Random(5)))
    assert adoption.warnings == []
    assert adoption.update.changes == [Check("/controller_epoch", 6), Create("/ottla/adopted")]
