"""A Kafka client on blocking sockets: for Spark's Python workers and for tools without an event loop.

Owns the metadata cache (brokers, leaders, coordinators), the connections, and retries. Builds no requests and reads no more of a
response than its error codes. One thread at a time may use a `Client`.

1. A call returns a response without error codes, or raises: KafkaError with the first code, or BrokerAway with the addresses that
   were tried and why each failed.
2. A lost connection or a retriable error code is retried with exponential backoff until the call's timeout, after a refresh of
   the leader or coordinator. Other errors are raised at once.
3. A connection that failed is closed and never used again: a late response cannot be taken for that of another request.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from types import TracebackType
from typing import Any, TypeVar

from ottla.client.channel import BrokerAway, Channel, Untrusted, WrongProtocol, error_code, reason_of
from ottla.client.options import ClientOptions
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.registry import API_BY_NAME, Api
from ottla.wire.schema import definition_of

__all__ = ["BrokerAway", "Client", "PartitionLeader", "Topic", "Untrusted", "WrongProtocol", "api_of", "errors_in"]

T = TypeVar("T")
Request = object
"""A message, or a function that builds one for the negotiated version."""

GROUP, TRANSACTION = 0, 1
_KINDS = {"group": GROUP, "transaction": TRANSACTION}
_UNKNOWN_TOPIC_PATIENCE_S = 3.0
"""A topic that was just created may be unknown to some brokers. One that never existed must not take the whole timeout."""
_UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_CONCURRENT_BACKOFF_S = 0.005
_CONCURRENT_BACKOFF_MAX_S = 0.1


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


class Client:
    """A client of one cluster: `with Client(options) as client: client.call_any(...)`."""

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self._channels: dict[tuple[str, int], Channel] = {}
        self._nodes: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, tuple[Topic, float]] = {}
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}

    # Calls

    def call_any(self, request: Request, *, api: str | None = None, max_version: int | None = None, timeout_s: float = 0) -> Any:
        """Send a request to any broker."""
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
        """Send a request to the leader of a partition."""

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
        """Send a request to the coordinator of a group (`kind` "group") or of a transactional id ("transaction")."""
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
        """Send a request to the leader of a partition, without retries. The returned function waits for the response; nothing
        else may be called before it."""
        until = monotonic() + self.options.request_timeout_ms / 1000
        channel = self._node(self.leader(topic, partition, until), until)
        return self._send(channel, request, api, max_version, until)

    def ask_node(self, node_id: int, request: Request, until: float, *, max_version: int | None = None) -> Any:
        """Send a request to one broker, without retries: for an attempt of `persist` that asks several brokers."""
        return self._ask(self._node(node_id, until), request, None, max_version, until)

    # Metadata

    def reach(self, timeout_s: float = 5.0) -> None:
        """Return if any broker answers within the timeout. BrokerAway if not."""
        self.persist(self._any, timeout_s)

    def topic(self, name: str, *, timeout_s: float = 0, create: bool = False) -> Topic:
        """A topic, from the metadata cache unless it is older than metadata.max.age.ms."""
        return self.persist(lambda until: self._fresh_topic(name, until, create), timeout_s)

    def describe(self, names: Sequence[str], *, timeout_s: float = 0) -> dict[str, Topic]:
        """The current metadata of topics, in one request. A topic that does not exist is not in the result."""

        def attempt(until: float) -> dict[str, Topic]:
            found: dict[str, Topic] = {}
            for entry in self._metadata(list(names), until).topics:
                if entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self.forget(entry.name or "")
                elif entry.error_code != ErrorCode.NONE:
                    raise KafkaError(error_code(entry.error_code), f"topic {entry.name}")
                else:
                    found[str(entry.name)] = self._learn(entry)
            return found

        return self.persist(attempt, timeout_s)

    def topics(self, *, timeout_s: float = 0) -> dict[str, Topic]:
        """All topics that this client may see, internal ones included."""
        answer = self.persist(lambda until: self._metadata(None, until), timeout_s)
        return {entry.name: self._learn(entry) for entry in answer.topics if entry.name and entry.error_code == ErrorCode.NONE}

    def forget(self, topic: str) -> None:
        """Remove a topic from the metadata cache."""
        self._topics.pop(topic, None)

    def leader(self, topic: str, partition: int, until: float) -> int:
        """The node id of a partition's leader. KafkaError if it has none. For an attempt of `persist`."""
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

    # Metadata requests

    def _fresh_topic(self, name: str, until: float, create: bool) -> Topic:
        known = self._topics.get(name)
        if known is not None and known[1] > monotonic():
            return known[0]
        answer = self._metadata([name], until, create)
        for entry in answer.topics:
            if entry.name != name:
                continue
            if entry.error_code != ErrorCode.NONE:
                raise KafkaError(error_code(entry.error_code), f"topic {name}")
            return self._learn(entry)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")

    def _metadata(self, names: list[str] | None, until: float, create: bool = False) -> MetadataResponse:
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=create,
        )
        answer: MetadataResponse = self._ask(self._any(until), request, None, None, until, check=False)
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(error_code(answer.error_code), "metadata")
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
        """An open connection, or a new one to any known broker or bootstrap server."""
        for channel in self._channels.values():
            return channel
        problems: dict[str, str] = {}
        # The bootstrap servers too: all known brokers may have moved since.
        for address in dict.fromkeys([*self._nodes.values(), *self.options.servers]):
            try:
                return self._open(address, until)
            except (Untrusted, WrongProtocol):
                raise
            except OSError as error:
                problems["{}:{}".format(*address)] = reason_of(error)
        raise BrokerAway("no broker answers: " + "; ".join(f"{address}: {reason}" for address, reason in problems.items()))

    def _node(self, node_id: int, until: float) -> Channel:
        if node_id not in self._nodes:
            self._metadata([], until)
        address = self._nodes.get(node_id)
        if address is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {node_id} is not in the cluster metadata")
        return self._open(address, until)

    def _open(self, address: tuple[str, int], until: float) -> Channel:
        channel = self._channels.get(address)
        if channel is None:
            timeout_s = min(self.options.connect_timeout_ms / 1000, max(until - monotonic(), 0.1))
            try:
                channel = self._channels[address] = Channel(*address, self.options, timeout_s)
            except ssl.SSLCertVerificationError as error:
                raise Untrusted(
                    f"{address[0]}:{address[1]} shows a certificate that is not trusted: {reason_of(error)}"
                ) from error
            except WrongProtocol:
                raise
            except OSError as error:
                raise BrokerAway(f"{address[0]}:{address[1]}: {reason_of(error)}") from error
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
            return BrokerAway(f"{channel.address} did not answer {api.name}: {reason_of(error)}")

        def wait() -> Any:
            try:
                answer = channel.receive(timeout_s)
            except OSError as error:
                raise lost(error) from error
            if check:
                for code, where in errors_in(answer):
                    raise KafkaError(error_code(code), where or None)
            return answer

        try:
            channel.send(api, version, message, timeout_s)
        except OSError as error:
            raise lost(error) from error
        return wait

    def persist(self, attempt: Callable[[float], T], timeout_s: float, renew: Callable[[], object] = lambda: None) -> T:
        """Repeat `attempt(deadline)` until it succeeds, the timeout passes or it fails with an error that is not retriable
        (invariant 2)."""
        began = monotonic()
        until = began + (timeout_s or self.options.api_timeout_ms / 1000)
        pause = self.options.retry_backoff_ms / 1000
        concurrent = _CONCURRENT_BACKOFF_S
        while True:
            try:
                return attempt(until)
            except (Untrusted, WrongProtocol):
                raise
            except (BrokerAway, KafkaError) as error:  # never kept beyond this block: it references the callers' frames
                code = error.code if isinstance(error, KafkaError) else None
                if code is not None and (
                    not code.retriable or (code in _UNKNOWN and monotonic() - began > _UNKNOWN_TOPIC_PATIENCE_S)
                ):
                    raise
                if code == ErrorCode.CONCURRENT_TRANSACTIONS:
                    # The markers of the previous transaction are being written: milliseconds.
                    wait, concurrent = concurrent, min(concurrent * 2, _CONCURRENT_BACKOFF_MAX_S)
                else:
                    renew()
                    wait, pause = pause, min(pause * 2, self.options.retry_backoff_max_ms / 1000)
                if monotonic() + wait >= until:
                    raise
            sleep(wait)


def api_of(message: object) -> Api:
    """The API of a request, by the module that defines it."""
    return API_BY_NAME[type(message).__module__.rpartition(".")[2]]


def errors_in(answer: object, where: str = "") -> Iterator[tuple[int, str]]:
    """The error codes anywhere in a response, each with its topic and partition."""
    message = getattr(answer, "error_message", None)
    name = getattr(answer, "name", None) or getattr(answer, "topic", None) or getattr(answer, "group_id", None)
    number = next((n for n in (getattr(answer, word, None) for word in ("partition_index", "index")) if n is not None), None)
    if name is not None:
        where = str(name)
    elif number is not None:
        where = f"{where}-{number}"
    for field in definition_of(type(answer)).fields:
        value = getattr(answer, field.name)
        if field.name.endswith("error_code") and value:
            yield value, " ".join(filter(None, [where, message]))
        elif type(value) is list and value and hasattr(value[0], "__wire__"):
            for item in value:
                yield from errors_in(item, where)
