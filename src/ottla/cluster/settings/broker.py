"""The settings of one broker: `server.properties` and the dynamic configs.

Parses all settings and reports all problems at once. Kafka's synonyms: `log.retention.ms` before minutes before hours, `log.dirs`
before `log.dir`, `node.id` for `broker.id`.

1. A `BrokerSettings` never changes; `with_dynamic` returns another one.
2. The value is this broker's dynamic one, else the cluster-wide dynamic one, else that of the file, else the default.
3. An invalid dynamic value does not prevent a start: it is ignored with a warning.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ottla.cluster.settings.broker_table import USED_BROKER_SETTINGS
from ottla.cluster.settings.ignored import why_ignored
from ottla.cluster.settings.listeners import Listeners, parse_listeners
from ottla.cluster.settings.log_level import parse_log_levels
from ottla.cluster.settings.of_listener import OF_LISTENERS, PREFIX, ListenerSettings, listener_settings, parse_name
from ottla.cluster.settings.sasl import SaslSettings, sasl_settings
from ottla.cluster.settings.sasl_client_table import SASL_CLIENT_SETTINGS
from ottla.cluster.settings.sasl_table import SASL_SETTINGS
from ottla.cluster.settings.setting import Setting, SettingsError, SettingValues, Value, table_of, unknown_name
from ottla.cluster.settings.tls import tls_settings
from ottla.cluster.settings.tls_table import RELOADED, TLS_SETTINGS
from ottla.cluster.settings.unused_table import UNUSED_BROKER_SETTINGS
from ottla.cluster.settings.zookeeper_table import ZOOKEEPER_SETTINGS
from ottla.security.authorizer import Authorizer, parse_super_users
from ottla.security.password_encoder import DEFAULT_KEY_FACTORY, BadEncoding, PasswordEncoder
from ottla.tls.config import TlsSettings

BROKER_SETTINGS: Final[dict[str, Setting]] = table_of(
    row
    for table in (
        USED_BROKER_SETTINGS,
        TLS_SETTINGS,
        SASL_SETTINGS,
        SASL_CLIENT_SETTINGS,
        ZOOKEEPER_SETTINGS,
        UNUSED_BROKER_SETTINGS,
    )
    for row in table.values()
)

_RETENTION: Final = (("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000))
_ROLL: Final = (("log.roll.ms", 1), ("log.roll.hours", 3_600_000))
_ROLL_JITTER: Final = (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000))
_FLUSH: Final = (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1))

UNITS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "log.retention.ms": _RETENTION,
    "log.roll.ms": _ROLL,
    "log.roll.jitter.ms": _ROLL_JITTER,
    "log.flush.interval.ms": _FLUSH,
}
"""Times with synonyms in other units, in order of precedence, with the factor from that unit."""

SYNONYMS: Final[dict[str, tuple[tuple[str, int], ...]]] = UNITS | {
    "log.dirs": (("log.dirs", 1), ("log.dir", 1)),
    "broker.id": (("node.id", 1), ("broker.id", 1)),
    "node.id": (("node.id", 1), ("broker.id", 1)),
}
"""All settings with synonyms."""

_NOT_ZERO: Final = tuple(OF_LISTENERS)
"""0 is allowed in server.properties only, also for a single listener."""

_PROVIDERS: Final = "config.providers."
"""Prefix of the settings of config providers, which are used before settings are parsed."""
_FREE_PREFIXES: Final = ("rlmm.config.", "rsm.config.", "confluent.", "cruise.control.", "strimzi.")
"""Prefixes of settings of Java plug-ins; Ottla has none. A plug-in that would secure the broker is refused by its class."""
_OF_ADDRESSES: Final = ("listeners", "advertised.listeners", "listener.security.protocol.map")


@dataclass(frozen=True, slots=True, eq=False)
class BrokerSettings(SettingValues):
    """Typed values by Kafka's names. Build one with `parse`."""

    static: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    dynamic_broker: Mapping[str, str]
    _values: Mapping[str, Value]
    _listeners: Listeners
    warnings: list[str]

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> BrokerSettings:
        """Parse the properties; a SettingsError names all problems."""
        problems: list[str] = []
        warnings: list[str] = []
        values: dict[str, Value] = {}
        for name, text in properties.items():
            setting = setting_of(name)
            if setting is None:
                base = _base_of(name)
                if name.startswith(_PROVIDERS):
                    continue
                why = f"Ottla does not use {base}" if base is not None else why_ignored(name, properties)
                if why is None:
                    problems.append(unknown_name(name, BROKER_SETTINGS))
                else:
                    warnings.append(f"{name} has no effect: {why}")
                continue
            try:
                values[name] = setting.parse(text)
            except ValueError as error:
                problems.append(str(error))
                continue
            if not setting.used and name != "process.roles":
                warnings.append(_no_effect(setting))
        if values.get("process.roles") == ("controller",):
            raise SettingsError([_OF_A_CONTROLLER])
        warnings += _of_kraft(values)
        problems += _check_together(values)
        listeners = parse_listeners(lambda name: _given_or_default(values, name), problems, warnings)
        warnings += _of_no_listener(values, listeners)
        warnings += _of_no_authorizer(values)
        settings = cls(dict(properties), {}, {}, values, listeners, warnings)
        problems += settings._security_problems()
        if problems:
            raise SettingsError(problems)
        return settings

    def with_dynamic(self, broker: Mapping[str, str], default: Mapping[str, str] | None = None) -> BrokerSettings:
        """These settings with the dynamic configs of this broker and of the whole cluster."""
        default = default or {}
        if broker == self.dynamic_broker and default == self.dynamic_default:
            return self
        warnings: list[str] = []
        values: dict[str, Value] = {}
        for name, text in self.static.items():
            setting = setting_of(name)
            if setting is not None:
                values[name] = setting.parse(text)
        for overrides in (default, broker):
            for name, text in overrides.items():
                setting = setting_of(name)
                if setting is None or setting.update_mode == "read-only":
                    if fixed_security_configs({name: text}):
                        warnings.append(f"Ignoring a dynamic config: {name} is taken from server.properties only")
                    continue
                try:
                    values[name] = setting.parse(self._decrypted(name, text) if setting.sensitive else text)
                except ValueError as error:
                    warnings.append(f"Ignoring an invalid dynamic config: {error}")
                    continue
                if not setting.used:
                    warnings.append(_no_effect(setting))
        return BrokerSettings(self.static, dict(default), dict(broker), values, self._listeners, warnings)

    def password_encoder(self) -> PasswordEncoder | None:
        """What encrypts passwords in dynamic configs; None without `password.encoder.secret`."""
        secret, old = self.optional_str("password.encoder.secret"), self.optional_str("password.encoder.old.secret")
        if not secret:
            return None
        return PasswordEncoder(
            (secret, old) if old else (secret,),
            self.optional_str("password.encoder.keyfactory.algorithm") or DEFAULT_KEY_FACTORY,
            self.str("password.encoder.cipher.algorithm"),
            self.int("password.encoder.key.length"),
            self.int("password.encoder.iterations"),
        )

    def _decrypted(self, name: str, text: str) -> str:
        """The password in a dynamic config. ValueError names the config."""
        encoder = self.password_encoder()
        if encoder is None:
            raise ValueError(f"{name} is encrypted, and password.encoder.secret is not set")
        try:
            return encoder.decode(text)
        except BadEncoding as error:
            raise ValueError(f"{name}: {error}") from None

    def value(self, name: str) -> Value:
        return _given_or_default(self._values, name)

    def of_listeners(self, name: str) -> dict[str, int]:
        """The values of a setting that are set for single listeners."""
        values = {
            endpoint.listener: self._values.get(f"listener.name.{endpoint.listener.lower()}.{name}")
            for endpoint in self._listeners.bind
        }
        return {listener: value for listener, value in values.items() if isinstance(value, int)}

    def given(self, name: str) -> Value:
        """The value that is set, None if there is none."""
        return self._values.get(name)

    def of_listener(self, listener: str) -> ListenerSettings:
        """The settings as they apply to one listener."""
        protocols = {endpoint.listener: endpoint.security_protocol for endpoint in self._listeners.bind}
        return listener_settings(self, listener, protocols.get(listener, "PLAINTEXT"))

    def tls_of(self, listener: str) -> TlsSettings:
        """The TLS settings of one listener; a SettingsError names all problems."""
        problems: list[str] = []
        tls = tls_settings(self.of_listener(listener), problems)
        if problems:
            raise SettingsError(problems)
        return tls

    def sasl_of(self, listener: str) -> SaslSettings:
        """The SASL settings of one listener; a SettingsError names all problems."""
        problems: list[str] = []
        sasl = sasl_settings(self.of_listener(listener), problems, [])
        if problems:
            raise SettingsError(problems)
        return sasl

    def _security_problems(self) -> list[str]:
        """Problems of the security settings of each listener."""
        problems: list[str] = []
        for endpoint in self._listeners.bind:
            if endpoint.security_protocol.endswith("SSL"):
                of_listener = self.of_listener(endpoint.listener)
                old = [name for name in of_listener.list("ssl.enabled.protocols") if name in ("TLSv1", "TLSv1.1")]
                if old:
                    self.warnings.append(f"listener {endpoint.listener} does not offer {', '.join(old)}: insecure, RFC 8996")
                tls = tls_settings(of_listener, problems)
                if tls.key_store is None:
                    problems.append(
                        f"listener {endpoint.listener} uses {endpoint.security_protocol} and has no certificate; set "
                        f"ssl.keystore.location, or ssl.keystore.key and ssl.keystore.certificate.chain"
                    )
            if endpoint.security_protocol.startswith("SASL_"):
                sasl_settings(self.of_listener(endpoint.listener), problems, self.warnings)
        return problems

    def listeners(self) -> Listeners:
        return self._listeners

    def new_authorizer(self) -> Authorizer | None:
        """An authorizer without ACLs yet; None if `authorizer.class.name` is not set."""
        if not self.str("authorizer.class.name"):
            return None
        super_users = parse_super_users(self.str("super.users"))
        return Authorizer(super_users, allow_if_no_acl=self.bool("allow.everyone.if.no.acl.found"))

    def log_dirs(self) -> tuple[str, ...]:
        return self.list("log.dirs")

    def broker_id(self) -> int:
        """-1 if it is to be generated."""
        return self.int("broker.id")


