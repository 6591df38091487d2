"""One blocking connection to one broker: TLS, version negotiation, SASL, requests and responses in order."""

from __future__ import annotations

import random
import socket
import ssl
from time import monotonic
from typing import Any

from ottla.client.login import LoginRefused, authenticate_version, dialogue, new_mechanism, renewal_s
from ottla.client.options import ClientOptions
from ottla.client.pipeline import RESPONSE_BYTES_MAX, Pipeline
from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.ports import FileRange
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.registry import API_BY_NAME, Api

_TLS_ALERT = 0x1503
"""The first two bytes of a TLS alert, in answer to bytes that are no TLS."""


_HANDSHAKE_ENDED = "it ended the TLS handshake: check that the port speaks TLS, and whether it wants a certificate of the client"


class BrokerAway(ConnectionError):
    """No broker answers. The message has the addresses that were tried and the error of each."""


class Untrusted(BrokerAway):
    """A broker's certificate is not trusted. Not retried."""


def speaks_tls(protocol: str) -> str:
    """What is wrong with a `security.protocol` that has no TLS."""
    wanted = "SASL_SSL" if protocol.startswith("SASL_") else "SSL or SASL_SSL"
    return f"this port speaks TLS, and security.protocol is {protocol}, not {wanted}"


class WrongProtocol(BrokerAway):
    """A broker speaks TLS and the client does not, or the reverse. Not retried."""


class Channel:
    """One connection to one broker, after ApiVersions and, if configured, SASL authentication.

    The login is repeated before the session that the broker granted ends, between two exchanges.
    """

    def __init__(
        self, host: str, port: int, options: ClientOptions, timeout_s: float, *, connect_timeout_s: float | None = None
    ) -> None:
        """`connect_timeout_s` limits only the connection, `timeout_s` each exchange after it too."""
        self.address = f"{host}:{port}"
        self._host = host
        self._security = security = options.security
        self._pipeline = Pipeline(options.client_id)
        self._versions: dict[int, tuple[int, int]] = {}
        self._renew_at = float("inf")
        self._socket = socket.create_connection((host, port), timeout_s if connect_timeout_s is None else connect_timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(timeout_s)
            if security.encrypted:
                self._encrypt()
            self._negotiate(timeout_s)
            if security.authenticates:
                self._log_in(timeout_s)
        except BaseException:
            self.close()
            raise

    def _encrypt(self) -> None:
        from ottla.client.tls import client_context  # imported only with TLS: it slows down the start of a worker

        tls = self._security.tls
        context = client_context(tls)
        try:
            self._socket = context.wrap_socket(self._socket, server_hostname=self._host if tls.check_host else None)
        except ssl.SSLError as error:
            if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
                raise WrongProtocol(
                    f"{self.address}: this port does not speak TLS: check security.protocol={self._security.protocol}"
                ) from error
            if isinstance(error, ssl.SSLEOFError):
                raise ConnectionResetError(_HANDSHAKE_ENDED) from error
            raise
        except ConnectionResetError as error:
            raise ConnectionResetError(_HANDSHAKE_ENDED) from error
        except TimeoutError as error:
            raise TimeoutError("no answer to the TLS handshake: check that the port speaks TLS") from error

    def _negotiate(self, timeout_s: float) -> None:
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version="0")
        api = API_BY_NAME["api_versions"]
        answer = self.exchange(api, 3, request, timeout_s)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = self.exchange(api, 0, ApiVersionsRequest(), timeout_s)
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(error_code(answer.error_code), f"{self.address} does not answer ApiVersions")
        self._versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}

    def _log_in(self, timeout_s: float) -> None:
        security = self._security
        try:
            version = authenticate_version(self._versions)
            steps = dialogue(security.mechanism, new_mechanism(security, self._host), version)
            answer: Any = None
            try:
                while True:
                    name, version, request = steps.send(answer)
                    self._send(API_BY_NAME[name], version, request, timeout_s)
                    answer = self.receive(timeout_s)
            except StopIteration as end:
                lifetime_ms: int = end.value
        except LoginRefused as error:
            raise LoginRefused(f"{self.address}: {error.detail}", error.code) from None
        self._renew_at = monotonic() + renewal_s(lifetime_ms, random.random()) if lifetime_ms > 0 else float("inf")

    def version_of(self, api: Api, max_version: int | None = None) -> int:
        """The highest version that both sides support, at most `max_version`."""
        ours = api.max_version if max_version is None else min(api.max_version, max_version)
        lowest, highest = self._versions.get(api.key, (0, -1))
        if min(ours, highest) < max(lowest, api.min_version):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{self.address} has no common version of {api.name}")
        return min(ours, highest)

    def exchange(self, api: Api, version: int, request: object, timeout_s: float) -> Any:
        """Send a request and wait for the response. Any failure closes the connection."""
        assert not self._pipeline, "a response is still pending"
        self.send(api, version, request, timeout_s)
        return self.receive(timeout_s)

    def send(self, api: Api, version: int, request: object, timeout_s: float) -> None:
        """Send a request. The responses of several requests are received in their order."""
        if monotonic() >= self._renew_at and not self._pipeline:
            try:
                self._log_in(timeout_s)
            except BaseException:
                self.close()
                raise
        self._send(api, version, request, timeout_s)

    def _send(self, api: Api, version: int, request: object, timeout_s: float) -> None:
        _, parts = self._pipeline.request(api, version, request)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(b"".join(part for part in parts if not isinstance(part, FileRange)))
        except BaseException:
            self.close()
            raise

    def receive(self, timeout_s: float) -> Any:
        try:
            until = monotonic() + timeout_s
            size = int.from_bytes(self._read(4, until), "big", signed=True)
            if size >> 16 == _TLS_ALERT:
                raise WrongProtocol(f"{self.address}: {speaks_tls(self._security.protocol)}")
            if not 4 <= size <= RESPONSE_BYTES_MAX:
                raise MalformedInput(f"a response of {size} bytes")
            return self._pipeline.response(self._read(size, until))[1]
        except MalformedInput as error:
            self.close()
            raise ConnectionAbortedError(f"does not answer as a Kafka broker does: {error}") from None
        except BaseException:
            self.close()
            raise

    def _read(self, size: int, until: float) -> memoryview:
        memory = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            self._socket.settimeout(max(until - monotonic(), 0.001))
            count = self._socket.recv_into(memory[filled:])
            if count == 0:
                raise ConnectionResetError("the broker closed the connection")
            filled += count
        return memory

    def close(self) -> None:
        self._socket.close()


def error_code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def reason_of(error: BaseException) -> str:
    if isinstance(error, BrokerAway):
        return str(error).partition(": ")[2] or str(error)
    if isinstance(error, TimeoutError):
        return str(error) if "TLS" in str(error) else "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
