"""Publishes the controller's image to the brokers of a cluster, as control requests in one ordered queue for each broker (F61).

1. A broker gets its requests in order, one at a time: the next one is sent when the one before was answered.
2. A request is sent again until it is answered, the broker is gone (or has registered again), or the controller resigns. Brokers
   ignore a request that comes twice: its epochs are not newer.
3. The controller's own broker is called directly, in the same order.
4. A queue is bounded: a broker that falls too far behind is sent its whole state instead (`full_requests`).
5. An acknowledgement is that of one change and no later one, and does not wait for a broker that cannot be reached.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from ottla.broker.controller.controller_state import ControllerState
from ottla.broker.controller.metadata_writer import Acknowledgement
from ottla.broker.network.inter_broker import PeerUnavailable
from ottla.cluster.control_requests import VERSIONS, ControlRequests, control_requests_between, stop_replica
from ottla.cluster.image import BrokerImage, ClusterImage
from ottla.errors import ErrorCode
from ottla.protocol.messages.stop_replica import StopReplicaTopicState

logger = logging.getLogger(__name__)

_PAUSE_S: Final = 0.1
_FAILURES_MAX: Final = 5
"""After so many failed attempts in a row nobody waits for the broker any more; the request is still sent again."""
_QUEUED_MAX: Final = 1000
Send = Callable[[BrokerImage, str, int, object], Awaitable[Any]]
"""Sends (api name, version, request) to a broker and returns its response; PeerUnavailable if there is none."""
Responded = Callable[[BrokerImage, str, Any], None]
"""Is called with (api name, response) of each control request that a broker has answered."""


class _Channel:
    """The queue of one registration of a broker."""

    def __init__(self, broker: BrokerImage, send: Send, on_response: Responded) -> None:
        self.broker = broker
        self._send = send
        self._on_response = on_response
        self._queue: deque[tuple[str, object, Acknowledgement | None]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        """Failed attempts since the last response."""

    def put(self, requests: Sequence[tuple[str, object]]) -> Acknowledgement:
        acknowledgement: Acknowledgement = asyncio.get_running_loop().create_future()
        for index, (name, request) in enumerate(requests):
            self._queue.append((name, request, acknowledgement if index == len(requests) - 1 else None))
        if self._failures >= _FAILURES_MAX:
            acknowledgement.set_result(False)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return acknowledgement

    async def _run(self) -> None:
        while self._queue:
            name, request, acknowledgement = self._queue[0]
            try:
                response = await self._send(self.broker, name, VERSIONS[name], request)
            except Exception as error:
                if isinstance(error, PeerUnavailable):
                    logger.debug("Could not send %s to broker %d: %s", name, self.broker.id, error)
                else:
                    logger.exception("Failed to send %s to broker %d", name, self.broker.id)
                self._failures += 1
                if self._failures == _FAILURES_MAX:
                    self._stop_waiting()
                await asyncio.sleep(_PAUSE_S)
                continue
            self._failures = 0
            self._queue.popleft()
            if response.error_code != ErrorCode.NONE:
                logger.warning("Broker %d refused %s: %s", self.broker.id, name, ErrorCode(response.error_code).name)
            self._on_response(self.broker, name, response)
            if acknowledgement is not None and not acknowledgement.done():
                acknowledgement.set_result(True)
        self._task = None

    def _stop_waiting(self) -> None:
        for _, _, acknowledgement in self._queue:
            if acknowledgement is not None and not acknowledgement.done():
                acknowledgement.set_result(False)

    @property
    def lags(self) -> bool:
        return len(self._queue) > _QUEUED_MAX

    def drop_superseded(self) -> None:
        """Drop queued requests: the whole state follows. StopReplica stays, the whole state does not name replicas to delete."""
        kept = self._queue.popleft()
        dropped, self._queue = self._queue, deque([kept])
        for name, request, acknowledgement in dropped:
            if name == "stop_replica":
                self._queue.append((name, request, acknowledgement))
            elif acknowledgement is not None and not acknowledgement.done():
                acknowledgement.cancel()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for _, _, acknowledgement in self._queue:
            if acknowledgement is not None and not acknowledgement.done():
                acknowledgement.cancel()
        self._queue.clear()


class ControllerChannels:
    def __init__(self, send: Send, on_response: Responded, full_requests: Callable[[int], Iterable[ControlRequests]]) -> None:
        """`full_requests`: the requests that send a broker its whole state."""
        self._send = send
        self._on_response = on_response
        self._full_requests = full_requests
        self._channels: dict[int, _Channel] = {}

    def send(self, requests: Iterable[ControlRequests]) -> dict[int, Acknowledgement]:
        """Queue requests. The acknowledgement of a broker is done when it has answered all of them or cannot be reached, and
        cancelled when the broker is gone."""
        acknowledgements: dict[int, Acknowledgement] = {}
        for each in requests:
            broker_id, channel = each.broker.id, self._channel(each.broker)
            if channel.lags:
                logger.warning(
                    "Broker %d does not answer control requests, %d are queued: sending its whole state instead",
                    broker_id,
                    _QUEUED_MAX,
                )
                channel.drop_superseded()
                for full in self._full_requests(broker_id):
                    acknowledgements[broker_id] = channel.put(full.requests())
            else:
                acknowledgements[broker_id] = channel.put(each.requests())
        return acknowledgements

    def send_one(self, broker: BrokerImage, api_name: str, request: object) -> None:
        self._channel(broker).put([(api_name, request)])

    def _channel(self, broker: BrokerImage) -> _Channel:
        channel = self._channels.get(broker.id)
        if channel is None or channel.broker.epoch != broker.epoch:
            if channel is not None:
                channel.close()
            channel = self._channels[broker.id] = _Channel(broker, self._send, self._on_response)
        return channel

    def forget(self, broker_id: int) -> None:
        """Close the queue of a broker that is gone."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """Close all queues: the controller resigns."""
        for broker_id in list(self._channels):
            self.forget(broker_id)


class ControlRequestSender:
    """Compares the image with the one before and sends each broker the control requests for the difference."""

    def __init__(self, state: ControllerState, send: Send, on_response: Responded) -> None:
        self._state = state
        self._channels = ControllerChannels(send, on_response, self._full_requests)

    async def prepare(self, image: ClusterImage) -> None:
        """Nothing: this broker learns of the image as every other, by control requests."""

    def publish(
        self, before: ClusterImage, image: ClusterImage, created: Collection[tuple[str, int]]
    ) -> Collection[Acknowledgement]:
        for broker_id in before.brokers:
            if broker_id not in image.brokers:
                self._channels.forget(broker_id)
        return self._channels.send(self._between(before, image, created)).values()

    def send_everything(self, broker_id: int) -> None:
        """Send a broker its whole state again: its answer says which replicas are offline."""
        self._channels.send(self._full_requests(broker_id))

    def stop_replicas(self, broker: BrokerImage, topics: Sequence[StopReplicaTopicState]) -> None:
        """Stop replicas of a broker beyond what follows from the image."""
        request = stop_replica(self._state.image, broker, self._state.active_term().epoch, topics)
        self._channels.send_one(broker, "stop_replica", request)

    def close(self) -> None:
        self._channels.close()

    def _full_requests(self, broker_id: int) -> list[ControlRequests]:
        image = self._state.image
        without = replace(image, brokers={other: broker for other, broker in image.brokers.items() if other != broker_id})
        return [requests for requests in self._between(without, image) if requests.broker.id == broker_id]

    def _between(
        self, before: ClusterImage, image: ClusterImage, created: Collection[tuple[str, int]] = ()
    ) -> list[ControlRequests]:
        return control_requests_between(
            before,
            image,
            controller_epoch=self._state.active_term().epoch,
            listener=self._state.settings.listeners().inter_broker,
            created=created,
        )
