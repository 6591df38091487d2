"""One request of the protocol on a plain socket.

For the few requests librdkafka will not send, such as the settings of all brokers at once (a resource with an empty name).
Only without encryption and login: over those there is no way but the library.
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
"""What people use where the connection is not plain."""


def call(
    connection: Connection,
    api_name: str,
    version: int,
    request: object,
    response: type[R],
    address: tuple[str, int] | None = None,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> R:
    """The broker's answer: of the one at `address`, or of any. `version` must be one that every broker of interest has.

    One of several that takes connections and hangs is given its share of the time, so that the others are asked too.
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
            raise Failure(f"{host}:{port} does not answer as a Kafka broker does ({error})") from None
    where = "{}:{}".format(*address) if address is not None else connection.bootstrap_servers
    raise Failure(f"{where} does not answer {api_name}", code="BROKER_AWAY")


def error_name(code: int) -> str:
    """Of an error in an answer; a newer broker may have one that is not known here."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def _read(channel: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        received = channel.recv(count - len(data))
        if not received:
            raise EOFError
        data += received
    return bytes(data)
