"""Client quotas (KIP-546) and SCRAM credentials (KIP-554) of users, client ids and IP addresses.

Pure: the entities, the paths of their nodes, the quotas by name, the text of a SCRAM credential. As in Kafka, the quotas and
credentials of a user share a node; each is changed without touching the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from math import isfinite
from typing import Final

from ottla.cluster import znodes
from ottla.errors import ErrorCode, KafkaError
from ottla.security.principal import java_address
from ottla.security.scram_credential import ITERATIONS_MIN, ScramCredential

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2

Entity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs: a user, a client id, a client id of a user, or an IP address. The name None is the default of the type."""
ClientConfigs = Mapping[Entity, Mapping[str, str]]

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_ITERATIONS_MAX: Final = 16_384

_USER_QUOTAS: Final = {
    "producer_byte_rate": 2**63 - 1,
    "consumer_byte_rate": 2**63 - 1,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
"""The largest value of a quota that is a whole number; None: it may be a fraction."""
_IP_QUOTAS: Final = {"connection_creation_rate": 2**31 - 1}
_FRACTION_MAX: Final = 1e-6
"""What is lost where a number goes through a float."""


def entity_path(entity: Entity) -> str:
    """The path below /config, as in a change notification."""
    names = {kind: znodes.DEFAULT_ENTITY if name is None else znodes.node_name(name) for kind, name in entity}
    if IP in names:
        return f"ips/{names[IP]}"
    if USER not in names:
        return f"clients/{names[CLIENT_ID]}"
    return f"users/{names[USER]}/clients/{names[CLIENT_ID]}" if CLIENT_ID in names else f"users/{names[USER]}"


def entity_of(path: str) -> Entity | None:
    """The entity of a path below /config; None if it is none of these."""
    parts = path.split("/")
    names = [None if name == znodes.DEFAULT_ENTITY else znodes.text_of_node(name) for name in parts]
    if len(parts) == 2 and parts[0] in _TYPES:
        return ((_TYPES[parts[0]], names[1]),)
    if len(parts) == 4 and (parts[0], parts[2]) == ("users", "clients"):
        return ((USER, names[1]), (CLIENT_ID, names[3]))
    return None


_TYPES: Final = {"users": USER, "clients": CLIENT_ID, "ips": IP}


def entity(pairs: Sequence[tuple[str, str | None]]) -> Entity:
    """The entity that a client names. KafkaError if it is invalid."""
    kinds = [kind for kind, _ in pairs]
    if not pairs:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an entity needs a user, a client-id or an ip")
    check_types(kinds, unknown=ErrorCode.INVALID_REQUEST)
    for kind, name in pairs:
        if name == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the name of a {kind} cannot be empty")
        if kind == IP and name is not None:
            try:
                ip_address(name)
            except ValueError:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name!r} is not an IP address") from None
    return tuple(sorted(pairs, key=lambda pair: pair[0], reverse=True))


def check_types(kinds: Sequence[str], *, unknown: ErrorCode) -> None:
    for kind in kinds:
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an entity type is empty")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(unknown, f"unknown entity type {kind!r}; allowed: user, client-id, ip")
    if len(set(kinds)) < len(kinds):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an entity type appears twice")
    if IP in kinds and len(kinds) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an ip cannot be combined with a user or client-id")


def with_client_config(configs: ClientConfigs, one: Entity, config: Mapping[str, str]) -> ClientConfigs:
    others = {other: each for other, each in configs.items() if other != one}
    return {**others, one: config} if config else others


# Quotas


@dataclass(frozen=True, slots=True)
class Component:
    """The filter of one entity type."""

    kind: str
    match_type: int
    name: str | None


def connection_rate_of(configs: ClientConfigs, host: str) -> int | None:
    """Connections per second that an IP address may open (KIP-612). None: there is no quota."""
    names: tuple[str | None, ...] = (host, java_address(host), None) if ":" in host else (host, None)
    for name in names:
        text = configs.get(((IP, name),), {}).get("connection_creation_rate")
        if text is not None:
            try:
                return int(float(text))
            except ValueError:
                return None  # written into the tree by hand
    return None


