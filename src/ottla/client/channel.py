"""One blocking connection to one broker: TLS, version negotiation, SASL, requests and responses in order."""

from __future__ import annotations

import os
import socket
import ssl
from time import monotonic
from typing import Any

from ottla.client.options import ClientOptions, InvalidOption
from ottla.client.pipeline import RESPONSE_BYTES_MAX, Pipeline
from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.ports import FileRange
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.registry import API_BY_NAME, Api


class BrokerAway(ConnectionError):
    """No broker answers. The message has the addresses that were tried and the error of each."""


class Untrusted(BrokerAway):
    """A broker's certificate is not trusted. Not retried."""


class Channel:
    """One connection to one broker, after ApiVersions and, if configured, SASL authentication."""

    def __init__(self, host: str, port: int, options: ClientOptions, timeout_s: float) -> None:
        self.address = f"{host}:{port}"
        self._pipeline = Pipeline(options.client_id)
        self._versions: dict[int, tuple[int, int]] = {}
        self._socket = socket.create_connection((host, port), timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if options.encrypted:
                self._socket = ssl_context(options).wrap_socket(
                    self._socket, server_hostname=host if options.ssl_check_host else None
                )
            self._negotiate(timeout_s)
            if options.authenticates:
                self._authenticate(options, timeout_s)
        except BaseException:
            self.close()
            raise

    def _negotiate(self, timeout_s: float) -> None:
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version="0")
        api = API_BY_NAME["api_versions"]
        answer = self.exchange(api, 3, request, timeout_s)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = self.exchange(api, 0, ApiVersionsRequest(), timeout_s)
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(error_code(answer.error_code), f"{self.address} does not answer ApiVersions")
        self._versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}

    def _authenticate(self, options: ClientOptions, timeout_s: float) -> None:
        handshake = self.exchange(
            API_BY_NAME["sasl_handshake"], 1, SaslHandshakeRequest(mechanism=options.sasl_mechanism), timeout_s
        )
        if handshake.error_code != ErrorCode.NONE:
            offered = ", ".join(handshake.mechanisms)
            raise KafkaError(error_code(handshake.error_code), f"{self.address} offers {offered}, not {options.sasl_mechanism}")
        if options.sasl_mechanism == "PLAIN":
            self._sasl(f"\0{options.sasl_username}\0{options.sasl_password}".encode(), timeout_s)
            return
        from ottla.client.scram import Scram, ScramError

        scram = Scram(options.sasl_mechanism, options.sasl_username, options.sasl_password, os.urandom(24))
        try:
            scram.check_last(self._sasl(scram.final(self._sasl(scram.first(), timeout_s)), timeout_s))
        except ScramError as error:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"{self.address}: {error}") from None

    def _sasl(self, token: bytes, timeout_s: float) -> bytes:
        api = API_BY_NAME["sasl_authenticate"]
        answer = self.exchange(api, self.version_of(api), SaslAuthenticateRequest(auth_bytes=token), timeout_s)
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(error_code(answer.error_code), f"{self.address}: {answer.error_message or 'authentication failed'}")
        return bytes(answer.auth_bytes)

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
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def ssl_context(options: ClientOptions) -> ssl.SSLContext:
    """InvalidOption for a store that cannot be read: a retry would not help."""
    from ottla.client import stores  # imported only with TLS: it slows down the start of a worker

    name, value = "kafka.ssl.truststore.location", options.ssl_trust_file or "…"
    try:
        trusted = options.ssl_trust_pem
        if trusted is None and options.ssl_trust_file is not None:
            trusted = stores.certificates(options.ssl_trust_file, options.ssl_trust_password)
        # Without a trust store: the certificates that the machine trusts.
        context = ssl.create_default_context(cadata=trusted)
        if not options.ssl_check_host:
            context.check_hostname = False
        name, value = "kafka.ssl.keystore.location", options.ssl_key_file or "…"
        if options.ssl_key_pem is not None:
            stores.load_chain(context, options.ssl_key_pem, options.ssl_key_password)
        elif options.ssl_key_file is not None:
            pem, password = stores.key_and_chain(options.ssl_key_file, options.ssl_key_file_password, options.ssl_key_password)
            stores.load_chain(context, pem, password)
    except stores.BadStore as error:
        raise InvalidOption(name, value, str(error)) from None
    except ssl.SSLError as error:
        raise InvalidOption(name, value, f"OpenSSL does not take it: {error.reason or error}") from None
    return context
