"""Quotas and SCRAM credentials of users, client ids and addresses: paths, filters, changes (KIP-546, KIP-554; F59)."""

from __future__ import annotations

import base64
import hashlib
from math import inf, nan

import pytest

from ottla.cluster.client_entities import (
    ANY,
    CLIENT_ID,
    DEFAULT,
    EXACT,
    IP,
    USER,
    Component,
    Credential,
    Entity,
    check_credential,
    connection_rate_of,
    credentials_in,
    entity,
    entity_of,
    entity_path,
    quotas,
    with_credential,
    with_quotas,
)
from ottla.errors import ErrorCode, KafkaError

PATHS: dict[str, Entity] = {
    "users/alice": ((USER, "alice"),),
    "users/<default>": ((USER, None),),
    "users/a%40b%20c": ((USER, "a@b c"),),
    "clients/app": ((CLIENT_ID, "app"),),
    "users/alice/clients/<default>": ((USER, "alice"), (CLIENT_ID, None)),
    "ips/127.0.0.1": ((IP, "127.0.0.1"),),
}


@pytest.mark.parametrize("path", PATHS)
def test_an_entity_has_one_path_as_kafka_writes_it(path: str) -> None:
    assert entity_path(PATHS[path]) == path
    assert entity_of(path) == PATHS[path]


@pytest.mark.parametrize("path", ["topics/t", "brokers/1", "users", "users/a/b/c", "users/a/clients"])
def test_other_paths_are_no_entities(path: str) -> None:
    assert entity_of(path) is None


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [("", "a")],
        [("team", "a")],
        [(USER, "")],
        [(CLIENT_ID, "")],
        [(USER, "a"), (USER, "b")],
        [(USER, "a"), (IP, "1.2.3.4")],
        [(CLIENT_ID, None), (IP, None)],
        [(IP, "no address")],
    ],
)
def test_qu07_what_is_no_entity_is_refused(pairs: list[tuple[str, str | None]]) -> None:
    with pytest.raises(KafkaError) as caught:
        entity(pairs)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_the_order_in_which_a_client_names_the_parts_does_not_matter() -> None:
    assert entity([(CLIENT_ID, "c"), (USER, "u")]) == entity([(USER, "u"), (CLIENT_ID, "c")]) == ((USER, "u"), (CLIENT_ID, "c"))


