"""`python -m bench.floor`: what the kernel alone asks for sending a gigabyte in fetches of a megabyte. No broker can be below it.

A loop that knows nothing of Kafka but the shape of one reply: whatever comes from a client, it answers with a head and 1 MB by
`sendfile`. The client is the raw generator of the benchmark (bench/load.py), over one connection and over six. System time is the
figure; the user time is that of this loop.
"""

from __future__ import annotations

import json
import os
import resource
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection

from bench import ROOT

BATCH_BYTES = 61_007
"""Written as a broker would: where a write ends decides how large the pieces of the page cache are that `sendfile` goes over."""
REPLY_BYTES = (1 << 20) // BATCH_BYTES * BATCH_BYTES
FILE_BYTES = 100_000_000 // REPLY_BYTES * REPLY_BYTES
TOPIC = "floor"
SEND_BUFFERS = (102_400, 262_144, 0)
HEAD = bytearray(70 + len(TOPIC))  # where the generator looks for them: the size of all, and last the size of the records
struct.pack_into(">i", HEAD, 0, len(HEAD) - 4 + REPLY_BYTES)
struct.pack_into(">i", HEAD, len(HEAD) - 4, REPLY_BYTES)


def serve(path: str, send_buffer_bytes: int, tell: Connection) -> None:
    """Until the last client has gone."""
    file = os.open(path, os.O_RDONLY)
    listener = socket.create_server(("127.0.0.1", 0))
    if send_buffer_bytes:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    tell.send(listener.getsockname()[1])
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    open_sockets: dict[int, socket.socket] = {}
    position: dict[int, int] = {}
    left: dict[int, int] = {}
    begun = False
    while open_sockets or not begun:
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                accepted, _ = listener.accept()
                accepted.setblocking(False)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                fd = accepted.fileno()
                open_sockets[fd], position[fd], left[fd], begun = accepted, 0, 0, True
                poll.register(fd, select.EPOLLIN)
                continue
            if not left[fd]:
                if not open_sockets[fd].recv(1 << 16):
                    poll.unregister(fd)
                    open_sockets.pop(fd).close()
                    continue
                open_sockets[fd].send(HEAD, socket.MSG_MORE)
                left[fd] = REPLY_BYTES
            waited = left[fd] < REPLY_BYTES
            try:
                while left[fd]:
                    sent = os.sendfile(fd, file, position[fd], left[fd])
                    left[fd] -= sent
                    position[fd] = (position[fd] + sent) % FILE_BYTES
            except BlockingIOError:
                poll.modify(fd, select.EPOLLOUT)
            else:
                if waited:
                    poll.modify(fd, select.EPOLLIN)
    used = resource.getrusage(resource.RUSAGE_SELF)
    tell.send((used.ru_utime, used.ru_stime))


def measure(path: str, connections: int, send_buffer_bytes: int, gigabytes: float = 2) -> tuple[float, float, float]:
    """User and system seconds for a gigabyte, MB/s."""
    ours, theirs = get_context("fork").Pipe()
    server = get_context("fork").Process(target=serve, args=(path, send_buffer_bytes, theirs))
    server.start()
    port = ours.recv()
    replies = int(gigabytes * 1e9 / REPLY_BYTES / connections)
    layout = {"batch_bytes": BATCH_BYTES, "batch_records": 1, "batches": replies * (REPLY_BYTES // BATCH_BYTES)}
    options = {"bootstrap": f"127.0.0.1:{port}", "topic": TOPIC, "partitions": connections, "connections": connections}
    command = [sys.executable, "-m", "bench.load", "fetch", json.dumps({**options, "layout": layout})]
    done = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    user_s, system_s = ours.recv()
    server.join()
    scale = 1e9 / done["bytes"]
    return user_s * scale, system_s * scale, done["bytes"] / done["seconds"] / 1e6


def main() -> None:
    with tempfile.NamedTemporaryFile(dir=os.getcwd()) as file:
        batch = os.urandom(BATCH_BYTES)
        for position in range(0, FILE_BYTES, BATCH_BYTES):
            os.pwrite(file.fileno(), batch, position)
        os.fsync(file.fileno())
        time.sleep(1)
        for connections in (1, 6):
            for send_buffer_bytes in SEND_BUFFERS:
                runs = sorted(measure(file.name, connections, send_buffer_bytes) for _ in range(3))
                user_s, system_s, rate = min(runs, key=lambda run: run[1])
                name = f"{send_buffer_bytes >> 10} KB" if send_buffer_bytes else "the system's own"
                print(
                    f"{connections} connections, send buffer {name}: system {system_s:.3f} s/GB "
                    f"({', '.join(f'{run[1]:.3f}' for run in runs)}), user {user_s:.3f}, {rate:,.0f} MB/s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