def dynamic_problems(overrides: Mapping[str, str], *, per_broker: bool, encrypted: frozenset[str] = frozenset()) -> list[str]:
    """Why these dynamic configs of a broker, or of the whole cluster, are invalid. `encrypted`: names of encrypted passwords."""
    problems: list[str] = []
    values: dict[str, Value] = {}
    for name, text in overrides.items():
        setting = setting_of(name)
        if setting is None:
            if _base_of(name) is None:
                problems.append(unknown_name(name, BROKER_SETTINGS))
        elif name in TLS_SETTINGS and setting.update_mode == "per-broker":
            problems.append(f"{name} can be changed while the broker runs only for a listener: listener.name.<listener>.{name}")
        elif setting.update_mode == "read-only":
            problems.append(f"{name} cannot be changed while the broker runs; set it in server.properties and restart")
        elif setting.sensitive and name not in encrypted:
            problems.append(
                f"{name} would be stored where others can read it; set it in server.properties and restart, or set "
                f"password.encoder.secret there and ask the broker that has it"
            )
        elif setting.update_mode == "per-broker" and not per_broker:
            problems.append(f"{name} cannot be set for the whole cluster; name a broker")
        else:
            try:
                values[name] = value = setting.parse(text)
            except ValueError as error:
                problems.append(str(error))
            else:
                if value == 0 and name.endswith(_NOT_ZERO):
                    problems.append(f"{name}=0 is not allowed while the broker runs: nobody could connect to change it again")
    return problems + _check_together(values)


