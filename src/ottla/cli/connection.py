"""The cluster that a command talks to, through confluent-kafka.

Builds clients, reports quickly that no broker answers, and looks up topics, with suggestions for misspelt names. Never prints.
The client library is imported when the first client is built.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ottla.cli.failure import EXIT_USAGE, Failure, code_name, did_you_mean, explain
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, read_text
from ottla.cli.profile.chosen import in_use_now

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, ClusterMetadata, TopicMetadata

    from ottla.client.channel import Channel
    from ottla.client.security import ClientSecurity, InvalidOption

P = ParamSpec("P")
T = TypeVar("T")

_NAME_HINT = "connect by a name that the certificate has, or name the host in the broker's certificate"
_CERTIFICATE_HINTS = {
    9: "the clock of this machine or of the one that made the certificate is wrong",
    10: "the broker needs a new certificate in its key store",
    62: _NAME_HINT,
    64: _NAME_HINT,
}
"""By OpenSSL's number of the error (X509_V_ERR_…)."""
CONNECT_TIMEOUT_S = 3.0
METADATA_TIMEOUT_S = 5.0
MADE_BY_BROKERS = {
    "__consumer_offsets": "consumer group",
    "__transaction_state": "transactional producer",
    "__share_group_state": "share group",
}
"""Internal topics, and what makes brokers create them."""
REQUEST_TIMEOUT_S = 30.0


def read_client_properties(path: Path) -> dict[str, str]:
    from ottla.cluster.properties import PropertiesError, parse_properties

    try:
        return parse_properties(read_text(path, encoding="utf-8-sig"))
    except PropertiesError as error:
        raise Failure(f"cannot read {path}: {error}", exit_code=EXIT_USAGE) from None


def split_servers(servers: str) -> list[tuple[str, int]]:
    """`host:port,[v6]:port` as pairs. The default port is 9092."""
    from ottla.client.options import parse_servers

    try:
        pairs = list(parse_servers(servers))
    except ValueError as error:
        raise Failure(
            f"{str(error)!r} is not a broker address",
            "write host:port with a port from 1 to 65535, as in localhost:9092",
            exit_code=EXIT_USAGE,
        ) from None
    if not pairs:
        raise Failure("--bootstrap-servers is empty", "write host:port,host:port", exit_code=EXIT_USAGE)
    return pairs