def test_qu07_a_filter_finds_what_matches_all_of_it() -> None:
    rate = {"producer_byte_rate": "1024"}
    configs = {
        ((USER, "a"),): {**rate, "SCRAM-SHA-256": "salt=eA==,stored_key=eA==,server_key=eA==,iterations=4096"},
        ((USER, None),): rate,
        ((USER, "a"), (CLIENT_ID, "c")): {"request_percentage": "12.5"},
        ((CLIENT_ID, "c"),): rate,
        ((USER, "scram only"),): {"SCRAM-SHA-512": "iterations=4096"},
        ((USER, "odd"),): {"producer_byte_rate": "many"},
        ((IP, "1.2.3.4"),): {"connection_creation_rate": "7"},
    }

    def found(*components: Component, strict: bool = False) -> list[Entity]:
        return [one for one, _ in quotas(configs, components, strict=strict)]

    assert len(found()) == 5
    assert found(strict=True) == []
    assert found(Component(USER, EXACT, "a")) == [((USER, "a"),), ((USER, "a"), (CLIENT_ID, "c"))]
    assert found(Component(USER, EXACT, "a"), strict=True) == [((USER, "a"),)]
    assert found(Component(USER, DEFAULT, None)) == [((USER, None),)]
    assert found(Component(USER, ANY, None), Component(CLIENT_ID, ANY, None)) == [((USER, "a"), (CLIENT_ID, "c"))]
    assert found(Component(IP, EXACT, "1.2.3.4")) == [((IP, "1.2.3.4"),)]
    assert dict(quotas(configs, [Component(USER, EXACT, "a")], strict=True)) == {((USER, "a"),): {"producer_byte_rate": 1024.0}}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([Component(USER, 7, "a")], ErrorCode.INVALID_REQUEST),
        ([Component(USER, EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([Component(USER, DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([Component(USER, ANY, "a")], ErrorCode.INVALID_REQUEST),
        ([Component("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([Component("team", EXACT, "a")], ErrorCode.UNSUPPORTED_VERSION),
        ([Component(USER, ANY, None), Component(USER, EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([Component(IP, ANY, None), Component(CLIENT_ID, EXACT, "a")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_qu07_a_filter_that_means_nothing_is_refused(components: list[Component], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        quotas({}, components, strict=False)
    assert caught.value.code == code


def test_qu07_quotas_are_set_and_unset_beside_credentials() -> None:
    one: Entity = ((USER, "a"),)
    config = with_quotas(one, {"SCRAM-SHA-256": "x"}, [("producer_byte_rate", 1000.0), ("request_percentage", 12.5)])
    assert config == {"SCRAM-SHA-256": "x", "producer_byte_rate": "1000", "request_percentage": "12.5"}
    assert with_quotas(one, config, [("producer_byte_rate", None), ("consumer_byte_rate", None)]) == {
        "SCRAM-SHA-256": "x",
        "request_percentage": "12.5",
    }
    for name, value in (
        ("producer_byte_rate", 1.5),
        ("connection_creation_rate", 1.0),
        ("cpu", 1.0),
        ("SCRAM-SHA-256", 1.0),
        ("request_percentage", -1.0),
        ("request_percentage", 0.0),
        ("request_percentage", inf),
        ("producer_byte_rate", nan),
        ("producer_byte_rate", 1e19),
    ):
        with pytest.raises(KafkaError) as caught:
            with_quotas(one, {}, [(name, value)])
        assert caught.value.code == ErrorCode.INVALID_REQUEST
    with pytest.raises(KafkaError):
        with_quotas(one, {}, [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)])
    assert with_quotas(one, config, [("SCRAM-SHA-256", None), ("cpu", None)]) == config, "only quotas are removed"
    assert with_quotas(one, {}, [("producer_byte_rate", 9.223372036854775807e18)]) == {"producer_byte_rate": str(2**63 - 1)}
    assert with_quotas(((IP, None),), {}, [("connection_creation_rate", 5.0)]) == {"connection_creation_rate": "5"}


def test_a_credential_is_written_as_kafka_writes_it() -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4096)
    config = with_credential({"producer_byte_rate": "1"}, Credential("a", 1, 4096, b"salt", salted))
    assert credentials_in(config) == [(1, 4096)]
    fields = dict(field.partition("=")[::2] for field in config["SCRAM-SHA-256"].split(","))
    assert list(fields) == ["salt", "stored_key", "server_key", "iterations"]
    assert base64.b64decode(fields["salt"]) == b"salt"
    assert len(base64.b64decode(fields["stored_key"])) == 32
    assert with_credential(config, Credential("a", 1)) == {"producer_byte_rate": "1"}
    with pytest.raises(KafkaError) as caught:
        with_credential({}, Credential("a", 1))
    assert caught.value.code == ErrorCode.RESOURCE_NOT_FOUND


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (Credential("", 1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (Credential("a", 9), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (Credential("a", 1, 4095, b"s", b"p"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (Credential("a", 1, 16_385, b"s", b"p"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (Credential("a", 2, 4096, b"", b"p"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_a_credential_that_is_none_is_refused(asked: Credential, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        check_credential(asked)
    assert caught.value.code == code


def test_the_rate_of_connections_of_an_address() -> None:
    own = {((IP, "1.2.3.4"),): {"connection_creation_rate": "7"}, ((IP, "1.2.3.5"),): {"connection_creation_rate": "?"}}
    assert connection_rate_of(own, "1.2.3.4") == 7  # type: ignore[arg-type]
    for text in ("fe80::7", "fe80:0:0:0:0:0:0:7"):
        assert connection_rate_of({((IP, text),): {"connection_creation_rate": "3"}}, "fe80::7") == 3
    assert connection_rate_of(own, "1.2.3.5") is connection_rate_of(own, "1.2.3.6") is None  # type: ignore[arg-type]
    assert connection_rate_of({**own, ((IP, None),): {"connection_creation_rate": "9"}}, "1.2.3.6") == 9  # type: ignore[dict-item]
