"""Lower bound for produce with kcat: the system time that the kernel needs, whatever the broker does.

    python -m bench.floor_produce           # lines of 100 bytes and of 1 KB, three times each

A loop that answers ApiVersions and Metadata, receives each Produce request into the same buffer, appends its records to a file
and replies. It inspects no record and computes no checksum. System time is the figure; user time is that of the loop.
"""

from __future__ import annotations

import os
import resource
import socket
import struct
import subprocess
import tempfile
import threading
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from bench import answer_help
from bench.measure import PARTITIONS, lines_file, touch_memory
from ottla.broker.network.request_memory import new_buffer
from ottla.protocol.headers import decode_request_header, encode_response
from ottla.protocol.messages import metadata
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.registry import API_BY_KEY
from tests.kit.peers import kcat

TOPIC = "floor"
LINES_BYTES = 400_000_000
REQUEST_BYTES_MAX = 2 << 20
PRODUCE, METADATA, API_VERSIONS = 0, 3, 18
SERVED = {PRODUCE: (7, 7), METADATA: (4, 4), API_VERSIONS: (0, 3)}
NAME = struct.pack(">h", len(TOPIC)) + TOPIC.encode()


def greeting(frame: memoryview, port: int) -> bytes:
    """The answer to whatever is no Produce."""
    header, _ = decode_request_header(frame)
    response: object
    if header.api_key == API_VERSIONS:
        response = ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=key, min_version=first, max_version=last) for key, (first, last) in SERVED.items()]
        )
    else:
        response = metadata.MetadataResponse(
            brokers=[metadata.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=port)],
            controller_id=1,
            topics=[
                metadata.MetadataResponseTopic(
                    name=TOPIC,
                    partitions=[
                        metadata.MetadataResponsePartition(partition_index=at, leader_id=1, replica_nodes=[1], isr_nodes=[1])
                        for at in range(PARTITIONS)
                    ],
                )
            ],
        )
    parts = encode_response(API_BY_KEY[header.api_key], header.api_version, header.correlation_id, response)
    return b"".join(parts)  # type: ignore[arg-type]


def serve(directory: str, tell: Connection) -> None:
    """Until told to end; says then what it used."""
    files = [os.open(f"{directory}/{number}", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644) for number in range(PARTITIONS)]
    ends = [0] * PARTITIONS
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def answer(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = new_buffer(REQUEST_BYTES_MAX)
        while connection.recv_into(buffer[:4], 4, socket.MSG_WAITALL) == 4:
            (size,) = struct.unpack_from(">i", buffer)
            if connection.recv_into(buffer[:size], size, socket.MSG_WAITALL) < size:
                return
            key, _, correlation_id, name_size = struct.unpack_from(">hhih", buffer)
            if key != PRODUCE:
                connection.sendall(greeting(buffer[:size], port))
                continue
            at = 10 + name_size + 2 + 2 + 4 + 4 + len(NAME) + 4  # no transactional id, acks, timeout, one topic, one partition
            (partition,) = struct.unpack_from(">i", buffer, at)
            ends[partition] += os.pwrite(files[partition], buffer[at + 8 : size], ends[partition])
            body = struct.pack(">ii", correlation_id, 1) + NAME + struct.pack(">iihqqqi", 1, partition, 0, 0, -1, 0, 0)
            connection.sendall(struct.pack(">i", len(body)) + body)

    def accept() -> None:
        while True:
            threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    tell.send(port)
    tell.recv()
    used = resource.getrusage(resource.RUSAGE_SELF)
    tell.send((used.ru_utime, used.ru_stime, sum(ends)))


def measure(lines: Path) -> tuple[float, float]:
    """System and user seconds for a gigabyte."""
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as directory:
        ours, theirs = get_context("fork").Pipe()
        server = get_context("fork").Process(target=serve, args=(directory, theirs), daemon=True)
        server.start()
        port = ours.recv()
        touch_memory(2 * LINES_BYTES)
        command = [kcat(), "-b", f"127.0.0.1:{port}", "-P", "-t", TOPIC, "-X", "acks=all", "-l", str(lines)]
        subprocess.run(command, check=True, capture_output=True)
        ours.send(None)
        user_s, system_s, written = ours.recv()
        server.join()
    assert written > LINES_BYTES, written
    return system_s / LINES_BYTES * 1e9, user_s / LINES_BYTES * 1e9


def main() -> None:
    answer_help(__doc__)
    with tempfile.TemporaryDirectory() as directory:
        for size in (100, 1_000):
            lines = lines_file(Path(directory), size, LINES_BYTES // size)
            looks = sorted(measure(lines) for _ in range(3))
            told = ", ".join(f"{system_s:.2f}" for system_s, _ in looks)
            print(f"lines of {size} bytes: system {looks[0][0]:.2f} s/GB ({told}), user {looks[0][1]:.2f}", flush=True)


if __name__ == "__main__":
    main()
