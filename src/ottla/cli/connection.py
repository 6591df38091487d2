"""The cluster a command talks to, through confluent-kafka.

Owns: building clients, finding out quickly and in plain words that nobody answers, and the look-up of topics with help for
misspelt names. Never prints. The client library is imported when the first client is built, not before.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.cli.failure import EXIT_USAGE, Failure, code_name, did_you_mean, explain
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS

if TYPE_CHECKING:
    from ottla.cli.client import AdminClient, ClusterMetadata, Consumer, Producer, TopicMetadata

T = TypeVar("T")

CONNECT_TIMEOUT_S = 3.0
METADATA_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 30.0

# Names of the Java client that librdkafka does not have and that mean nothing to it: a shared file may hold them.
_JAVA_ONLY = frozenset(
    {"key.serializer", "value.serializer", "key.deserializer", "value.deserializer", "partitioner.class", "max.block.ms"}
)


def read_client_properties(path: Path) -> dict[str, str]:
    from ottla.cluster.properties import PropertiesError, parse_properties

    try:
        properties = parse_properties(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}", exit_code=EXIT_USAGE) from None
    except UnicodeDecodeError:
        raise Failure(f"cannot read {path}: it is not text", exit_code=EXIT_USAGE) from None
    except PropertiesError as error:
        raise Failure(f"cannot read {path}: {error}", exit_code=EXIT_USAGE) from None
    return {name: value for name, value in properties.items() if name not in _JAVA_ONLY}


def split_servers(servers: str) -> list[tuple[str, int]]:
    """`host:port,[v6]:port` as pairs; port 9092 where none is named."""
    from ottla.client.options import parse_servers

    try:
        pairs = list(parse_servers(servers))
    except ValueError as error:
        raise Failure(
            f"{str(error)!r} is no address of a broker",
            "an address is a host, a colon, and a port from 1 to 65535: localhost:9092",
            exit_code=EXIT_USAGE,
        ) from None
    if not pairs:
        raise Failure("no bootstrap servers are named", "write them as host:port,host:port", exit_code=EXIT_USAGE)
    return pairs


class Connection:
    def __init__(self, bootstrap_servers: str, command_config: Path | None = None, properties: dict[str, str] | None = None):
        self._properties: dict[str, Any] = {}
        if command_config is not None:
            self._properties.update(read_client_properties(command_config))
        in_file = self._properties.pop("bootstrap.servers", None)
        self._properties.update(properties or {})
        # A file of client properties may name the servers: that is stronger than the default, and weaker than what was asked for.
        if bootstrap_servers == DEFAULT_BOOTSTRAP_SERVERS and in_file:
            bootstrap_servers = in_file
        self.bootstrap_servers = str(self._properties.pop("bootstrap.servers", None) or bootstrap_servers)
        self._last_error: Any = None
        self._went_down = False
        self._reached = False

    def reach(self) -> None:
        """Return if any of the servers accepts a connection; otherwise say what is the matter with them, at once."""
        if self._reached:
            return
        problems = []
        for host, port in split_servers(self.bootstrap_servers):
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            try:
                socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
            except socket.gaierror:
                problems.append(f"there is no host {host}")
            except TimeoutError:
                problems.append(f"{address} does not answer")
            except OSError:
                problems.append(f"no broker answers at {address}")
            else:
                self._reached = True
                return
        raise Failure(
            "; ".join(problems),
            "start one with `ottla serve`, or name another with --bootstrap-servers (or OTTLA_BOOTSTRAP_SERVERS)",
            code="BROKER_AWAY",
        )

    def require_plaintext(self, tool: str) -> None:
        """For what can only be asked on a plain connection; `tool` is Kafka's own command for it."""
        protocol = str(self._properties.get("security.protocol", "plaintext"))
        if protocol.lower() != "plaintext":
            raise Failure(f"this can only be asked over a plain connection, not over {protocol}", f"use {tool} instead")

    def _config(self, **overrides: Any) -> dict[str, Any]:
        from ottla.cli.client import KafkaError

        def on_error(error: Any) -> None:
            self._last_error = error
            # Said once; each attempt to connect to one of them is another error after it.
            self._went_down = self._went_down or error.code() == KafkaError._ALL_BROKERS_DOWN

        config: dict[str, Any] = {
            "client.id": "ottla-cli",
            "log_level": 0,  # the library's own lines on stderr; what matters comes through error_cb
            "error_cb": on_error,
            "socket.connection.setup.timeout.ms": int(METADATA_TIMEOUT_S * 1000),
        }
        config.update(self._properties)
        config.update(overrides)
        config["bootstrap.servers"] = self.bootstrap_servers
        return config

    def _build(self, kind: type[T], **overrides: Any) -> T:
        from ottla.cli.client import KafkaException

        try:
            return kind(self._config(**overrides))  # type: ignore[call-arg]
        except KafkaException as exception:
            raise Failure(f"client property refused: {exception.args[0].str().strip()}", exit_code=EXIT_USAGE) from None

    @cached_property
    def admin(self) -> AdminClient:
        from ottla.cli.client import AdminClient

        self.reach()
        return self._build(AdminClient)

    def producer(self, **overrides: Any) -> Producer:
        from ottla.cli.client import Producer

        # Same key, same partition as the Java client gives it; librdkafka's own default would differ.
        self.reach()
        partitioner = self._properties.get("partitioner", "murmur2_random")
        return self._build(Producer, **{"partitioner": partitioner, **overrides})

    def consumer(self, **overrides: Any) -> Consumer:
        from ottla.cli.client import Consumer

        # The library demands a group id; none is joined and nothing is committed, as partitions are assigned by hand.
        fixed = {"group.id": self._properties.get("group.id", "ottla-cli"), "enable.auto.commit": False}
        config = {**fixed, **overrides}
        if not config["group.id"]:
            raise Failure("the name of the group is empty", exit_code=EXIT_USAGE)  # the library would end the process
        self.reach()
        return self._build(Consumer, **config)

    def metadata(self) -> ClusterMetadata:
        """All topics and brokers. Never asks for one topic by name: that could create it."""
        from ottla.cli.client import KafkaError, KafkaException

        try:
            return self.admin.list_topics(timeout=METADATA_TIMEOUT_S)
        except KafkaException as exception:
            self.admin.poll(0)
            error = self._last_error or exception.args[0]
            if error.code() in (KafkaError._SSL, KafkaError._AUTHENTICATION):
                raise explain(error, self.bootstrap_servers) from None
            raise Failure(
                f"{self.bootstrap_servers} accepts connections but does not answer as a Kafka broker does"
                f" ({error.str().removeprefix('Local: ')})",
                "is it a Kafka port, and should the connection be encrypted (security.protocol in --command-config)?",
                code=code_name(error),
            ) from None

    def topics(self, names: Iterable[str]) -> list[TopicMetadata]:
        """The topics of these names; a Failure with the nearest existing names for the first that does not exist."""
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

    def went_down(self) -> bool:
        """Whether all brokers went away since this was asked last."""
        went_down, self._went_down = self._went_down, False
        return went_down

    @property
    def last_error(self) -> Any:
        return self._last_error


def unknown_topic(name: str, known: Iterable[str], *, creatable: bool = True) -> Failure:
    hint = did_you_mean(name, (topic for topic in known if not topic.startswith("__")))
    if creatable:
        hint = f"{hint or ''} create it with `ottla topic create {name}`".strip()
    return Failure(f"there is no topic {name}", hint, code="UNKNOWN_TOPIC_OR_PARTITION")


def settled(future: Future[T], subject: str) -> T:
    """The result of an admin call, or its error as a Failure about `subject`."""
    from ottla.cli.client import KafkaError, KafkaException

    try:
        return future.result(REQUEST_TIMEOUT_S)
    except KafkaException as exception:
        error = exception.args[0]
        if error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
            raise Failure(f"{subject}: the broker does not answer any more", code=code_name(error)) from None
        raise explain(error, subject) from None
    except TimeoutError:
        raise Failure(f"{subject}: no answer within {REQUEST_TIMEOUT_S:.0f} s", code="_TIMED_OUT") from None
