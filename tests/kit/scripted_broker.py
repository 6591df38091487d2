"""A broker that answers each request with what a test has written down."""

from __future__ import annotations

import socket
import ssl
import threading
from typing import Any

from ottla.errors import ErrorCode
from ottla.ports import FileRange
from ottla.protocol.headers import decode_request_header, encode_response
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.registry import API_BY_KEY
from ottla.wire.codec import decoder

CLOSE = "close"
SILENCE = "silence"
Answer = object


class ScriptedBroker:
    """Answers each API with what stands next in its list; the last entry stays."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._context = context
        self.port: int = self._listener.getsockname()[1]
        self.asked: list[tuple[str, int, Any]] = []
        self.highest = {3: 4}
        self.script: dict[str, list[Answer]] = {"metadata": [self.metadata()]}
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def metadata(self, *, error_code: int = 0, leader: int = 1, brokers: dict[int, int] | None = None) -> MetadataResponse:
        brokers = {1: self.port} if brokers is None else brokers
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=node, host="127.0.0.1", port=port) for node, port in brokers.items()],
            topics=[
                MetadataResponseTopic(
                    name="t",
                    error_code=error_code,
                    partitions=[MetadataResponsePartition(partition_index=0, leader_id=leader)],
                )
            ],
        )

    def names(self) -> list[str]:
        return [name for name, _, _ in self.asked if name != "api_versions"]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if self._context is not None:
                try:
                    connection = self._context.wrap_socket(connection, server_side=True)
                except OSError:
                    connection.close()
                    continue  # a client that does not trust us
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while len(size := stream.read(4)) == 4:
                frame = memoryview(stream.read(int.from_bytes(size, "big")))
                header, position = decode_request_header(frame)
                api = API_BY_KEY[header.api_key]
                request = decoder(api.request, header.api_version)(frame, position)[0]
                self.asked.append((api.name, header.api_version, request))
                answer = self._answer(api.name)
                if answer is CLOSE:
                    return
                if answer is SILENCE:
                    continue
                if callable(answer):
                    answer = answer(request)
                refused = getattr(answer, "error_code", 0) == ErrorCode.UNSUPPORTED_VERSION
                version = 0 if refused and api.name == "api_versions" else header.api_version
                parts = encode_response(api, version, header.correlation_id, answer)
                connection.sendall(b"".join(part for part in parts if not isinstance(part, FileRange)))

    def _answer(self, name: str) -> Answer:
        answers = self.script.get(name)
        if answers:
            return answers.pop(0) if len(answers) > 1 else answers[0]
        assert name == "api_versions", name
        return ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=key, min_version=0, max_version=self.highest.get(key, 3)) for key in API_BY_KEY],
        )

    def close(self) -> None:
        self._listener.close()
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # gone already