def fixed_security_configs(overrides: Mapping[str, str]) -> list[str]:
    """Dynamic configs of a broker that say who may connect, and that Ottla takes from server.properties only.

    Apache Kafka stores them with the broker. To ignore them would open what their owner has closed.
    """
    found = []
    for name in overrides:
        setting = setting_of(name)
        if setting is None or not setting.used or setting.update_mode != "read-only":
            continue
        if name in _OF_ADDRESSES or name.startswith(PREFIX):
            found.append(name)
    return found


def _given_or_default(values: Mapping[str, Value], name: str) -> Value:
    synonyms = SYNONYMS.get(name)
    if synonyms is None:
        value = values.get(name)
        # A setting of a single listener has no default.
        return BROKER_SETTINGS[name].default if value is None and name in BROKER_SETTINGS else value
    for given in (True, False):
        for synonym, factor in synonyms:
            value = values.get(synonym) if given else BROKER_SETTINGS[synonym].default
            if value is None:
                continue
            if isinstance(value, int) and factor != 1:
                # A negative time is no limit in every unit.
                return value * factor if value >= 0 else -1
            return value
    return None


def _no_effect(setting: Setting) -> str:
    return f"{setting.name} has no effect: Ottla does not use it ({setting.doc.rstrip('.')})"


def setting_of(name: str) -> Setting | None:
    """The setting of a name, also of a single listener."""
    setting = BROKER_SETTINGS.get(name)
    if setting is not None:
        return setting
    parsed = parse_name(name)
    base = BROKER_SETTINGS.get(parsed.base) if parsed is not None else None
    if base is None:
        return None
    if base.name in OF_LISTENERS or base.name in RELOADED:
        return replace(base, name=name, update_mode="per-broker")
    return replace(base, name=name, update_mode="read-only")


