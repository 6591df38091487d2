"""The blocking client against a scripted broker: agreement, look-ups, what it tries again and what it does not."""

from __future__ import annotations

import gc
import socket
import ssl
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ottla.client.blocking import BrokerAway, Client, Untrusted, errors_in
from ottla.client.offsets import LATEST, list_offsets
from ottla.client.options import ClientOptions
from ottla.client.security import ClientSecurity, TlsOptions
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeResponse
from ottla.types import TopicPartition
from tests.kit.scripted_broker import CLOSE, SILENCE, ScriptedBroker


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    broker = ScriptedBroker()
    yield broker
    broker.close()


def options(*ports: int, **changes: Any) -> ClientOptions:
    quick = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "api_timeout_ms": 20_000, **changes}
    return ClientOptions(tuple(("127.0.0.1", port) for port in ports), **quick)


@pytest.fixture
def client(broker: ScriptedBroker) -> Iterator[Client]:
    with Client(options(broker.port)) as client:
        yield client


def ends(error_code: int = 0, offset: int = 7) -> ListOffsetsResponse:
    part = ListOffsetsPartitionResponse(partition_index=0, error_code=error_code, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[part])])


def found(port: int, error_code: int = 0) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=port, error_code=error_code)


@pytest.fixture
def nobody() -> Iterator[Callable[[], int]]:
    """Ports where connections are refused: bound and not listening, so that nobody else can take them."""
    with ExitStack() as held:

        def bind() -> int:
            unused = held.enter_context(socket.socket())
            unused.bind(("127.0.0.1", 0))
            port: int = unused.getsockname()[1]
            return port

        yield bind


def test_versions_are_agreed_on_and_messages_made_for_them(broker: ScriptedBroker, client: Client) -> None:
    broker.script["list_offsets"] = [ends()]
    made: list[int] = []

    def request(version: int) -> ListOffsetsRequest:
        made.append(version)
        return ListOffsetsRequest()

    client.call_leader("t", 0, request, api="list_offsets", max_version=2)
    client.call_leader("t", 0, request, api="list_offsets")
    assert made == [2, 3]


def test_w02_a_broker_that_knows_only_old_versions_of_api_versions(broker: ScriptedBroker, client: Client) -> None:
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    full = broker._answer("api_versions")
    broker.script["api_versions"] = [refusal, full]
    client.reach(60)
    assert [(name, version) for name, version, _ in broker.asked] == [("api_versions", 3), ("api_versions", 0)]


def test_an_api_that_the_broker_does_not_have_is_said_at_once(broker: ScriptedBroker, client: Client) -> None:
    broker.script["api_versions"] = [ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, min_version=0, max_version=4)])]
    with pytest.raises(KafkaError, match="list_offsets") as refused:
        client.call_leader("t", 0, ListOffsetsRequest())
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_a_leader_that_moved_is_looked_up_again(broker: ScriptedBroker, client: Client) -> None:
    broker.script["list_offsets"] = [ends(ErrorCode.NOT_LEADER_OR_FOLLOWER), ends()]
    assert client.call_leader("t", 0, ListOffsetsRequest()).topics[0].partitions[0].offset == 7
    assert broker.names() == ["metadata", "list_offsets", "metadata", "list_offsets"]


