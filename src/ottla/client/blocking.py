"""A Kafka client on blocking sockets: for Spark's Python workers and for tools, where there is no event loop.

Owns: connections to brokers, what each of them can speak, who leads and who coordinates, and trying again. Builds no request and
reads no answer beyond its error codes. One thread at a time may use a `Client`.

1. A call returns an answer without error codes, or raises: KafkaError with the first code in it, or BrokerAway, which says where
   it tried and why that failed.
2. What may pass by itself (a lost connection, a retriable code) is tried again until the call's time is over, with growing
   pauses, after asking anew who leads or coordinates. What cannot is raised at once.
3. A connection that failed in any way is closed, never used again: an answer that comes late can meet no other request.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from types import TracebackType
from typing import Any, TypeVar

from ottla.client.options import ClientOptions, InvalidOption
from ottla.client.pipeline import RESPONSE_BYTES_MAX, Pipeline
from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.ports import FileRange
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.registry import API_BY_NAME, Api

T = TypeVar("T")
Request = object
"""A message, or a function that makes one for the version that was agreed on."""

GROUP, TRANSACTION = 0, 1
_KINDS = {"group": GROUP, "transaction": TRANSACTION}
# A topic made a moment ago is not known everywhere yet; one that was never made should not take a minute to be missed.
_UNKNOWN_TOPIC_PATIENCE_S = 3.0
_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_SOON_S = 0.005
_SOON_MAX_S = 0.1


class BrokerAway(ConnectionError):
    """Nobody answers. The message holds the addresses that were tried and what each attempt met."""


class Untrusted(BrokerAway):
    """Somebody answers, but cannot prove who he is. Not tried again: certificates do not mend themselves."""


@dataclass(frozen=True, slots=True)
class PartitionLeader:
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: Mapping[int, PartitionLeader]


class Channel:
    """One connection to one broker, after the agreement on versions and, if wanted, the login."""

    def __init__(self, host: str, port: int, options: ClientOptions, timeout_s: float) -> None:
        self.address = f"{host}:{port}"
        self._pipeline = Pipeline(options.client_id)
        self._versions: dict[int, tuple[int, int]] = {}
        self._socket = socket.create_connection((host, port), timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if options.encrypted:
                self._socket = _ssl_context(options).wrap_socket(
                    self._socket, server_hostname=host if options.ssl_check_host else None
                )
            self._agree(timeout_s)
            if options.authenticates:
                self._log_in(options, timeout_s)
        except BaseException:
            self.close()
            raise

    def _agree(self, timeout_s: float) -> None:
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version="0")
        api = API_BY_NAME["api_versions"]
        answer = self.exchange(api, 3, request, timeout_s)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = self.exchange(api, 0, ApiVersionsRequest(), timeout_s)
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(_code(answer.error_code), f"{self.address} does not say what it speaks")
        self._versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}

    def _log_in(self, options: ClientOptions, timeout_s: float) -> None:
        handshake = self.exchange(
            API_BY_NAME["sasl_handshake"], 1, SaslHandshakeRequest(mechanism=options.sasl_mechanism), timeout_s
        )
        if handshake.error_code != ErrorCode.NONE:
            offered = ", ".join(handshake.mechanisms)
            raise KafkaError(_code(handshake.error_code), f"{self.address} offers {offered}, not {options.sasl_mechanism}")
        if options.sasl_mechanism == "PLAIN":
            self._authenticate(f"\0{options.sasl_username}\0{options.sasl_password}".encode(), timeout_s)
            return
        from ottla.client.scram import Scram, ScramError

        scram = Scram(options.sasl_mechanism, options.sasl_username, options.sasl_password, os.urandom(24))
        try:
            scram.check_last(self._authenticate(scram.final(self._authenticate(scram.first(), timeout_s)), timeout_s))
        except ScramError as error:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"{self.address}: {error}") from None

    def _authenticate(self, token: bytes, timeout_s: float) -> bytes:
        api = API_BY_NAME["sasl_authenticate"]
        answer = self.exchange(api, self.version_of(api), SaslAuthenticateRequest(auth_bytes=token), timeout_s)
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(_code(answer.error_code), f"{self.address}: {answer.error_message or 'the login was refused'}")
        return bytes(answer.auth_bytes)

    def version_of(self, api: Api, max_version: int | None = None) -> int:
        """The highest version both sides have, at most `max_version`."""
        ours = api.max_version if max_version is None else min(api.max_version, max_version)
        lowest, highest = self._versions.get(api.key, (0, -1))
        if min(ours, highest) < max(lowest, api.min_version):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{self.address} has no {api.name} that we can speak")
        return min(ours, highest)

    def exchange(self, api: Api, version: int, request: object, timeout_s: float) -> Any:
        """Send and wait for the answer. Closes itself on any failure (invariant 3)."""
        assert not self._pipeline, "an answer is still to come"
        self.send(api, version, request, timeout_s)
        return self.receive(timeout_s)

    def send(self, api: Api, version: int, request: object, timeout_s: float) -> None:
        """Send only; the answers of several requests are received in their order."""
        _, parts = self._pipeline.request(api, version, request)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(b"".join(part for part in parts if not isinstance(part, FileRange)))
        except BaseException:
            self.close()
            raise

    def receive(self, timeout_s: float) -> Any:
        try:
            until = monotonic() + timeout_s
            size = int.from_bytes(self._read(4, until), "big", signed=True)
            if not 4 <= size <= RESPONSE_BYTES_MAX:
                raise MalformedInput(f"a response of {size} bytes")
            return self._pipeline.response(self._read(size, until))[1]
        except MalformedInput as error:
            self.close()
            raise ConnectionAbortedError(f"does not answer as a Kafka broker does: {error}") from None
        except BaseException:
            self.close()
            raise

    def _read(self, size: int, until: float) -> memoryview:
        memory = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            self._socket.settimeout(max(until - monotonic(), 0.001))
            count = self._socket.recv_into(memory[filled:])
            if count == 0:
                raise ConnectionResetError("the broker closed the connection")
            filled += count
        return memory

    def close(self) -> None:
        self._socket.close()


class Client:
    """A cluster, as seen by one thread. `with Client(options) as client: client.call_any(...)`."""

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self._channels: dict[tuple[str, int], Channel] = {}
        self._nodes: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, tuple[Topic, float]] = {}
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}

    # Calls

    def call_any(self, request: Request, *, api: str | None = None, max_version: int | None = None, timeout_s: float = 0) -> Any:
        """Ask whichever broker answers."""
        return self.persist(lambda until: self._ask(self._any(until), request, api, max_version, until), timeout_s)

    def call_leader(
        self,
        topic: str,
        partition: int,
        request: Request,
        *,
        api: str | None = None,
        max_version: int | None = None,
        timeout_s: float = 0,
    ) -> Any:
        """Ask the leader of a partition."""

        def attempt(until: float) -> Any:
            node_id = self.leader(topic, partition, until)
            return self._ask(self._node(node_id, until), request, api, max_version, until)

        return self.persist(attempt, timeout_s, lambda: self._topics.pop(topic, None))

    def call_coordinator(
        self,
        key: str,
        kind: str | int,
        request: Request,
        *,
        api: str | None = None,
        max_version: int | None = None,
        timeout_s: float = 0,
    ) -> Any:
        """Ask the coordinator of a group (`kind` "group") or of a transactional id ("transaction")."""
        number = _KINDS[kind] if isinstance(kind, str) else kind

        def attempt(until: float) -> Any:
            address = self._coordinators.get((number, key))
            if address is None:
                address = self._coordinators[number, key] = self._find_coordinator(key, number, until)
            return self._ask(self._open(address, until), request, api, max_version, until)

        return self.persist(attempt, timeout_s, lambda: self._coordinators.pop((number, key), None))

    def send_leader(
        self, topic: str, partition: int, request: Request, *, api: str | None = None, max_version: int | None = None
    ) -> Callable[[], Any]:
        """Ask the leader of a partition, once, without waiting: what is returned waits. Until then nothing else may be called."""
        until = monotonic() + self.options.request_timeout_ms / 1000
        channel = self._node(self.leader(topic, partition, until), until)
        return self._send(channel, request, api, max_version, until)

    def ask_node(self, node_id: int, request: Request, until: float, *, max_version: int | None = None) -> Any:
        """Ask one broker, once: for an attempt of `persist` that asks several."""
        return self._ask(self._node(node_id, until), request, None, max_version, until)

    # What the cluster is

    def reach(self, timeout_s: float = 5.0) -> None:
        """Return if any broker answers within this time; otherwise BrokerAway."""
        self.persist(self._any, timeout_s)

    def topic(self, name: str, *, timeout_s: float = 0, create: bool = False) -> Topic:
        """A topic as it is now, asked for if not known or no longer fresh."""
        return self.persist(lambda until: self._fresh_topic(name, until, create), timeout_s)

    def describe(self, names: Sequence[str], *, timeout_s: float = 0) -> dict[str, Topic]:
        """These topics as they are now, in one request. One that does not exist is not in the answer."""

        def attempt(until: float) -> dict[str, Topic]:
            found: dict[str, Topic] = {}
            for entry in self._metadata(list(names), until).topics:
                if entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self.forget(entry.name or "")
                elif entry.error_code != ErrorCode.NONE:
                    raise KafkaError(_code(entry.error_code), f"topic {entry.name}")
                else:
                    found[str(entry.name)] = self._learn(entry)
            return found

        return self.persist(attempt, timeout_s)

    def topics(self, *, timeout_s: float = 0) -> dict[str, Topic]:
        """All topics this client may see, internal ones included."""
        answer = self.persist(lambda until: self._metadata(None, until), timeout_s)
        return {entry.name: self._learn(entry) for entry in answer.topics if entry.name and entry.error_code == ErrorCode.NONE}

    def forget(self, topic: str) -> None:
        """Ask anew at the next use."""
        self._topics.pop(topic, None)

    def leader(self, topic: str, partition: int, until: float) -> int:
        """The node id of a partition's leader, as known; KafkaError if there is none. For an attempt of `persist`."""
        known = self._fresh_topic(topic, until, False)
        found = known.partitions.get(partition)
        if found is None:
            self.forget(topic)
            count = len(known.partitions)
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} has {count} partitions, there is no partition {partition}"
            )
        if found.leader_id < 0:
            self.forget(topic)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return found.leader_id

    def close(self) -> None:
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    # How it is found out

    def _fresh_topic(self, name: str, until: float, create: bool) -> Topic:
        known = self._topics.get(name)
        if known is not None and known[1] > monotonic():
            return known[0]
        answer = self._metadata([name], until, create)
        for entry in answer.topics:
            if entry.name != name:
                continue
            if entry.error_code != ErrorCode.NONE:
                raise KafkaError(_code(entry.error_code), f"topic {name}")
            return self._learn(entry)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")

    def _metadata(self, names: list[str] | None, until: float, create: bool = False) -> MetadataResponse:
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=create,
        )
        answer: MetadataResponse = self._ask(self._any(until), request, None, None, until, check=False)
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(_code(answer.error_code), "metadata")
        self._nodes = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers} or self._nodes
        return answer

    def _learn(self, entry: Any) -> Topic:
        leaders = {part.partition_index: PartitionLeader(part.leader_id, part.leader_epoch) for part in entry.partitions}
        topic = Topic(entry.name, entry.topic_id, entry.is_internal, leaders)
        self._topics[entry.name] = topic, monotonic() + self.options.metadata_max_age_ms / 1000
        return topic

    def _find_coordinator(self, key: str, kind: int, until: float) -> tuple[str, int]:
        def request(version: int) -> FindCoordinatorRequest:
            if version < 4:
                return FindCoordinatorRequest(key=key, key_type=kind)
            return FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])

        answer = self._ask(self._any(until), request, "find_coordinator", 5, until)
        found = answer.coordinators[0] if answer.coordinators else answer
        return found.host, found.port

    # Connections

    def _any(self, until: float) -> Channel:
        """A connection that is open, or one to whichever known or bootstrap server accepts it."""
        for channel in self._channels.values():
            return channel
        problems: dict[str, str] = {}
        # The bootstrap servers too: after a while all known brokers may have moved.
        for address in dict.fromkeys([*self._nodes.values(), *self.options.servers]):
            try:
                return self._open(address, until)
            except Untrusted:
                raise
            except OSError as error:
                problems["{}:{}".format(*address)] = _reason(error)
        raise BrokerAway("no broker answers: " + "; ".join(f"{address}: {reason}" for address, reason in problems.items()))

    def _node(self, node_id: int, until: float) -> Channel:
        if node_id not in self._nodes:
            self._metadata([], until)
        address = self._nodes.get(node_id)
        if address is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {node_id} is not in the cluster at present")
        return self._open(address, until)

    def _open(self, address: tuple[str, int], until: float) -> Channel:
        channel = self._channels.get(address)
        if channel is None:
            timeout_s = min(self.options.connect_timeout_ms / 1000, max(until - monotonic(), 0.1))
            try:
                channel = self._channels[address] = Channel(*address, self.options, timeout_s)
            except ssl.SSLCertVerificationError as error:
                raise Untrusted(f"{address[0]}:{address[1]} shows a certificate that is not trusted: {_reason(error)}") from error
            except OSError as error:
                raise BrokerAway(f"{address[0]}:{address[1]}: {_reason(error)}") from error
        return channel

    def _ask(
        self, channel: Channel, request: Request, api_name: str | None, max_version: int | None, until: float, check: bool = True
    ) -> Any:
        return self._send(channel, request, api_name, max_version, until, check)()

    def _send(
        self, channel: Channel, request: Request, api_name: str | None, max_version: int | None, until: float, check: bool = True
    ) -> Callable[[], Any]:
        api = API_BY_NAME[api_name] if api_name is not None else api_of(request)
        version = channel.version_of(api, max_version)
        message = request(version) if callable(request) else request
        timeout_s = min(self.options.request_timeout_ms / 1000, max(until - monotonic(), 0.1))

        def lost(error: OSError) -> BrokerAway:
            self._channels = {address: other for address, other in self._channels.items() if other is not channel}
            return BrokerAway(f"{channel.address} did not answer {api.name}: {_reason(error)}")

        def wait() -> Any:
            try:
                answer = channel.receive(timeout_s)
            except OSError as error:
                raise lost(error) from error
            if check:
                for code, where in errors_in(answer):
                    raise KafkaError(_code(code), where or None)
            return answer

        try:
            channel.send(api, version, message, timeout_s)
        except OSError as error:
            raise lost(error) from error
        return wait

    def persist(self, attempt: Callable[[float], T], timeout_s: float, renew: Callable[[], object] = lambda: None) -> T:
        """Attempt (it is told until when) until it succeeds, its time is over, or it fails for good: invariant 2."""
        began = monotonic()
        until = began + (timeout_s or self.options.api_timeout_ms / 1000)
        pause = self.options.retry_backoff_ms / 1000
        soon = _SOON_S
        while True:
            try:
                return attempt(until)
            except Untrusted:
                raise
            except (BrokerAway, KafkaError) as error:  # kept nowhere else: it holds the frames of those who wait for the answer
                code = error.code if isinstance(error, KafkaError) else None
                if code is not None and (
                    not code.retriable or (code in _UNKNOWN and monotonic() - began > _UNKNOWN_TOPIC_PATIENCE_S)
                ):
                    raise
                if code == ErrorCode.CONCURRENT_TRANSACTIONS:
                    # The transaction before is being completed: a matter of milliseconds.
                    wait, soon = soon, min(soon * 2, _SOON_MAX_S)
                else:
                    renew()
                    wait, pause = pause, min(pause * 2, self.options.retry_backoff_max_ms / 1000)
                if monotonic() + wait >= until:
                    raise
            sleep(wait)


