"""Frames: the header before a message, and the length before both.

Owns reading a request's header and writing a response's on the broker's side, and the reverse on a client's. Compiled.

Which header goes with which message:
1. A flexible request has header version 2 (tagged fields at the end), any other version 1. The client id is a plain string in
   both. ControlledShutdown version 0 alone has version 0, without a client id.
2. A flexible response has header version 1, any other version 0; ApiVersions has version 0 always, so that a client can read the
   answer to a version the broker does not know (KIP-511).
3. An unknown API is read with header version 1: enough to name it in the log before the connection is closed.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Any, NamedTuple

from librt.strings import BytesWriter, write_i32_be

from ottla.errors import MalformedInput
from ottla.ports import Part
from ottla.protocol.registry import API_BY_KEY, Api
from ottla.wire.codec import JOIN_BYTES_MAX, Encoder, decoder, encoder, parts_size, skip_tags

_API_VERSIONS = 18
_CONTROLLED_SHUTDOWN = 7

_REQUEST_START = Struct(">hhi")
_REQUEST_V1 = Struct(">hhih")
_CORRELATION_ID = Struct(">i")

_FLEXIBLE_FROM: dict[int, int] = {api.key: api.flexible_from for api in API_BY_KEY.values() if api.flexible_from is not None}
_NEVER = 1 << 16


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """The header of a request, and the position where the message begins."""
    try:
        api_key, version, correlation_id, client_id_size = _REQUEST_V1.unpack_from(frame)
    except struct_error as error:
        return _header_without_client_id(frame, error)
    if api_key == _CONTROLLED_SHUTDOWN and version == 0:
        return RequestHeader(api_key, version, correlation_id, None), _REQUEST_START.size
    position = _REQUEST_V1.size
    client_id: str | None = None
    if client_id_size >= 0:
        stop = position + client_id_size
        if stop > len(frame):
            raise MalformedInput("request header: the client id is longer than the request")
        try:
            client_id = str(frame[position:stop], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedInput("request header: the client id is not UTF-8") from error
        position = stop
    if version >= _FLEXIBLE_FROM.get(api_key, _NEVER):
        position = skip_tags(frame, position)
    return RequestHeader(api_key, version, correlation_id, client_id), position


def _header_without_client_id(frame: memoryview, error: Exception) -> tuple[RequestHeader, int]:
    if len(frame) >= _REQUEST_START.size:
        api_key, version, correlation_id = _REQUEST_START.unpack_from(frame)
        if api_key == _CONTROLLED_SHUTDOWN and version == 0:
            return RequestHeader(api_key, version, correlation_id, None), _REQUEST_START.size
    raise MalformedInput("request header: shorter than its fields") from error


class ResponseEncoder:
    """Encodes responses of one API in one version as the parts of a frame, length and header included."""

    def __init__(self, api: Api, version: int) -> None:
        self._encode: Encoder[Any] = encoder(api.response, version)
        self._tagged = api.is_flexible(version) and api.key != _API_VERSIONS
        """Whether the header has tagged fields (version 1). None are sent."""

    def encode(self, correlation_id: int, response: object) -> list[Part]:
        parts: list[Part] = []
        self._encode(response, parts)
        head = BytesWriter()
        write_i32_be(head, parts_size(parts) + (5 if self._tagged else 4))
        write_i32_be(head, correlation_id)
        if self._tagged:
            head.append(0)
        _begin(parts, head)
        return parts


def _begin(parts: list[Part], head: BytesWriter) -> None:
    """Put the head of a frame before its message, in the same part if that is a small buffer."""
    first = parts[0] if parts else None
    if isinstance(first, (bytes, bytearray)) and len(first) <= JOIN_BYTES_MAX:
        head.write(first)
        parts[0] = head.getvalue()
    else:
        parts.insert(0, head.getvalue())


def encode_response(api: Api, version: int, correlation_id: int, response: object) -> list[Part]:
    """A response as the parts of a frame, length and header included."""
    return ResponseEncoder(api, version).encode(correlation_id, response)


class EncodedRequest(NamedTuple):
    """The encoded body of a request that goes to many brokers."""

    body: bytes


def encode_request(api: Api, version: int, correlation_id: int, client_id: str | None, request: object) -> list[Part]:
    """A request as the parts of a frame, length and header included."""
    if api.key == _CONTROLLED_SHUTDOWN and version == 0:
        header = _REQUEST_START.pack(api.key, version, correlation_id)
    else:
        name = b"" if client_id is None else client_id.encode()
        client_id_size = -1 if client_id is None else len(name)
        header = _REQUEST_V1.pack(api.key, version, correlation_id, client_id_size) + name
        if api.is_flexible(version):
            header += b"\0"
    parts: list[Part] = []
    if isinstance(request, EncodedRequest):
        parts.append(request.body)
    else:
        encoder(type(request), version)(request, parts)
    head = BytesWriter()
    write_i32_be(head, len(header) + parts_size(parts))
    head.write(header)
    _begin(parts, head)
    return parts


def decode_response(api: Api, version: int, frame: memoryview) -> tuple[int, Any]:
    """The correlation id and the message of a response's frame (without its length)."""
    if len(frame) < _CORRELATION_ID.size:
        raise MalformedInput("response header: shorter than its fields")
    correlation_id: int = _CORRELATION_ID.unpack_from(frame)[0]
    position = _CORRELATION_ID.size
    if api.is_flexible(version) and api.key != _API_VERSIONS:
        position = skip_tags(frame, position)
    response, position = decoder(api.response, version)(frame, position)
    if position != len(frame):
        raise MalformedInput(f"{api.name} response v{version}: {len(frame) - position} bytes too many")
    return correlation_id, response
