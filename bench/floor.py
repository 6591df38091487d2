"""Lower bounds: the system time that the kernel needs for a broker's work, whatever the broker does.

    python -m bench.floor           # send 1 GB in fetches of 1 MB with sendfile, over one and six connections
    python -m bench.floor append    # append ten records to one file, and to 1,000 files in turn
    python -m bench.floor fetch     # read ten records at random places of one file, and of random files of 1,000

Each is a loop that knows only the shape of one reply. The client is the load generator (bench/load.py). System time is the
figure; user time is that of the loop.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from bench import ROOT
from bench.load import values
from ottla.runtime.congestion import begin_unpaced
from tests.kit.raw import batch, produce_frame

BATCH_BYTES = 61_007
"""Written as a broker would: where a write ends decides how large the pieces of the page cache are that `sendfile` goes over."""
REPLY_BYTES = (1 << 20) // BATCH_BYTES * BATCH_BYTES
FILE_BYTES = 100_000_000 // REPLY_BYTES * REPLY_BYTES
TOPIC = "floor"
BATCH_RECORDS = 10
MANY = 1_000
REQUESTS = 20_000
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
    begin_unpaced(listener)
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


Answer = Callable[[bytes], bytes]


def serve_small(prepare: Callable[[], Answer], tell: Connection) -> None:
    """Until told to end; says what it used at each word."""
    answer = prepare()
    listener = socket.create_server(("127.0.0.1", 0))
    tell.send(listener.getsockname()[1])
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    poll.register(tell.fileno(), select.EPOLLIN)
    open_sockets: dict[int, socket.socket] = {}
    while True:
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                accepted, _ = listener.accept()
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                open_sockets[accepted.fileno()] = accepted
                poll.register(accepted, select.EPOLLIN)
            elif fd == tell.fileno():
                if not tell.recv():
                    return
                used = resource.getrusage(resource.RUSAGE_SELF)
                tell.send((used.ru_utime, used.ru_stime))
            else:
                frame = open_sockets[fd].recv(1 << 16)  # small ones, one at a time: whole
                if frame:
                    open_sockets[fd].send(answer(frame))
                else:
                    poll.unregister(fd)
                    open_sockets.pop(fd).close()


def one_and_many(name: str, prepare: Callable[[int], Answer], kind: str, options: Callable[[int], dict[str, Any]]) -> None:
    """A load on one file and on 1,000, in turn; the lowest of both."""
    servers: dict[int, tuple[Connection, int]] = {}
    for partitions in (1, MANY):
        ours, theirs = get_context("fork").Pipe()
        get_context("fork").Process(target=serve_small, args=(partial(prepare, partitions), theirs)).start()
        servers[partitions] = (ours, ours.recv())
    found: dict[int, list[tuple[float, float]]] = {partitions: [] for partitions in servers}
    for turn in range(5):
        for partitions, (tell, port) in servers.items():
            tell.send(True)
            before = tell.recv()
            given = {"bootstrap": f"127.0.0.1:{port}", "partitions": partitions, "requests": REQUESTS, "topic": TOPIC}
            command = [sys.executable, "-m", "bench.load", kind, json.dumps(given | options(partitions))]
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
            tell.send(True)
            after = tell.recv()
            if turn:  # the first makes the files, and warms up
                user_s, system_s = after[0] - before[0], after[1] - before[1]
                found[partitions].append((system_s / REQUESTS * 1e6, user_s / REQUESTS * 1e6))
    for partitions, looks in found.items():
        system_us, user_us = min(looks, key=sum)
        print(f"{name} {partitions:,} files: system {system_us:.1f} us, user {user_us:.1f} us a request")
    for tell, _ in servers.values():
        tell.send(False)


def appends(directory: str) -> None:
    """The load of "append: 1,000 partitions / 1 partition", in turn on both."""
    records = batch(values(BATCH_RECORDS, 100))
    records_at = len(produce_frame(TOPIC, 0, records, 1)) - len(records)
    reply = struct.pack(">i", 50 + len(TOPIC)) + bytes(50 + len(TOPIC))

    def prepare(partitions: int) -> Answer:
        place = f"{directory}/{partitions}-"
        files = [os.open(f"{place}{number}", os.O_RDWR | os.O_CREAT, 0o644) for number in range(partitions)]
        ends = [0] * partitions

        def answer(frame: bytes) -> bytes:
            (partition,) = struct.unpack_from(">i", frame, records_at - 8)
            ends[partition] += os.pwrite(files[partition], memoryview(frame)[records_at:], ends[partition])
            return reply

        return answer

    shape: dict[str, Any] = {"record_bytes": 100, "batch_records": BATCH_RECORDS, "connections": 8}
    one_and_many("append to", prepare, "produce", lambda _: shape)


def fetches(directory: str) -> None:
    """The load of "fetch: 1,000 partitions / 1 partition", on files of the same shape. Where a batch lies is known."""
    records = batch(values(BATCH_RECORDS, 100))
    size = len(records)
    head = bytearray(70 + len(TOPIC))
    struct.pack_into(">i", head, 0, len(head) - 4 + size)
    struct.pack_into(">i", head, len(head) - 4, size)
    batches = {1: 1_000, MANY: 10}

    def prepare(partitions: int) -> Answer:
        files = [os.open(f"{directory}/{partitions}-{number}", os.O_RDWR | os.O_CREAT, 0o644) for number in range(partitions)]
        for number in range(batches[partitions]):
            for file in files:
                os.pwrite(file, records, number * size)

        def answer(frame: bytes) -> bytes:
            partition, _, offset = struct.unpack_from(">iiq", frame, len(frame) - 34)
            return bytes(head) + os.pread(files[partition], size, offset // BATCH_RECORDS * size)

        return answer

    def options(partitions: int) -> dict[str, Any]:
        layout = {"batch_bytes": 1, "batch_records": BATCH_RECORDS, "batches": batches[partitions]}
        return {"layout": layout, "connections": 8, "max_bytes": 1, "anywhere": True}

    one_and_many("fetch from", prepare, "fetch", options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("append", "fetch"), help="default: sending")
    what = parser.parse_args().what
    if what is not None:
        with tempfile.TemporaryDirectory(dir=os.getcwd()) as directory:
            (appends if what == "append" else fetches)(directory)
        return
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