def _of_no_listener(values: Mapping[str, Value], listeners: Listeners) -> list[str]:
    known = {endpoint.listener.lower() for endpoint in listeners.bind}
    return [
        f"{name} has no effect: listeners has no {name.split('.')[2]} (in lower case: {', '.join(sorted(known))})"
        for name in values
        if name.startswith("listener.name.") and name.split(".")[2] not in known
    ]


_OF_A_CONTROLLER: Final = (
    "process.roles=controller: this is the configuration of a KRaft controller, and Ottla has none. A broker without "
    "zookeeper.connect is its own controller, and the brokers of a cluster elect one of them: start the brokers only"
)


def _of_kraft(values: Mapping[str, Value]) -> list[str]:
    roles = values.get("process.roles")
    if not isinstance(roles, tuple):
        return []
    if values.get("zookeeper.connect"):
        return ["process.roles has no effect: with zookeeper.connect this is a broker, and the brokers elect the controller"]
    return [
        f"process.roles={','.join(map(str, roles))}: Ottla joins no KRaft quorum. This broker is alone, and its own controller. "
        f"For several brokers give each zookeeper.connect instead of process.roles and controller.*"
    ]


def _of_no_authorizer(values: Mapping[str, Value]) -> list[str]:
    if values.get("authorizer.class.name"):
        return []
    return [
        f"{name} has no effect: authorizer.class.name is not set, everyone may do everything"
        for name in ("super.users", "allow.everyone.if.no.acl.found")
        if values.get(name)
    ]


def _base_of(name: str) -> str | None:
    """What `listener.name.<listener>.<setting>` or the setting of a plug-in belongs to."""
    if name.startswith(_FREE_PREFIXES):
        return name.split(".", 1)[0] + " plug-ins"
    if name.startswith("listener.name."):
        parts = name.split(".")[3:]
        # A SASL mechanism may be between the listener and the setting.
        for start in (0, 1):
            base = ".".join(parts[start:])
            if base in BROKER_SETTINGS:
                return f"a {base} of a single listener"
    return None