class Connection:
    def __init__(self, bootstrap_servers: str, command_config: Path | None = None, properties: dict[str, str] | None = None):
        chosen = in_use_now()
        profile = chosen.profile
        self._properties: dict[str, Any] = profile.resolved() if profile is not None else {}
        if command_config is not None:
            self._properties.update(read_client_properties(command_config))
        in_file = self._properties.pop("bootstrap.servers", None)
        self._properties.update(properties or {})
        # In this order: --bootstrap-servers, bootstrap.servers of the client properties file, the profile, the default.
        if bootstrap_servers == DEFAULT_BOOTSTRAP_SERVERS and not chosen.servers_named:
            bootstrap_servers = in_file or (profile.bootstrap_servers if profile is not None else bootstrap_servers)
        self.bootstrap_servers = str(self._properties.pop("bootstrap.servers", None) or bootstrap_servers)
        self.last_error: Any = None
        self._went_down = False
        self._reached = False

    @property
    def properties(self) -> Mapping[str, Any]:
        """The client properties, with their secrets."""
        return self._properties

    @cached_property
    def security(self) -> ClientSecurity:
        from ottla.client.security import InvalidOption, client_security

        try:
            return client_security(self._properties)
        except InvalidOption as error:
            raise _invalid(error) from None

    def reach(self) -> None:
        """Return if a server accepts a connection, and the login if there is one. Failure says what is wrong with each."""
        if self._reached:
            return
        problems = []
        for host, port in split_servers(self.bootstrap_servers):
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            try:
                if self.security.protocol == "PLAINTEXT":
                    socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
                else:
                    self.channel(host, port).close()
            except socket.gaierror:
                problems.append(f"host {host} is unknown")
            except TimeoutError:
                problems.append(f"{address} does not answer")
            except ConnectionResetError as error:
                problems.append(f"{address}: {error}")
            except OSError:
                problems.append(f"no broker answers at {address}")
            else:
                self._reached = True
                return
        raise Failure(
            "; ".join(problems),
            "start a broker with `ottla serve`, or name one with --bootstrap-servers (or OTTLA_BOOTSTRAP_SERVERS)",
            code="BROKER_AWAY",
        )

    def channel(self, host: str, port: int, timeout_s: float = CONNECT_TIMEOUT_S) -> Channel:
        """A connection of its own, encrypted and logged in. OSError if there is no broker, Failure if it refuses."""
        from ottla.client.channel import Channel, WrongProtocol, speaks_tls
        from ottla.client.login import LoginRefused
        from ottla.client.options import ClientOptions
        from ottla.client.security import InvalidOption

        options = ClientOptions(((host, port),), client_id="ottla-cli", security=self.security)
        try:
            return Channel(host, port, options, timeout_s, connect_timeout_s=CONNECT_TIMEOUT_S)
        except InvalidOption as error:
            raise _invalid(error) from None
        except LoginRefused as error:
            hint = "check the sasl.* properties in --command-config"
            raise Failure(f"login refused by {error.detail}", hint, code=error.code.name) from None
        except WrongProtocol as error:
            raise Failure(str(error), "set it in --command-config", code="_SSL") from None
        except ssl.SSLCertVerificationError as error:
            raise Failure(
                f"{host}:{port} shows a certificate that is not trusted: {error.verify_message}",
                _CERTIFICATE_HINTS.get(error.verify_code, "check ssl.truststore.location in --command-config"),
                code="_SSL",
            ) from None
        except ssl.SSLError as error:
            raise Failure(f"{host}:{port}: TLS failed: {error.reason or error}", code="_SSL") from None
        except ConnectionError:
            if self.security.encrypted or not _speaks_tls(host, port):
                raise
            text = f"{host}:{port}: {speaks_tls(self.security.protocol)}"
            raise Failure(text, "set it in --command-config", code="_SSL") from None

    def _config(self, **overrides: Any) -> dict[str, Any]:
        from confluent_kafka import KafkaError

        def on_error(error: Any) -> None:
            self.last_error = error
            # librdkafka reports it once, then an error for each attempt to connect.
            self._went_down = self._went_down or error.code() == KafkaError._ALL_BROKERS_DOWN

        from ottla.client.librdkafka import librdkafka_properties
        from ottla.client.security import InvalidOption

        try:
            properties = librdkafka_properties(self._properties, self.security)
        except InvalidOption as error:
            raise _invalid(error) from None
        return {
            "client.id": "ottla-cli",
            "log_level": 0,  # no log lines of the library on stderr; error_cb gets its errors
            "error_cb": on_error,
            "socket.connection.setup.timeout.ms": int(METADATA_TIMEOUT_S * 1000),
            **properties,
            **overrides,
            "bootstrap.servers": self.bootstrap_servers,
        }

    def _build(self, kind: type[T], **overrides: Any) -> T:
        from confluent_kafka import KafkaException

        try:
            return kind(self._config(**overrides))  # type: ignore[call-arg]
        except KafkaException as exception:
            raise Failure(f"invalid client property: {exception.args[0].str().strip()}", exit_code=EXIT_USAGE) from None

    @cached_property
    def admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        self.reach()
        return self._build(AdminClient)

    def producer(self, **overrides: Any) -> Producer:
        from confluent_kafka import Producer

        # The Java client's partitioner. librdkafka's default puts the same key into another partition.
        self.reach()
        partitioner = self._properties.get("partitioner", "murmur2_random")
        return self._build(Producer, **{"partitioner": partitioner, **overrides})

    def consumer(self, **overrides: Any) -> Consumer:
        from confluent_kafka import Consumer

        # The library needs a group id, but joins no group and commits nothing while partitions are assigned by hand.
        config = {
            "group.id": self._properties.get("group.id", "ottla-cli"),
            "enable.auto.commit": False,
            "check.crcs": self._properties.get("check.crcs", True),  # as Kafka's own consumer does
            **overrides,
        }
        if not config["group.id"]:
            raise Failure("the group name is empty", exit_code=EXIT_USAGE)  # the library would end the process
        self.reach()
        return self._build(Consumer, **config)

    def metadata(self) -> ClusterMetadata:
        """All topics and brokers. A request for a single topic could auto-create it."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            return self.admin.list_topics(timeout=METADATA_TIMEOUT_S)
        except KafkaException as exception:
            self.admin.poll(0)
            error = self.last_error or exception.args[0]
            if error.code() in (KafkaError._SSL, KafkaError._AUTHENTICATION):
                raise explain(error, self.bootstrap_servers) from None
            self._diagnose()
            raise Failure(
                f"{self.bootstrap_servers} accepts connections but does not answer like a Kafka broker"
                f" ({error.str().removeprefix('Local: ')})",
                "check that it is a Kafka port, and security.protocol in --command-config",
                code=code_name(error),
            ) from None

    def _diagnose(self) -> None:
        """Failure if a connection of our own tells what librdkafka does not say: that the port speaks TLS, or wants SASL."""
        from ottla.errors import ErrorCode
        from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
        from ottla.protocol.registry import API_BY_NAME

        for host, port in split_servers(self.bootstrap_servers):
            with contextlib.suppress(OSError):
                channel = self.channel(host, port)
                try:
                    answer = channel.exchange(API_BY_NAME["sasl_handshake"], 1, SaslHandshakeRequest(), CONNECT_TIMEOUT_S)
                finally:
                    channel.close()
                if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM and not self.security.authenticates:
                    wanted = "SASL_SSL" if self.security.encrypted else "SASL_PLAINTEXT"
                    raise Failure(
                        f"{host}:{port} wants a login: {', '.join(answer.mechanisms)}",
                        f"set security.protocol={wanted}, sasl.mechanism and sasl.jaas.config in --command-config",
                        code="SASL_AUTHENTICATION_FAILED",
                    )

    def topics(self, names: Iterable[str]) -> list[TopicMetadata]:
        """The topics of these names. Failure, with similar names, for the first that does not exist."""
        known = self.metadata().topics
        found = []
        for name in names:
            if name not in known:
                raise unknown_topic(name, known)
            if known[name].error is not None:
                raise explain(known[name].error, f"topic {name}")
            found.append(known[name])
        return found

    def topic(self, name: str) -> TopicMetadata:
        return self.topics([name])[0]

    def created_topic(self, name: str) -> TopicMetadata:
        """A topic that was just created. Brokers of Apache Kafka 4 hear of it a moment after their controller."""
        until_s = time.monotonic() + METADATA_TIMEOUT_S
        while name not in self.metadata().topics and time.monotonic() < until_s:
            time.sleep(_MOVING_PAUSE_S)
        return self.topic(name)

    def went_down(self) -> bool:
        """Whether all brokers went down since the last call."""
        went_down, self._went_down = self._went_down, False
        return went_down


def _speaks_tls(host: str, port: int) -> bool:
    """Whether a port that closed a plain connection takes a TLS handshake. Nothing is sent over it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), CONNECT_TIMEOUT_S) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        # One that wants the client's certificate has spoken TLS to say so.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _invalid(error: InvalidOption) -> Failure:
    return Failure(f"invalid client property: {str(error).removeprefix('option ')}", exit_code=EXIT_USAGE)


