"""Requests and responses of one connection, matched by correlation id, without I/O.

Owns the correlation ids and the requests in flight.

1. Responses come in the order of their requests. Otherwise MalformedInput: the connection cannot be used any more.
2. A request without a response (acks=0) is never in flight.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import NamedTuple

from ottla.errors import MalformedInput
from ottla.ports import Part
from ottla.protocol.headers import decode_response, encode_request
from ottla.protocol.registry import Api

RESPONSE_BYTES_MAX = 1 << 30
_read_sizes = Struct(">i").unpack_from


class InFlight(NamedTuple):
    correlation_id: int
    api: Api
    version: int


class Pipeline:
    def __init__(self, client_id: str | None, *, response_bytes_max: int = RESPONSE_BYTES_MAX) -> None:
        self.client_id = client_id
        self._response_bytes_max = response_bytes_max
        self._next_id = 0
        self._in_flight: deque[InFlight] = deque()
        self._received = bytearray()

    def __len__(self) -> int:
        """The number of requests in flight."""
        return len(self._in_flight)

    def request(self, api: Api, version: int, request: object, *, expect_reply: bool = True) -> tuple[int, list[Part]]:
        """The correlation id and the frame to send."""
        correlation_id = self._next_id
        parts = encode_request(api, version, correlation_id, self.client_id, request)
        self._next_id = (correlation_id + 1) & 0x7FFF_FFFF
        if expect_reply:
            self._in_flight.append(InFlight(correlation_id, api, version))
        return correlation_id, parts

    def receive(self, data: bytes | bytearray | memoryview) -> list[tuple[int, object]]:
        """The responses that are complete with these bytes, as (correlation id, message). Each owns its memory."""
        received = self._received
        received += data
        responses: list[tuple[int, object]] = []
        position = 0
        while len(received) - position >= 4:
            size: int = _read_sizes(received, position)[0]
            if not 4 <= size <= self._response_bytes_max:
                raise MalformedInput(f"a response of {size} bytes")
            if len(received) - position - 4 < size:
                break
            responses.append(self.response(memoryview(bytes(received[position + 4 : position + 4 + size]))))
            position += 4 + size
        del received[:position]
        return responses

    def response(self, frame: memoryview) -> tuple[int, object]:
        """The response in a frame that the caller has read whole, without its length. The message may keep the frame's memory."""
        if not self._in_flight:
            raise MalformedInput("a response without a request")
        expected = self._in_flight.popleft()
        version = expected.version
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if correlation_id != expected.correlation_id:
            raise MalformedInput(f"a response to request {correlation_id}, while {expected.correlation_id} is next")
        if expected.api.name == "api_versions" and bytes(frame[4:6]) == b"\x00\x23":
            # UNSUPPORTED_VERSION comes in the layout of version 0, whatever was asked (KIP-511).
            version = 0
        return decode_response(expected.api, version, frame)
