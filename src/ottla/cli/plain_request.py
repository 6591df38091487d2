"""Sends one request over a plain socket, for the few requests that librdkafka does not send.

Only for PLAINTEXT listeners: encryption and authentication are left to librdkafka.
"""

from __future__ import annotations

import socket
from typing import TypeVar, cast

from ottla.cli.connection import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, Connection, split_servers
from ottla.cli.failure import Failure
from ottla.errors import ErrorCode, MalformedInput
from ottla.ports import FileRange
from ottla.protocol.headers import decode_response, encode_request
from ottla.protocol.registry import API_BY_NAME

R = TypeVar("R")

_RESPONSE_BYTES_MAX = 64 * 1024 * 1024

_TOOLS = {
    "describe_configs": "kafka-configs",
    "incremental_alter_configs": "kafka-configs",
    "offset_delete": "kafka-consumer-groups --delete-offsets",
}
_OTHER_TOOLS = "kafka-topics, kafka-reassign-partitions or kafka-transactions"
"""The commands of Kafka to use if the connection is not PLAINTEXT."""


def call(
    connection: Connection,
    api_name: str,
    version: int,
    request: object,
    response: type[R],
    address: tuple[str, int] | None = None,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> R:
    """The response of the broker at `address`, or of any bootstrap server. All brokers must support `version`.

    The bootstrap servers share the timeout, so that one that hangs leaves time for the others.
    """
    connection.require_plaintext(_TOOLS.get(api_name, _OTHER_TOOLS))
    connection.reach()
    api = API_BY_NAME[api_name]
    frame = b"".join(
        bytes(part) for part in encode_request(api, version, 1, "ottla-cli", request) if not isinstance(part, FileRange)
    )
    asked = [address] if address is not None else split_servers(connection.bootstrap_servers)
    for host, port in asked:
        try:
            with socket.create_connection((host, port), CONNECT_TIMEOUT_S) as channel:
                channel.settimeout(timeout_s / len(asked))
                channel.sendall(frame)
                size = int.from_bytes(_read(channel, 4), "big")
                if size > _RESPONSE_BYTES_MAX:
                    raise MalformedInput(f"a response of {size} bytes")
                return cast(R, decode_response(api, version, memoryview(_read(channel, size)))[1])
        except (OSError, EOFError):
            continue
        except MalformedInput as error:
            raise Failure(f"{host}:{port} does not answer like a Kafka broker ({error})") from None
    where = "{}:{}".format(*address) if address is not None else connection.bootstrap_servers
    raise Failure(f"{where} does not answer {api_name}", code="BROKER_AWAY")


def error_name(code: int) -> str:
    """The name of an error code. A newer broker may send an unknown code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def raise_if_error(code: int, subject: str, message: str | None = None) -> None:
    """A Failure about `subject` if a reply holds an error code; `message` is the broker's own text."""
    if code:
        name = error_name(code)
        raise Failure(f"{subject}: {message or name}", code=name)


def _read(channel: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        received = channel.recv(count - len(data))
        if not received:
            raise EOFError
        data += received
    return bytes(data)