def unknown_topic(name: str, known: Iterable[str], *, creatable: bool = True) -> Failure:
    hint = did_you_mean(name, (topic for topic in known if not topic.startswith("__")))
    if name in MADE_BY_BROKERS:
        hint = f"brokers create it for the first {MADE_BY_BROKERS[name]}; never create it by hand"
    elif creatable:
        hint = f"{hint or ''} create it with `ottla topic create {name}`".strip()
    return Failure(f"topic {name} does not exist", hint, code="UNKNOWN_TOPIC_OR_PARTITION")


def unknown_broker(name: int | str, known: Iterable[int], more: str = "") -> Failure:
    return Failure(
        f"broker {name} does not exist", f"the brokers are {', '.join(map(str, sorted(known)))}{more}", code="NOT_FOUND"
    )


def check_not_internal(topics: Iterable[str]) -> None:
    """Failure for a topic that only brokers may create."""
    for name in topics:
        if name in MADE_BY_BROKERS:
            raise Failure(
                f"{name} is an internal topic: brokers create it for the first {MADE_BY_BROKERS[name]}",
                "made by hand it would have other partitions and settings than they need",
                exit_code=EXIT_USAGE,
            )


def unknown_partition(topic: str, partition: int, count: int) -> Failure:
    return Failure(f"topic {topic} has no partition {partition}", f"it has 0 to {count - 1}", code="_UNKNOWN_PARTITION")


_MOVING = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
_MOVING_S = 10.0
_MOVING_PAUSE_S = 0.1


def while_coordinators_move(ask: Callable[P, T]) -> Callable[P, T]:
    """Decorator: repeat a call that a coordinator refused because it has just moved or still loads. librdkafka's admin client
    does not; Java's does."""

    @functools.wraps(ask)
    def asked(*arguments: P.args, **more: P.kwargs) -> T:
        until_s = time.monotonic() + _MOVING_S
        while True:
            try:
                return ask(*arguments, **more)
            except Failure as failure:
                if failure.code not in _MOVING or time.monotonic() > until_s:
                    raise
            time.sleep(_MOVING_PAUSE_S)

    return asked


_LATER = "a change may still be carried out later: look before you repeat it; `ottla doctor` finds brokers that are away"


def result_of(future: Future[T], subject: str) -> T:
    """The result of an admin request. Failure about `subject` if it failed."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        return future.result(REQUEST_TIMEOUT_S)
    except KafkaException as exception:
        error = exception.args[0]
        if error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
            raise Failure(f"{subject}: the broker no longer answers", _LATER, code=code_name(error)) from None
        raise explain(error, subject) from None
    except TimeoutError:
        raise Failure(f"{subject}: no answer within {REQUEST_TIMEOUT_S:.0f} s", _LATER, code="_TIMED_OUT") from None