def _check_together(values: Mapping[str, Value]) -> list[str]:
    """Problems of combinations of values."""
    problems: list[str] = []
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        value = values.get(name)
        if isinstance(value, int) and (value == 0 or value < -1):
            problems.append(f"{name}={value} is not allowed; allowed: 1 or more, or -1 for ever")
    for name, low in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0)):
        value = values.get(name)
        if isinstance(value, int) and value < low:
            problems.append(f"{name}={value} is not allowed; allowed: {low} or more")
    for name in ("log.dirs", "log.dir"):
        value = values.get(name)
        if isinstance(value, tuple) and (not value or not all(value)):
            problems.append(f"{name} must name at least one directory, and no empty one")
        elif isinstance(value, tuple) and len({posixpath.normpath(path) for path in value}) < len(value):
            problems.append(f"{name} names a directory twice")
    problems += _check_broker_id(values)
    problems += _check_consumer_groups(values)
    problems += _check_replica_waits(values)
    if "inter.broker.listener.name" in values and "security.inter.broker.protocol" in values:
        problems.append("inter.broker.listener.name and security.inter.broker.protocol cannot both be set")
    super_users = values.get("super.users")
    if isinstance(super_users, str):
        try:
            parse_super_users(super_users)
        except ValueError as error:
            problems.append(f"super.users={super_users} is not allowed: {error}")
    levels = values.get("ottla.log.level")
    if isinstance(levels, tuple):
        try:
            parse_log_levels(levels)
        except ValueError as error:
            problems.append(f"ottla.log.level: {error}")
    overrides = values.get("max.connections.per.ip.overrides")
    if isinstance(overrides, str):
        problems += connection_overrides(overrides)[1]
    return problems


_LIMITED_BY_MIN_AND_MAX: Final = ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")


def _check_consumer_groups(values: Mapping[str, Value]) -> list[str]:
    """Each within its limits, and the session timeout above the heartbeat interval."""

    def number(name: str) -> int:
        value = _given_or_default(values, name)
        assert isinstance(value, int)
        return value

    problems: list[str] = []
    for what in _LIMITED_BY_MIN_AND_MAX:
        name, low, high = (f"group.consumer.{which}{what}" for which in ("", "min.", "max."))
        if not {name, low, high} & values.keys():
            continue
        if number(low) > number(high):
            problems.append(f"{low}={number(low)} is above {high}={number(high)}")
        elif not number(low) <= number(name) <= number(high):
            problems.append(f"{name}={number(name)} is not allowed; allowed: {number(low)} ({low}) to {number(high)} ({high})")
    heartbeat, session = "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"
    if number(heartbeat) >= number(session):
        problems.append(f"{heartbeat}={number(heartbeat)} must be less than {session}={number(session)}")
    return problems


def _check_replica_waits(values: Mapping[str, Value]) -> list[str]:
    """The leader must answer before its follower times out or counts as lagging."""
    wait = "replica.fetch.wait.max.ms"
    wait_ms = _given_or_default(values, wait)
    problems: list[str] = []
    for name in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        limit_ms = _given_or_default(values, name)
        assert isinstance(wait_ms, int)
        assert isinstance(limit_ms, int)
        if wait_ms > limit_ms:
            problems.append(f"{wait}={wait_ms} is above {name}={limit_ms}")
    return problems


def _check_broker_id(values: Mapping[str, Value]) -> list[str]:
    broker_id, node_id = values.get("broker.id"), values.get("node.id")
    if broker_id is not None and node_id is not None and broker_id != node_id:
        return [f"broker.id={broker_id} and node.id={node_id} are synonyms and must be equal"]
    number = _given_or_default(values, "broker.id")
    assert isinstance(number, int)
    if _given_or_default(values, "broker.id.generation.enable"):
        reserved = _given_or_default(values, "reserved.broker.max.id")
        assert isinstance(reserved, int)
        # KRaft configurations have node.id: there ids are not generated or reserved.
        if node_id is None and number > reserved:
            return [
                f"broker.id={number} is above reserved.broker.max.id={reserved}, where generated ids begin; "
                f"use a smaller one, raise reserved.broker.max.id, or set broker.id.generation.enable=false"
            ]
        if number < -1:
            return [f"node.id={number} is not allowed; allowed: 0 or more, or -1 to have one generated"]
    elif number < 0:
        return ["broker.id must be set to 0 or more, because broker.id.generation.enable=false"]
    return []


def connection_overrides(text: str) -> tuple[dict[str, int], list[str]]:
    """`max.connections.per.ip.overrides` as a mapping, and its problems."""
    limits: dict[str, int] = {}
    problems: list[str] = []
    for element in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = element.rpartition(":")
        if not host or not (count.isascii() and count.isdigit()):
            problems.append(f"max.connections.per.ip.overrides: {element} is not allowed; allowed: host:count")
        else:
            limits[host.strip("[]")] = int(count[:10])
    return limits, problems
