"""What a new image means for this broker."""

from __future__ import annotations

from ottla.broker.replicas.role_changes import role_changes
from ottla.cluster.image import ClusterImage, PartitionImage, TopicImage
from ottla.types import TopicPartition

ME = 1


def partition(leader: int = ME, epoch: int = 0, replicas: tuple[int, ...] = (ME,)) -> PartitionImage:
    return PartitionImage(leader, epoch, replicas, replicas)


def topic(name: str, *partitions: PartitionImage, id: int = 1, config: dict[str, str] | None = None) -> TopicImage:
    return TopicImage(name, bytes([id]) * 16, partitions or (partition(),), config or {})


def image(*topics: TopicImage) -> ClusterImage:
    return ClusterImage("cluster").with_topics(topics)


def keys(roles: object) -> list[str]:
    return [str(role.topic_partition) for role in roles]  # type: ignore[attr-defined]


def test_the_first_image_gives_all_roles_of_this_broker() -> None:
    changes = role_changes(None, image(topic("a", partition(), partition(2, replicas=(2, 3)))), ME)
    assert keys(changes.taken) == ["a-0"]
    assert changes.removed == []
    assert [told.name for told in changes.reconfigured] == ["a"]


def test_what_did_not_change_is_left_alone() -> None:
    before = image(topic("a"), topic("b", id=2))
    after = before.with_topics([topic("b", partition(epoch=1), id=2)])
    changes = role_changes(before, after, ME)
    assert keys(changes.taken) == ["b-0"]
    assert changes.removed == []
    assert changes.reconfigured == []


def test_added_partitions_deleted_topics_changed_settings() -> None:
    before = image(topic("a"), topic("b", id=2), topic("c", id=3))
    after = before.with_topics([topic("a", partition(), partition()), topic("c", id=3, config={"retention.ms": "1"})], ["b"])
    changes = role_changes(before, after, ME)
    assert keys(changes.taken) == ["a-1"]
    assert changes.removed == [TopicPartition("b", 0)]
    assert [changed.name for changed in changes.reconfigured] == ["c"]


def test_a_topic_made_again_under_its_name_is_another_one() -> None:
    changes = role_changes(image(topic("a", id=1)), image(topic("a", id=2)), ME)
    assert changes.removed == [TopicPartition("a", 0)]
    assert keys(changes.taken) == ["a-0"]


def test_a_replica_that_moves_away_is_removed() -> None:
    before = image(topic("a", partition(2, replicas=(1, 2))))
    after = image(topic("a", partition(2, replicas=(2, 3))))
    assert role_changes(before, after, ME).removed == [TopicPartition("a", 0)]


def test_dynamic_settings_of_the_broker_concern_all_topics() -> None:
    before = image(topic("a"))
    assert not role_changes(before, before, ME).settings_changed
    assert role_changes(before, before.with_broker_config("", {"log.retention.ms": "5"}), ME).settings_changed
    assert not role_changes(before, before.with_broker_config("2", {"log.retention.ms": "5"}), ME).settings_changed
