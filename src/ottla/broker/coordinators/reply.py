"""The reply to one request of a coordinator: known at once, or awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ottla.errors import KafkaError

T = TypeVar("T")


class Reply(Generic[T]):
    """The token of a request in its shard. It is answered once; later answers are ignored."""

    __slots__ = ("_convert", "_done", "_error", "_future", "_refuse", "_response", "_waiting")

    def __init__(self, convert: Callable[[Any], T] | None = None, refuse: Callable[[KafkaError], object] | None = None) -> None:
        self._convert = convert
        """From the shard's response to what this version of the API can carry."""
        self._refuse = refuse
        """The shard's response for an error, where the handler's `refuse` does not know the version."""
        self._response: T | None = None
        self._error: KafkaError | None = None
        self._future: asyncio.Future[T] | None = None
        self._done = False
        self._waiting: dict[Reply[Any], None] | None = None
        """The unanswered replies of its shard, this one among them."""

    @property
    def done(self) -> bool:
        """Whether the request is answered, or its client is gone."""
        return self._done or (self._future is not None and self._future.done())

    def answer(self, response: Any) -> None:
        if self._waiting is not None:
            self._waiting.pop(self, None)
        if self.done:
            return
        self._done = True
        if self._convert is not None:
            response = self._convert(response)
        if self._future is not None:
            self._future.set_result(response)
        else:
            self._response = response

    def fail(self, error: KafkaError) -> None:
        if self._waiting is not None:
            self._waiting.pop(self, None)
        if self.done:
            return
        if self._refuse is not None:
            self.answer(self._refuse(error))
            return
        self._done = True
        if self._future is not None:
            self._future.set_exception(error)
        else:
            self._error = error

    def result(self) -> T:
        """The response of a reply that is done. Raises the KafkaError of one that failed."""
        if self._error is not None:
            raise self._error
        assert self._response is not None, "not done"
        return self._response

    def wait_in(self, waiting: dict[Reply[Any], None], loop: asyncio.AbstractEventLoop) -> asyncio.Future[T]:
        """The future of a reply that is not done. It stays in `waiting` until it is answered, even if its client goes away."""
        waiting[self] = None
        self._waiting = waiting
        self._future = loop.create_future()
        return self._future