def test_what_cannot_pass_by_itself_is_raised_at_once_with_its_place(broker: ScriptedBroker, client: Client) -> None:
    broker.script["list_offsets"] = [ends(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED: t-0"):
        client.call_leader("t", 0, ListOffsetsRequest())
    assert broker.names().count("list_offsets") == 1


@pytest.mark.parametrize("trouble", [CLOSE, SILENCE])
def test_a_connection_that_fails_is_replaced(broker: ScriptedBroker, trouble: str) -> None:
    broker.script["list_offsets"] = [trouble, ends()]
    with Client(options(broker.port, request_timeout_ms=300)) as client:
        assert client.call_leader("t", 0, ListOffsetsRequest()).topics[0].partitions[0].offset == 7


def test_a_broker_that_stays_away_is_named_when_the_time_is_over(nobody: Callable[[], int]) -> None:
    first, second = nobody(), nobody()
    with Client(options(first, second, api_timeout_ms=50)) as client, pytest.raises(BrokerAway) as away:
        client.call_any(ListOffsetsRequest())
    assert f"127.0.0.1:{first}: Connection refused" in str(away.value)
    assert f"127.0.0.1:{second}: Connection refused" in str(away.value)


def test_one_of_the_bootstrap_servers_is_enough(broker: ScriptedBroker, nobody: Callable[[], int]) -> None:
    with Client(options(nobody(), broker.port)) as client:
        client.reach(60)
        assert client.topic("t").partitions[0].leader_id == 1


def test_something_that_is_no_broker_is_said_to_be_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(100)

        thread = threading.Thread(target=greet)
        thread.start()
        # One attempt: the pause before the next would be longer than the time there is.
        with Client(options(port, retry_backoff_ms=90_000)) as client, pytest.raises(BrokerAway, match="as a Kafka broker does"):
            client.reach(60)
        thread.join()


def test_the_coordinator_is_found_kept_and_looked_up_again(broker: ScriptedBroker, client: Client) -> None:
    broker.script["find_coordinator"] = [found(broker.port, ErrorCode.COORDINATOR_NOT_AVAILABLE), found(broker.port)]
    broker.script["end_txn"] = [EndTxnResponse(), EndTxnResponse(error_code=ErrorCode.NOT_COORDINATOR), EndTxnResponse()]
    for _ in range(2):
        client.call_coordinator("id", "transaction", EndTxnRequest(transactional_id="id"))
    assert broker.names() == [
        "find_coordinator",
        "find_coordinator",
        "end_txn",
        "end_txn",
        "find_coordinator",
        "end_txn",
    ]
    assert {request.key_type for name, _, request in broker.asked if name == "find_coordinator"} == {1}


def test_coordinators_in_lists(broker: ScriptedBroker, client: Client) -> None:
    broker.highest[10] = 4
    entry = Coordinator(key="g", node_id=1, host="127.0.0.1", port=broker.port)
    broker.script["find_coordinator"] = [FindCoordinatorResponse(coordinators=[entry])]
    broker.script["end_txn"] = [EndTxnResponse()]
    client.call_coordinator("g", "group", EndTxnRequest())
    assert broker.asked[1][2].coordinator_keys == ["g"]


def test_concurrent_transactions_are_waited_out_without_a_new_look_up(broker: ScriptedBroker, client: Client) -> None:
    busy = EndTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
    broker.script["find_coordinator"] = [found(broker.port)]
    broker.script["end_txn"] = [busy, busy, EndTxnResponse()]
    client.call_coordinator("id", "transaction", EndTxnRequest())
    assert broker.names() == ["find_coordinator", "end_txn", "end_txn", "end_txn"]


def test_a_failure_that_was_overcome_is_forgotten_at_once(client: Client) -> None:
    """It holds the frames of all who waited, and whatever clients they hold: those would live until garbage is collected."""
    failures: list[weakref.ref[BrokerAway]] = []

    def failure() -> BrokerAway:
        made = BrokerAway("for a moment")
        failures.append(weakref.ref(made))
        return made

    def attempt(until: float) -> str:
        if not failures:
            raise failure()
        return "answered"

    gc.disable()
    try:
        assert client.persist(attempt, 30) == "answered"
        assert [each() for each in failures] == [None]
    finally:
        gc.enable()


def test_offsets_of_partitions_whose_leader_is_missing_for_a_moment(broker: ScriptedBroker, client: Client) -> None:
    nobody = broker.metadata(leader=-1)
    broker.script["metadata"] = [nobody, broker.metadata()]
    broker.script["list_offsets"] = [ends(offset=3)]
    where = TopicPartition("t", 0)
    assert list_offsets(client, {where: LATEST})[where].offset == 3


def test_a_partition_that_is_not_there_is_said(broker: ScriptedBroker, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.client.blocking._UNKNOWN_TOPIC_PATIENCE_S", 0)
    with pytest.raises(KafkaError, match="topic t has 1 partitions, there is no partition 4"):
        client.call_leader("t", 4, ListOffsetsRequest())


def test_describe_leaves_out_what_is_not_there(broker: ScriptedBroker, client: Client) -> None:
    broker.script["metadata"] = [broker.metadata(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), broker.metadata()]
    assert client.describe(["t"]) == {}
    assert client.describe(["t"])["t"].partitions.keys() == {0}


def test_a_request_may_be_sent_ahead(broker: ScriptedBroker, client: Client) -> None:
    broker.script["list_offsets"] = [ends(offset=1), ends(offset=2), CLOSE, ends(ErrorCode.OFFSET_NOT_AVAILABLE)]
    wait = client.send_leader("t", 0, ListOffsetsRequest())
    assert wait().topics[0].partitions[0].offset == 1
    assert client.call_leader("t", 0, ListOffsetsRequest()).topics[0].partitions[0].offset == 2
    wait = client.send_leader("t", 0, ListOffsetsRequest())
    with pytest.raises(BrokerAway):
        wait()
    wait = client.send_leader("t", 0, ListOffsetsRequest())
    with pytest.raises(KafkaError, match="OFFSET_NOT_AVAILABLE"):
        wait()


def test_a_login_with_a_password(broker: ScriptedBroker) -> None:
    login = options(
        broker.port, security=ClientSecurity("SASL_PLAINTEXT", username="alice", password="secret"), api_timeout_ms=2000
    )
    broker.script["sasl_handshake"] = [SaslHandshakeResponse(mechanisms=["PLAIN"])]
    broker.script["sasl_authenticate"] = [SaslAuthenticateResponse(auth_bytes=b"")]
    with Client(login) as client:
        client.reach(60)
    assert bytes(broker.asked[-1][2].auth_bytes) == b"\0alice\0secret"
    broker.script["sasl_authenticate"] = [
        SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="no such user", auth_bytes=b"")
    ]
    with Client(login) as client, pytest.raises(KafkaError, match=r"SASL_AUTHENTICATION_FAILED.*no such user"):
        client.reach(60)
    broker.script["sasl_handshake"] = [
        SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["SCRAM-SHA-512"])
    ]
    with Client(login) as client, pytest.raises(KafkaError, match="offers SCRAM-SHA-512, not PLAIN"):
        client.reach(60)


def test_tls_by_the_certificate_that_is_trusted_and_not_by_another(tmp_path: Path) -> None:
    files = {}
    for name in ("ours", "other"):
        files[name] = tmp_path / f"{name}.pem"
        subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(tmp_path / f"{name}.key")]
        command = ["openssl", "req", "-x509", "-days", "2", *key, *subject, "-out", str(files[name])]
        subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files["ours"], tmp_path / "ours.key")
    broker = ScriptedBroker(context)
    try:
        with Client(
            options(broker.port, security=ClientSecurity("SSL", tls=TlsOptions(trust_file=str(files["ours"]))))
        ) as client:
            assert client.topic("t").partitions[0].leader_id == 1
        stranger = options(broker.port, security=ClientSecurity("SSL", tls=TlsOptions(trust_file=str(files["other"]))))
        with Client(stranger) as client, pytest.raises(Untrusted, match="certificate that is not trusted"):
            client.topic("t")
    finally:
        broker.close()


def test_errors_are_found_wherever_they_are() -> None:
    assert list(errors_in(ends())) == []
    assert list(errors_in(ends(ErrorCode.OFFSET_OUT_OF_RANGE))) == [(1, "t-0")]
    assert list(errors_in(EndTxnResponse(error_code=47))) == [(47, "")]
    refused = FindCoordinatorResponse(coordinators=[Coordinator(key="g", error_code=30, error_message="not yours")])
    assert list(errors_in(refused)) == [(30, "not yours")]