def api_of(message: object) -> Api:
    """The API that a request belongs to, by the module that defines it."""
    return API_BY_NAME[type(message).__module__.rpartition(".")[2]]


def errors_in(answer: object, where: str = "") -> Iterator[tuple[int, str]]:
    """The error codes anywhere in a message, with the topic and partition they are about."""
    message = getattr(answer, "error_message", None)
    name = getattr(answer, "name", None) or getattr(answer, "topic", None) or getattr(answer, "group_id", None)
    number = next((n for n in (getattr(answer, word, None) for word in ("partition_index", "index")) if n is not None), None)
    if name is not None:
        where = str(name)
    elif number is not None:
        where = f"{where}-{number}"
    for attribute in type(answer).__slots__:  # type: ignore[attr-defined]
        value = getattr(answer, attribute)
        if attribute.endswith("error_code") and value:
            yield value, " ".join(filter(None, [where, message]))
        elif type(value) is list and value and hasattr(value[0], "__wire__"):
            for item in value:
                yield from errors_in(item, where)


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _reason(error: BaseException) -> str:
    if isinstance(error, BrokerAway):
        return str(error).partition(": ")[2] or str(error)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _ssl_context(options: ClientOptions) -> ssl.SSLContext:
    """InvalidOption for a store that cannot be read: no other broker and no later attempt would change that."""
    from ottla.client import stores  # most clients need none, and a worker's start is waited for

    name, value = "kafka.ssl.truststore.location", options.ssl_trust_file or "…"
    try:
        trusted = options.ssl_trust_pem
        if trusted is None and options.ssl_trust_file is not None:
            trusted = stores.certificates(options.ssl_trust_file, options.ssl_trust_password)
        # Without a trust store of its own: those that the machine trusts.
        context = ssl.create_default_context(cadata=trusted)
        if not options.ssl_check_host:
            context.check_hostname = False
        name, value = "kafka.ssl.keystore.location", options.ssl_key_file or "…"
        if options.ssl_key_pem is not None:
            stores.load_chain(context, options.ssl_key_pem, options.ssl_key_password)
        elif options.ssl_key_file is not None:
            pem, password = stores.key_and_chain(options.ssl_key_file, options.ssl_key_file_password, options.ssl_key_password)
            stores.load_chain(context, pem, password)
    except stores.BadStore as error:
        raise InvalidOption(name, value, str(error)) from None
    except ssl.SSLError as error:
        raise InvalidOption(name, value, f"OpenSSL does not take it: {error.reason or error}") from None
    return context
