"""Sends one request over a connection of its own, for the requests that librdkafka does not send."""

from __future__ import annotations

from typing import TypeVar, cast

from ottla.cli.connection import REQUEST_TIMEOUT_S, Connection, split_servers
from ottla.cli.failure import Failure, hint_for
from ottla.errors import KafkaError, error_name
from ottla.protocol.registry import API_BY_NAME

R = TypeVar("R")


def call(
    connection: Connection,
    api_name: str,
    version: int | None,
    request: object,
    response: type[R],
    address: tuple[str, int] | None = None,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> R:
    """The response of the broker at `address`, or of any bootstrap server. All brokers must support `version`; None is the
    highest that the broker and we know.

    The bootstrap servers share the timeout, so that one that hangs leaves time for the others.
    """
    connection.reach()
    asked = [address] if address is not None else split_servers(connection.bootstrap_servers)
    for host, port in asked:
        try:
            channel = connection.channel(host, port, timeout_s / len(asked))
            try:
                api = API_BY_NAME[api_name]
                chosen = channel.version_of(api) if version is None else version
                return cast(R, channel.exchange(api, chosen, request, timeout_s / len(asked)))
            finally:
                channel.close()
        except KafkaError as error:
            raise Failure(str(error.detail), code=error.code.name) from None
        except ConnectionAbortedError as error:
            raise Failure(f"{host}:{port} {error}") from None
        except OSError:
            continue
    where = "{}:{}".format(*address) if address is not None else connection.bootstrap_servers
    raise Failure(f"{where} does not answer {api_name}", code="BROKER_AWAY")


def raise_if_error(code: int, subject: str, message: str | None = None) -> None:
    """A Failure about `subject` if a reply holds an error code; `message` is the broker's own text."""
    if code:
        name = error_name(code)
        raise Failure(f"{subject}: {message or name}", hint_for(name), code=name)