def limits_of(configs: ClientConfigs) -> dict[Entity, dict[str, float]]:
    """The quotas of every entity that has any."""
    found = {one: quotas_in(config) for one, config in configs.items()}
    return {one: values for one, values in found.items() if values}


def quotas(configs: ClientConfigs, components: Sequence[Component], *, strict: bool) -> list[tuple[Entity, dict[str, float]]]:
    """The entities that match every component (`strict`: and have no other type), with their quotas."""
    check_types([component.kind for component in components], unknown=ErrorCode.UNSUPPORTED_VERSION)
    for component in components:
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown match type {component.match_type}")
        if component.match_type == EXACT and component.name is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"an exact match of {component.kind} needs a name")
        if component.match_type != EXACT and component.name is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"only an exact match of {component.kind} has a name")
    found = []
    for one, config in configs.items():
        names = dict(one)
        if strict and len(names) != len(components):
            continue
        if all(component.kind in names and _matches(component, names[component.kind]) for component in components):
            values = quotas_in(config)
            if values:
                found.append((one, values))
    return found


def _matches(component: Component, name: str | None) -> bool:
    if component.match_type == ANY:
        return True
    return name is None if component.match_type == DEFAULT else name == component.name


def quotas_in(config: Mapping[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, text in config.items():
        if name in _USER_QUOTAS or name in _IP_QUOTAS:
            try:
                found[name] = float(text)
            except ValueError:
                continue  # written into the tree by hand
    return found


def with_quotas(one: Entity, config: Mapping[str, str], changes: Iterable[tuple[str, float | None]]) -> dict[str, str]:
    """The configs of an entity after (quota, value) changes; None removes a quota. KafkaError if one is invalid."""
    known = _IP_QUOTAS if one[0][0] == IP else _USER_QUOTAS
    after, seen = dict(config), set[str]()
    for name, value in changes:
        if name in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"quota {name!r} appears twice")
        seen.add(name)
        if value is None:
            if name in known:  # other keys of the node are not quotas
                after.pop(name, None)
            continue
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown quota {name!r}; allowed: {', '.join(known)}")
        after[name] = _quota_text(name, value, known[name])
    return after


def _quota_text(name: str, value: float, whole_max: int | None) -> str:
    if not isfinite(value):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} must be a finite number")
    if value <= 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} must be greater than 0: {value}")
    if whole_max is None:
        return str(value)
    if value % 1.0 > _FRACTION_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} must be a whole number, not {value}")
    if value > float(whole_max):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} must be at most {whole_max}: {value}")
    return str(min(int(value), whole_max))


# SCRAM credentials


@dataclass(frozen=True, slots=True)
class Credential:
    user: str
    mechanism: int
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes | None = None
    """None deletes the credential."""


def check_credential(asked: Credential) -> None:
    if not asked.user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the user name is empty")
    if asked.mechanism not in MECHANISMS:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"unknown SCRAM mechanism {asked.mechanism}")
    if asked.salted_password is None:
        return
    if not ITERATIONS_MIN <= asked.iterations <= _ITERATIONS_MAX:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{asked.iterations} iterations are not allowed; allowed: {ITERATIONS_MIN} to {_ITERATIONS_MAX}",
        )
    if not asked.salt or not asked.salted_password:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "a credential needs a salt and a salted password")


def with_credential(config: Mapping[str, str], asked: Credential) -> dict[str, str]:
    """The configs of the user with the credential set or deleted. KafkaError if there is nothing to delete."""
    name, after = MECHANISMS[asked.mechanism], dict(config)
    if asked.salted_password is None:
        if after.pop(name, None) is None:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"user {asked.user} has no credential for {name}")
        return after
    credential = ScramCredential.of_salted_password(name, asked.salt, asked.salted_password, asked.iterations)
    return after | {name: credential.text()}


def credentials_in(config: Mapping[str, str]) -> list[tuple[int, int]]:
    """(mechanism, iterations) of each credential."""
    found = []
    for mechanism, name in MECHANISMS.items():
        fields = dict(field.partition("=")[::2] for field in config.get(name, "").split(","))
        if fields.get("iterations", "").isdigit():
            found.append((mechanism, int(fields["iterations"])))
    return found
