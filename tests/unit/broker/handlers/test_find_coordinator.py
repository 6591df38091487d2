from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.broker.handlers.find_coordinator import refuse
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.codec import decode, encode
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.handlers import every_version


class Topic:
    """Knows who coordinates once it was waited for; a group without a leader is called "orphan"."""

    def __init__(self, *, known: bool = True, error: KafkaError | None = None) -> None:
        self.known = known
        self.error = error

    def known_leader_of(self, group_id: str) -> int | None:
        if not self.known:
            return None
        return -1 if group_id == "orphan" else 1

    async def leader_of(self, group_id: str) -> int:
        if self.error is not None:
            raise self.error
        self.known = True
        return 1


def coordinators(**options: Any) -> Any:
    return SimpleNamespace(shards=SimpleNamespace(topic=Topic(**options)))


async def ask(broker: MetadataBroker, version: int, *keys: str, kind: int = 0, listener: str = "PLAINTEXT") -> list[Any]:
    """Each key's answer, whichever layout the version has."""
    if version < 4:
        requests = [FindCoordinatorRequest(key=key, key_type=kind) for key in keys]
        return [await broker.ask("find_coordinator", version, request, listener) for request in requests]
    request = FindCoordinatorRequest(coordinator_keys=list(keys), key_type=kind)
    response = await broker.ask("find_coordinator", version, request, listener)
    assert [found.key for found in response.coordinators] == list(keys)
    return list(response.coordinators)


@every_version("find_coordinator")
def test_a_groups_coordinator_in_each_versions_layout_by_the_clients_listener(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        broker.groups = coordinators(known=False)
        for listener, host, port in (("PLAINTEXT", "127.0.0.1", 9092), ("OUTSIDE", "example.org", 443)):
            for found in await ask(broker, version, "g", "h", listener=listener):
                assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, host, port)

    on_broker(test)


@every_version("find_coordinator")
def test_where_nobody_coordinates(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        broker.groups = coordinators()
        (orphan,) = await ask(broker, version, "orphan")
        (unreachable,) = await ask(broker, version, "g", listener="GONE")
        failure = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the topic of offsets cannot be created")
        broker.groups = coordinators(known=False, error=failure)
        (failed,) = await ask(broker, version, "g")
        for found in (orphan, unreachable, failed):
            assert (found.error_code, found.node_id, found.host, found.port) == (
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                -1,
                "",
                -1,
            )

    on_broker(test)


@every_version("find_coordinator")
def test_transactional_ids_have_coordinators_of_their_own(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        broker.groups = coordinators(error=KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        broker.transactions = coordinators(known=False)
        if version == 0:  # which has no types: all keys are groups
            return
        (found,) = await ask(broker, version, "t", kind=1)
        assert (found.error_code, found.node_id, found.port) == (0, 1, 9092)
        (orphan,) = await ask(broker, version, "orphan", kind=1)
        assert (orphan.error_code, orphan.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)

    on_broker(test)


def test_types_of_keys() -> None:
    async def test(broker: MetadataBroker) -> None:
        for version, kind, code in (
            (1, 2, ErrorCode.INVALID_REQUEST),
            (3, 9, ErrorCode.INVALID_REQUEST),
            (5, 2, ErrorCode.INVALID_REQUEST),
            (6, 2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (6, -1, ErrorCode.INVALID_REQUEST),
        ):
            (found,) = await ask(broker, version, "g", kind=kind)
            assert (found.error_code, found.node_id) == (code, -1)
            assert found.error_message

    on_broker(test)


def test_a_refusal_without_keys_has_no_coordinators() -> None:
    """As Kafka's FindCoordinatorRequest.getErrorResponse: the connection stays open."""
    error = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    for version in (4, 6):
        response = decode(FindCoordinatorResponse, version, encode(refuse(FindCoordinatorRequest(key_type=2), error), version))
        assert response.coordinators == []
    response = decode(FindCoordinatorResponse, 3, encode(refuse(FindCoordinatorRequest(key="g"), error), 3))
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
