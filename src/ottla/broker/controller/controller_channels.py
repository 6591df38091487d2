"""The controller's orders on their way: one ordered queue for each broker (F61).

Owns: who has been told what. Never decides what to tell.

1. A broker gets its orders in the order they were given, one at a time: the next is sent when the one before was answered.
2. An order is repeated until it is answered, the broker is gone (or in a new life), or the controller resigns. Performing an
   order twice does no harm: epochs tell the second one apart.
3. The controller's own broker is told by a direct call, in the same order.
4. What waits is bounded: a broker that falls too far behind is told everything anew instead (`on_lag`).
5. Whoever waits until a broker has heard an order waits for that order and no other, and not for one that cannot be reached.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from ottla.broker.network.inter_broker import PeerUnavailable
from ottla.cluster.image import BrokerImage
from ottla.cluster.orders import VERSIONS, BrokerOrders
from ottla.errors import ErrorCode

logger = logging.getLogger(__name__)

_PAUSE_S: Final = 0.1
_AWAY_TRIES: Final = 5
"""So many in vain, one after the other, and nobody waits for that broker any more; the order is still repeated."""
_WAITING_MAX: Final = 1000

Send = Callable[[BrokerImage, str, int, object], Awaitable[Any]]
"""Sends (api name, version, request) to a broker and gives its response; PeerUnavailable if there is none."""
Answered = Callable[[BrokerImage, str, Any], None]
"""Hears (api name, response) of each order that a broker has answered."""
Heard = asyncio.Future[bool]
"""Whether a broker has answered all orders of one time; False: it is away, and will be told when it is back."""


class _Channel:
    """One life of one broker."""

    def __init__(self, broker: BrokerImage, send: Send, on_answer: Answered) -> None:
        self.broker = broker
        self._send = send
        self._on_answer = on_answer
        self._queue: deque[tuple[str, object, Heard | None]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._vain = 0
        """Tries since the last answer."""

    def put(self, orders: BrokerOrders) -> Heard:
        return self.put_all(orders.requests())

    def put_all(self, requests: Sequence[tuple[str, object]]) -> Heard:
        heard: Heard = asyncio.get_running_loop().create_future()
        for index, (name, request) in enumerate(requests):
            self._queue.append((name, request, heard if index == len(requests) - 1 else None))
        if self._vain >= _AWAY_TRIES:
            heard.set_result(False)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return heard

    async def _run(self) -> None:
        while self._queue:
            name, request, heard = self._queue[0]
            try:
                response = await self._send(self.broker, name, VERSIONS[name], request)
            except Exception as error:
                if isinstance(error, PeerUnavailable):
                    logger.debug("order %s to broker %d: %s", name, self.broker.id, error)
                else:
                    logger.exception("order %s to broker %d failed", name, self.broker.id)
                self._vain += 1
                if self._vain == _AWAY_TRIES:
                    self._nobody_waits()
                await asyncio.sleep(_PAUSE_S)
                continue
            self._vain = 0
            self._queue.popleft()
            if response.error_code != ErrorCode.NONE:
                logger.warning("broker %d refuses %s: %s", self.broker.id, name, ErrorCode(response.error_code).name)
            self._on_answer(self.broker, name, response)
            if heard is not None and not heard.done():
                heard.set_result(True)
        self._task = None

    def _nobody_waits(self) -> None:
        for _, _, heard in self._queue:
            if heard is not None and not heard.done():
                heard.set_result(False)

    @property
    def lags(self) -> bool:
        return len(self._queue) > _WAITING_MAX

    def skip(self) -> None:
        """Forget what waits behind the request under way; whoever waits for it goes on. Only orders to let a replica go stay: the
        picture as a whole does not show what is no longer in it."""
        kept = self._queue.popleft()
        dropped, self._queue = self._queue, deque([kept])
        for name, request, heard in dropped:
            if name == "stop_replica":
                self._queue.append((name, request, heard))
            elif heard is not None and not heard.done():
                heard.cancel()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for _, _, heard in self._queue:
            if heard is not None and not heard.done():
                heard.cancel()
        self._queue.clear()


class ControllerChannels:
    def __init__(self, send: Send, on_answer: Answered, on_lag: Callable[[int], Iterable[BrokerOrders]]) -> None:
        """`on_lag`: all that a broker has to be told, from scratch."""
        self._send = send
        self._on_answer = on_answer
        self._on_lag = on_lag
        self._channels: dict[int, _Channel] = {}

    def give(self, orders: Iterable[BrokerOrders]) -> dict[int, Heard]:
        """Put the orders on their way. For each broker, a future that is done when it has answered them all or is away, and
        cancelled when it is gone."""
        heard: dict[int, Heard] = {}
        for each in orders:
            channel = self._channel(each.broker)
            if channel.lags:
                logger.warning("broker %d answers no orders: it will be told everything anew", each.broker.id)
                channel.skip()
                for anew in self._on_lag(each.broker.id):
                    heard[each.broker.id] = channel.put(anew)
            else:
                heard[each.broker.id] = channel.put(each)
        return heard

    def give_one(self, broker: BrokerImage, api_name: str, request: object) -> None:
        self._channel(broker).put_all([(api_name, request)])

    def _channel(self, broker: BrokerImage) -> _Channel:
        channel = self._channels.get(broker.id)
        if channel is None or channel.broker.epoch != broker.epoch:
            if channel is not None:
                channel.close()
            channel = self._channels[broker.id] = _Channel(broker, self._send, self._on_answer)
        return channel

    def forget(self, broker_id: int) -> None:
        """The broker is gone: nothing reaches it any more."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """The controller resigns: whatever is under way stays so."""
        for broker_id in list(self._channels):
            self.forget(broker_id)
