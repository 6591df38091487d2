"""Schema registries in the virtual world: the product's own parts on virtual ports, and clients that register schemas.

Owns: a registry's processes one after the other, and how requests travel: as frames of JSON, in place of HTTP. What answers them
is the product's ASGI application, and what forwards them its forwarder. Schemas are parsed in the registry's process: worker
processes are not simulated.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.client.brokers import BrokerFailed, Brokers
from ottla.errors import KafkaError
from ottla.ports import Network
from ottla.registry import errors, schema_work
from ottla.registry.election import GROUP_ID, Identity
from ottla.registry.http.app import App
from ottla.registry.http.forwarding import Forwarded, Forwarder, NotTaken
from ottla.registry.server import TOPIC
from ottla.registry.service import Registry, assembled
from ottla.registry.workers import Workers
from ottla.schemas.model import InvalidSchema
from ottla.sim.kernel.loop import SimLoop
from ottla.sim.kernel.machine import START_MS
from ottla.sim.kernel.network import SimNetwork
from ottla.sim.kernel.process import Process
from ottla.sim.kernel.trace import Trace
from ottla.sim.models.registry_model import RegistryModel

Address = tuple[str, int]

READ_S_MAX: Final = 600.0
CONNECT_S_MAX: Final = 5.0
ANSWER_S_MAX: Final = 60.0
PATIENCE_S: Final = (8.0, 100.0)
"""Some clients ask elsewhere soon; others wait longer than a registry waits for a leader and for a write."""
_SIZE_BYTES: Final = 4
_HEADERS: Final = {"content-type": "application/json", "confluent-accept-unknown-properties": "true"}


class NotReached(Exception):
    """No connection was made: nothing came of the request."""


class Unanswered(Exception):
    """The request was sent, and nobody knows what came of it."""


class _Wire(asyncio.Protocol):
    """Frames of JSON. Subclasses take them."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _SIZE_BYTES:
            end = _SIZE_BYTES + int.from_bytes(self._received[:_SIZE_BYTES], "big")
            if len(self._received) < end:
                return
            document = json.loads(self._received[_SIZE_BYTES:end])
            del self._received[:end]
            self.taken(document)

    def taken(self, document: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def send(self, document: Mapping[str, Any]) -> None:
        assert self._transport is not None
        data = json.dumps(document).encode()
        self._transport.write(len(data).to_bytes(_SIZE_BYTES, "big") + data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class _Asking(_Wire):
    def __init__(self) -> None:
        super().__init__()
        self.answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()

    def taken(self, document: Mapping[str, Any]) -> None:
        if not self.answer.done():
            self.answer.set_result(document)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(ConnectionResetError("the connection was lost"))


class _Answering(_Wire):
    def __init__(self, app: App) -> None:
        super().__init__()
        self._app = app
        self._tasks: set[asyncio.Task[None]] = set()

    def taken(self, document: Mapping[str, Any]) -> None:
        task = asyncio.get_running_loop().create_task(self._respond(document))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _respond(self, asked: Mapping[str, Any]) -> None:
        path, _, query = str(asked["target"]).partition("?")
        scope: dict[str, Any] = {
            "type": "http",
            "method": asked["method"],
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in asked["headers"].items()],
        }
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": str(asked["body"]).encode(), "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        status = next(each["status"] for each in sent if each["type"] == "http.response.start")
        body = b"".join(each.get("body", b"") for each in sent if each["type"] == "http.response.body")
        self.send({"status": status, "body": body.decode()})


async def exchange(
    network: Network, address: Address, method: str, target: str, headers: Mapping[str, str], body: str, answer_s_max: float
) -> tuple[int, str]:
    """The status and the body of an answer. NotReached, Unanswered."""
    try:
        async with asyncio.timeout(CONNECT_S_MAX):
            protocol = _Asking()
            await network.connect(lambda: protocol, *address)
    except OSError as error:
        raise NotReached(str(error)) from None
    try:
        protocol.send({"method": method, "target": target, "headers": dict(headers), "body": body})
        async with asyncio.timeout(answer_s_max):
            answer = await protocol.answer
    except OSError as error:
        raise Unanswered(str(error) or type(error).__name__) from None
    finally:
        if protocol.answer.done() and not protocol.answer.cancelled():
            protocol.answer.exception()
        protocol.close()
    return int(answer["status"]), str(answer["body"])


class WireForwarder(Forwarder):
    def __init__(self, network: Network) -> None:
        super().__init__()
        self._network = network

    async def exchange(self, leader: Identity, method: str, target: str, headers: dict[str, str], body: bytes) -> Forwarded:
        address = leader.host, leader.port
        try:
            status, text = await exchange(self._network, address, method, target, headers, body.decode(), ANSWER_S_MAX)
        except NotReached as error:
            raise NotTaken(f"{leader.url} does not answer: {error}") from None
        except Unanswered as error:
            raise errors.forwarding_failed(f"The leader {leader.url} did not answer: {error}") from None
        return Forwarded(status, "application/json", text.encode())


class InlineWorkers(Workers):
    """Parses in the process of the registry."""

    def __init__(self) -> None:
        super().__init__(0)

    async def run(self, name: str, *arguments: object) -> Any:
        await asyncio.sleep(0)
        try:
            return getattr(schema_work, name)(*arguments)
        except InvalidSchema as error:
            raise errors.invalid_schema(f"Invalid schema: {error}") from None


class RegistryNode:
    """A registry that is started, killed and started again."""

    def __init__(
        self, number: int, port: int, brokers: Sequence[Address], loop: SimLoop, network: SimNetwork, trace: Trace
    ) -> None:
        self.number = number
        self.host = f"registry-{number}"
        self.port = port
        self._brokers = brokers
        self._loop = loop
        self._network = network
        self._trace = trace
        self.process: Process | None = None
        self.processes: list[Process] = []
        self.registry: Registry | None = None
        """Set once it serves, until its process is dead."""

    @property
    def address(self) -> Address:
        return "127.0.0.1", self.port

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def leads(self) -> bool:
        return self.registry is not None and self.registry.leads

    def start(self) -> None:
        """Start it. It serves once it has read the log; if no broker answers, it dies."""
        assert not self.alive, f"{self.host} lives already"
        process = self.process = Process(f"{self.host} life {len(self.processes)}")
        self.processes.append(process)
        process.at_death.append(self._on_death)
        self._trace.add(f"{self.host} starts")
        self._loop.create_task(self._main(process), context=process.context())

    def _on_death(self) -> None:
        self.registry = None

    async def _main(self, process: Process) -> None:
        network = self._network.view(process, self.host)

        def connect(timeout_s: float) -> Brokers:
            return Brokers(network, self._brokers, client_id=self.host, timeout_s=timeout_s)

        def now_ms() -> int:
            return START_MS + int(self._loop.time() * 1000)

        made = assembled(
            connect,
            InlineWorkers(),
            now_ms,
            topic=TOPIC,
            group_id=GROUP_ID,
            identity=Identity(*self.address),
            cluster_id="",
        )
        try:
            await made.registry.start(made.membership, READ_S_MAX)
        except (BrokerFailed, KafkaError, TimeoutError) as error:
            self._trace.add(f"{self.host} does not start: {error}")
            process.die()
            return
        app = App(made.registry, WireForwarder(network))
        await network.listen(lambda: _Answering(app), *self.address)
        self.registry = made.registry
        self._trace.add(f"{self.host} serves")

    def kill(self) -> None:
        if self.process is not None:
            self.process.die()

    def pause(self) -> None:
        if self.process is not None:
            self.process.pause()

    def resume(self) -> None:
        if self.process is not None:
            self.process.resume(self._loop)


class RegistryClient:
    """Registers schemas at any registry, one after the other, and tells the model what was answered."""

    def __init__(
        self, name: str, rng: random.Random, network: Network, registries: Sequence[Address], model: RegistryModel, trace: Trace
    ) -> None:
        self._name = name
        self._rng = rng
        self._patience_s = rng.choice(PATIENCE_S)
        self._network = network
        self._registries = registries
        self._model = model
        self._trace = trace

    async def run(self) -> None:
        while True:
            await self.register(self._rng.choice(self._registries))
            await asyncio.sleep(self._rng.choice((0.1, 0.5, 2.0)) * self._rng.random())

    async def register(self, address: Address) -> bool:
        """Register a schema. Returns whether it was acknowledged."""
        subject, text = self._model.choose(self._rng)
        status, answer = await self._ask(address, "POST", f"/subjects/{subject}/versions", {"schema": text})
        self._trace.add(f"{self._name} {subject} {text}: {status} {answer}")
        if status != 200:
            return False
        self._model.acknowledged(subject, text, int(answer["id"]), int(answer["version"]))
        return True

    async def allow_everything(self) -> None:
        """Switch off checks of compatibility, which are not what this is about."""
        while (await self._ask(self._rng.choice(self._registries), "PUT", "/config", {"compatibility": "NONE"}))[0] != 200:
            await asyncio.sleep(0.5)

    async def _ask(self, address: Address, method: str, target: str, document: object) -> tuple[int, Mapping[str, Any]]:
        """The status and the document; 0 if there was no answer."""
        try:
            status, body = await exchange(
                self._network, address, method, target, _HEADERS, json.dumps(document), self._patience_s
            )
        except (NotReached, Unanswered) as error:
            return 0, {"message": str(error)}
        return status, json.loads(body)
