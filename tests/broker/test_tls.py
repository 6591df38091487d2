"""A broker with a TLS listener, on a real socket (TL06, TL07)."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509.oid import NameOID

from ottla.broker.network.listener_tls import ListenerTls
from ottla.broker.startup_error import StartupError
from ottla.client.connection import ClientConnection
from ottla.cluster import znodes
from ottla.errors import ErrorCode
from ottla.ports import Create
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.runtime.loop import run
from ottla.tls.config import KeyStore, TlsSettings, TrustStore
from ottla.tls.context import TlsError, client_context
from tests.broker.conftest import _perform, records_of
from tests.kit.certificates import Authority, Issued, name_of
from tests.kit.wait import until_async

AUTHORITY = Authority()
BROKER = AUTHORITY.issue("broker")
TRUST = TrustStore("PEM", certificates=AUTHORITY.pem)


def client(issued: Issued | None = None, **options: Any) -> ssl.SSLContext:
    """What a client connects with."""
    store = KeyStore("PEM", key=issued.key_pem(), certificate_chain=issued.certificate_pem) if issued is not None else None
    return client_context(TlsSettings(store, TRUST, **options))


@pytest.fixture
def secured(tmp_path: Path) -> dict[str, str]:
    """Settings of a broker with one SSL listener, with _ for the dots."""
    return {
        "listeners": "SSL://127.0.0.1:0",
        "ssl_keystore_type": "PEM",
        "ssl_keystore_location": BROKER.pem_file(tmp_path / "broker.pem"),
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": AUTHORITY.pem_file(tmp_path / "authority.pem"),
    }


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_tl06_records_go_both_ways(play: Any, secured: dict[str, str], protocol: str) -> None:
    """Small, copied, in chunks, and beside the loop."""

    async def case(stage: Any) -> None:
        connection: ClientConnection = await stage.connect(client(protocols=(protocol,)))
        for number, size in enumerate((10, 20_000, 200_000, 900_000)):
            name = f"t{number}"
            await stage.topic(name, max_message_bytes=str(8 << 20))
            values = [os.urandom(size) for _ in range(4)]
            for value in values:
                answer = await stage.produce(connection, stage.batch(value), topic=name)
                assert answer.error_code == 0
            data = await stage.fetch(connection, 0, topic=name, partition_max_bytes=8 << 20)
            assert [record.value for record in records_of(data)] == values
        assert stage.counters.get("sendfile_bytes") == 0
        assert stage.counters.get("tls_encrypted_beside") > 0

    play(case, **secured)


def test_requests_that_come_together_are_answered_in_order(play: Any, secured: dict[str, str]) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection: ClientConnection = await stage.connect(client())
        batches = [stage.batch(b"%d" % number) for number in range(200)]
        calls = [connection.send("produce", 9, stage.produce_request(batch)) for batch in batches]
        offsets = [(await call).responses[0].partition_responses[0].base_offset for call in calls]
        assert offsets == list(range(200))

    play(case, **secured)


def test_tl07_one_line_for_each_connection_that_is_no_tls(
    play: Any, secured: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ottla.broker.network")

    async def case(stage: Any) -> None:
        raw = await stage.raw()
        raw.send(b"\x00\x00\x00\x10plaintext")
        assert await raw.closed()
        await until_async(lambda: stage.counters.get("tls_handshakes_failed") == 1, "it is counted")
        stranger = TlsSettings(trust_store=TrustStore("PEM", certificates=Authority("other").pem))
        with pytest.raises(ssl.SSLCertVerificationError):
            await stage.connect(client_context(stranger))
        await until_async(lambda: stage.counters.get("tls_handshakes_failed") == 2, "it is counted")
        lines = [re.sub(r"1:[0-9]+ ", "1:PORT ", line.getMessage()) for line in caplog.records if "Closed" in line.getMessage()]
        assert lines == [
            "Closed connection: 127.0.0.1:PORT on SSL: it does not speak TLS; this listener does",
            "Closed connection: 127.0.0.1:PORT on SSL: it does not trust the certificate of this broker (alert unknown CA)",
        ]
        assert len(stage.broker.server) == 0

    play(case, **secured)


def test_tl07_many_half_handshakes_leave_a_place_for_others(
    play: Any, secured: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """A thousand connections that begin a handshake and stop: others are served, and the log stays short."""

    async def case(stage: Any) -> None:
        half = []
        for _ in range(1000):
            sock = socket.create_connection(("127.0.0.1", stage.port))
            sock.sendall(b"\x16\x03\x01\x02\x00\x01")
            half.append(sock)
            if len(half) % 50 == 0:
                await asyncio.sleep(0)  # the broker is in this loop
        for _ in range(20):
            connection: ClientConnection = await stage.connect(client())
            assert len((await connection.call("metadata", 12, MetadataRequest(topics=[]))).brokers) == 1
        assert len(stage.broker.server) == 20
        lines = [record for record in caplog.records if "Closed connection" in record.getMessage()]
        assert 0 < len(lines) <= 20
        for sock in half:
            sock.close()

    play(case, **secured)


def test_a_store_that_cannot_be_used_stops_the_start(play: Any, secured: dict[str, str]) -> None:
    async def never(stage: Any) -> None:
        raise AssertionError

    with pytest.raises(StartupError, match=r"listener SSL: ssl.keystore.location=/none.pem: it cannot be read: No such file"):
        play(never, **secured | {"ssl_keystore_location": "/none.pem"})
    with pytest.raises(StartupError, match=r"listener SSL: ssl.truststore.location=/none.pem: it cannot be read"):
        play(never, **secured | {"ssl_truststore_location": "/none.pem", "ssl_client_auth": "required"})


def test_the_limit_of_an_address_holds_before_the_handshake(play: Any, secured: dict[str, str]) -> None:
    async def case(stage: Any) -> None:
        await stage.connect(client())
        await until_async(lambda: len(stage.broker.server) == 1, "the first is served")
        with pytest.raises(OSError):
            await stage.connect(client())
        assert stage.counters.get("connections_refused") == 1

    play(case, max_connections_per_ip="1", **secured)


def principals(stage: Any) -> list[str]:
    return [str(connection.session.principal) for connection in stage.broker.server._by_use]


def test_tl03_the_principal_is_the_subject_of_the_certificate(play: Any, secured: dict[str, str]) -> None:
    subject = name_of((NameOID.COUNTRY_NAME, "NL"), (NameOID.ORGANIZATION_NAME, "Ottla, Inc."), (NameOID.COMMON_NAME, "ada"))

    async def case(stage: Any) -> None:
        await stage.connect(client(AUTHORITY.issue(subject, ())))
        await stage.connect(client())
        await until_async(lambda: len(stage.broker.server) == 2, "both are served")
        assert principals(stage) == ["User:CN=ada,O=Ottla\\, Inc.,C=NL", "User:ANONYMOUS"]

    play(case, ssl_client_auth="requested", **secured)


def test_tl04_rules_name_the_principal(play: Any, secured: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    async def case(stage: Any) -> None:
        await stage.connect(client(AUTHORITY.issue("Ada", ())))
        await until_async(lambda: len(stage.broker.server) == 1, "it is served")
        assert principals(stage) == ["User:ada"]
        stranger = await stage.connect(client(AUTHORITY.issue("42", ())))
        await stranger.wait_closed()
        assert len(stage.broker.server) == 1, "nobody becomes anonymous"
        (line,) = [record.getMessage() for record in caplog.records if "Closed connection" in record.getMessage()]
        assert re.search(r"127.0.0.1:\d+ on SSL: no rule of ssl.principal.mapping.rules matches the subject CN=42$", line)

    play(case, ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=([A-Za-z]+)$/$1/L", **secured)


def test_tl03_on_sasl_ssl_the_login_decides(play: Any, secured: dict[str, str]) -> None:
    async def case(stage: Any) -> None:
        await stage.connect(client(AUTHORITY.issue("ada", ())))
        await until_async(lambda: len(stage.broker.server) == 1, "it is there")
        assert principals(stage) == ["User:ANONYMOUS"], "nobody is logged in"

    users = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ada="word";'
    play(
        case,
        **secured
        | {
            "listeners": "IN://127.0.0.1:0",
            "listener_security_protocol_map": "IN:SASL_SSL",
            "sasl_enabled_mechanisms": "PLAIN",
            "listener_name_in_plain_sasl_jaas_config": users,
            "listener_name_in_ssl_client_auth": "required",
        },
    )


# New stores while the broker runs


async def alter(
    connection: ClientConnection, name: str, value: str, more: dict[str, str] | None = None, *, validate_only: bool = False
) -> tuple[int, str]:
    values = {name: value} | (more or {})
    changes = [AlterableConfig(name=f"listener.name.ssl.{each}", config_operation=0, value=text) for each, text in values.items()]
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = (await connection.call("incremental_alter_configs", 1, request)).responses
    return answer.error_code, answer.error_message or ""


async def shown(stage: Any) -> bytes:
    """The certificate that the broker presents now."""
    connection = await stage.connect(client())
    der: bytes = connection._transport.get_extra_info("peercert_der")
    connection.close()
    return der


def test_tl05_a_new_key_store_is_used_for_new_connections(play: Any, secured: dict[str, str], tmp_path: Path) -> None:
    async def case(stage: Any) -> None:
        old = await stage.connect(client())
        assert await shown(stage) == BROKER.der
        new = AUTHORITY.issue("broker")
        other = new.pem_file(tmp_path / "new.pem")
        assert await alter(old, "ssl.keystore.location", other, validate_only=True) == (0, "")
        assert await shown(stage) == BROKER.der
        assert await alter(old, "ssl.keystore.location", other) == (0, "")
        assert await shown(stage) == new.der
        # The same value, a new file.
        newer = AUTHORITY.issue("broker", ("localhost", "127.0.0.1", "more.example"))
        newer.pem_file(tmp_path / "new.pem")
        assert await alter(old, "ssl.keystore.location", other) == (0, "")
        assert await shown(stage) == newer.der
        newest = AUTHORITY.issue("broker", ("localhost", "127.0.0.1", "more.example"))
        newest.pem_file(tmp_path / "new.pem")
        stage.broker.reload_files()  # SIGHUP
        assert await shown(stage) == newest.der
        assert len((await old.call("metadata", 12, MetadataRequest(topics=[]))).brokers) == 1, "the old connection lives on"

    play(case, **secured)


def test_tl05_a_key_store_that_does_not_fit_is_refused(
    play: Any, secured: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = {
        "another.pem": (AUTHORITY.issue("another"), "has the subject CN=another, the old one CN=broker"),
        "fewer.pem": (AUTHORITY.issue("broker", ("localhost",)), "lacks a subject alternative name"),
    }

    async def case(stage: Any) -> None:
        connection = await stage.connect(client())
        for name, (issued, word) in bad.items():
            code, text = await alter(connection, "ssl.keystore.location", issued.pem_file(tmp_path / name))
            assert code == ErrorCode.INVALID_REQUEST
            assert word in text
        for name, value, word in (
            ("ssl.keystore.location", "/none.pem", "No such file"),
            ("ssl.keystore.location", "", "cannot be removed while the broker runs"),
            ("ssl.truststore.location", "", "cannot be removed while the broker runs"),
        ):
            code, text = await alter(connection, name, value)
            assert code == ErrorCode.INVALID_REQUEST
            assert word in text
        assert await shown(stage) == BROKER.der
        # A file that was replaced by one that does not fit: the old one stays, and the log says so.
        AUTHORITY.issue("another").pem_file(Path(secured["ssl_keystore_location"]))
        code, text = await alter(connection, "ssl.keystore.location", secured["ssl_keystore_location"])
        assert code == ErrorCode.INVALID_REQUEST
        assert await shown(stage) == BROKER.der
        stage.broker.tls.apply(stage.broker.settings)
        assert any("Keeping the TLS stores in use: listener SSL" in record.getMessage() for record in caplog.records)

    play(case, **secured)


def test_tl05_changes_of_names_can_be_allowed(play: Any, secured: dict[str, str], tmp_path: Path) -> None:
    async def case(stage: Any) -> None:
        connection = await stage.connect(client())
        other = AUTHORITY.issue("another", ("127.0.0.1",))
        assert await alter(connection, "ssl.keystore.location", other.pem_file(tmp_path / "other.pem")) == (0, "")
        assert await shown(stage) == other.der

    play(case, ssl_allow_dn_changes="true", ssl_allow_san_changes="true", **secured)


def test_tl05_between_brokers_old_and_new_stores_must_understand_each_other(tmp_path: Path) -> None:
    def settings(issued: Issued, authority: Authority) -> TlsSettings:
        key = KeyStore("PEM", key=issued.key_pem(), certificate_chain=issued.certificate_pem)
        return TlsSettings(key, TrustStore("PEM", certificates=authority.pem), "required")

    tls = ListenerTls("IN", settings(BROKER, AUTHORITY), between_brokers=True)
    other = Authority("other")
    with pytest.raises(TlsError, match="brokers could not connect to each other"):
        tls.replacement(settings(other.issue("broker"), other))
    with pytest.raises(TlsError, match="listener IN: brokers could not connect to each other"):
        ListenerTls("IN", settings(BROKER, other), between_brokers=True)
    assert tls.replacement(settings(AUTHORITY.issue("broker"), AUTHORITY)) is not None
    assert tls.replacement(tls.settings) is None


def test_tl05_a_new_key_store_holds_after_a_restart(secured: dict[str, str], tmp_path: Path) -> None:
    new = AUTHORITY.issue("broker")
    other = new.pem_file(tmp_path / "new.pem")

    async def change(stage: Any) -> None:
        connection = await stage.connect(client())
        assert await alter(connection, "ssl.keystore.location", other) == (0, "")

    async def look(stage: Any) -> None:
        assert await shown(stage) == new.der

    run(_perform(change, tmp_path, secured))
    Path(secured["ssl_keystore_location"]).unlink()
    run(_perform(look, tmp_path, secured))


def test_tl05_a_new_password_is_stored_encrypted(
    secured: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new = AUTHORITY.issue("broker")
    other = new.pem_file(tmp_path / "new.pem", "planted-new")
    changed = {"ssl.keystore.location": other, "ssl.key.password": "planted-new"}

    async def refused(stage: Any) -> None:
        connection = await stage.connect(client())
        code, text = await alter(connection, "ssl.keystore.type", "PEM", changed)
        assert (code, "password.encoder.secret" in text, "planted" in text) == (ErrorCode.INVALID_CONFIG, True, False)

    async def change(stage: Any) -> None:
        connection = await stage.connect(client())
        code, _ = await alter(connection, "ssl.keystore.type", "PEM", changed | {"ssl.key.password": "wrong"})
        assert code == ErrorCode.INVALID_REQUEST
        assert await shown(stage) == BROKER.der
        assert await alter(connection, "ssl.keystore.type", "PEM", changed) == (0, "")
        stored = stage.broker.image.broker_configs["1"]["listener.name.ssl.ssl.key.password"]
        assert "encryptedPassword:" in stored
        assert "planted" not in repr(stage.broker.image.broker_configs)
        assert await shown(stage) == new.der

    async def look(stage: Any) -> None:
        assert await shown(stage) == new.der

    run(_perform(refused, tmp_path, secured))
    with caplog.at_level(logging.DEBUG):
        run(_perform(change, tmp_path, secured | {"password_encoder_secret": "secret-1"}))
    assert "planted" not in caplog.text
    replaced = {"password_encoder_secret": "secret-2", "password_encoder_old_secret": "secret-1"}
    run(_perform(look, tmp_path, secured | replaced))


def test_stored_configs_that_say_who_may_connect_stop_the_start(secured: dict[str, str], tmp_path: Path) -> None:
    """Apache Kafka takes them from the tree; to ignore them would let in whom they keep out."""

    async def store(stage: Any) -> None:
        config = {"listener.name.ssl.ssl.client.auth": "required"}
        await stage.broker.store.multi([Create(znodes.broker_config_path("1"), znodes.encode_config(config))])

    async def nothing(stage: Any) -> None:
        raise AssertionError

    run(_perform(store, tmp_path, secured))
    with pytest.raises(StartupError, match=r"listener\.name\.ssl\.ssl\.client\.auth; write them there"):
        run(_perform(nothing, tmp_path, secured))


@pytest.mark.parametrize(("days", "word"), [(5, "expires in 5.0 days"), (-1, "has expired"), (40, None)])
def test_tl05_a_certificate_that_expires_soon_is_logged(
    play: Any, secured: dict[str, str], caplog: pytest.LogCaptureFixture, days: float, word: str | None
) -> None:
    async def case(stage: Any) -> None:
        def lines() -> list[str]:
            return [line for record in caplog.records if "certificate of listener SSL" in (line := record.getMessage())]

        if word is not None:
            await until_async(lines, "the log says so")
            assert word in lines()[0]
        (listener,) = stage.broker.tls
        assert abs(listener.not_after_ms / 1000 - time.time() - days * 86400) < 600
        stage.broker.tls.warn_of_expiry()
        assert bool(lines()) == (word is not None)

    AUTHORITY.issue("broker", days=days).pem_file(Path(secured["ssl_keystore_location"]))
    play(case, **secured)
