"""Sends changed requests to a broker that runs: before, during and after a login, in the clear and inside TLS.

    python -m tests.fuzz.fuzz_frames [frames] [seed]

A frame counts once the broker has answered it or closed its connection. The frames are the golden requests, with bytes changed,
removed, inserted or replaced by numbers that are at a limit. Meanwhile an honest client on each listener must have its answers.
At the end the broker must live, have no connection and no descriptor more than before, hold little more memory than after the
first tenth, and have logged no traceback. If not, the log stays in build/fuzz_frames.log.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import ssl
import struct
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from ottla.broker.handlers import served
from ottla.protocol.registry import API_BY_NAME
from ottla.testing import Broker
from tests.kit.certificates import Authority

ROOT = Path(__file__).parents[2]
STAGES = ("before", "during", "after")
WORKERS = 24
BURST = 40
LIMITS = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff" * 10, b"\x00\x00\x00\x00", b"\x7f\xff", b"\x80")
AFTER = (*[0] * 10, 1, 1, 1, 2)
"""How many changes a frame has after a login, any of them."""
PATIENCE_S = 1
"""A changed request may wait for long, such as a Fetch: then its connection is given up."""
HONEST_S = 30
GROWTH_BYTES_MAX = 96 << 20
USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_root="root-secret" user_ada="ada-secret" user_eve="eve-secret";'
)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOKENS = (b"\0eve\0eve-secret", b"n,,n=eve,r=nonce", b"c=biws,r=nonce,p=AAAA", b"n,a=x,n=a,r=b,tokenauth=true", b"")


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request(name: str, version: int, message: bytes, number: int = 1) -> bytes:
    """A request without its length."""
    api = API_BY_NAME[name]
    tags = b"\0" if api.flexible_from is not None and version >= api.flexible_from else b""
    return struct.pack(">hhih", api.key, version, number, 4) + b"fuzz" + tags + message


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def data(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


VERSIONS = frame(request("api_versions", 0, b""))
LOGIN = frame(request("sasl_handshake", 1, text("PLAIN")))


def golden() -> list[bytes]:
    """Every request in every version, also with numbers that exist: then handlers have work."""
    found = []
    for file in sorted((ROOT / "tests" / "golden" / "messages").glob("*.json")):
        for case in json.loads(file.read_text()):
            if case["kind"] == "request":
                message = bytes.fromhex(case["hex"])
                found += [request(file.stem, case["version"], each) for each in (message, _LARGE.sub(_zeros, message))]
    return found


_LARGE = re.compile(rb"\x00\x01\x11[\x70-\xff]|\x00\x00\x00\x01\x2a\x05\xf2[\x00-\xff]")
"""The numbers of golden messages, which no topic, partition or offset has."""


def _zeros(number: re.Match[bytes]) -> bytes:
    return bytes(len(number[0]))


class Changer:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._golden = golden()
        self._served = [each for each in self._golden if int.from_bytes(each[:2], "big") in served(in_cluster=False)]
        self._logins = [request("sasl_handshake", version, text(name)) for version in (0, 1) for name in MECHANISMS]
        self._tokens = [request("sasl_authenticate", version, data(token)) for version in (0, 1) for token in TOKENS]

    def of(self, stage: str) -> bytes:
        chance = self._chance
        if stage == "before":
            body = chance.choice([self._golden, self._logins])
        elif stage == "during":
            body = chance.choice([self._tokens, self._tokens, self._golden])
        else:
            # What is not served closes the connection, and ends what could follow.
            body = self._served if chance.randrange(20) else self._golden
        changed = bytearray(chance.choice(body))
        # After a login one change in a few frames: a connection lives until the first that is malformed.
        for _ in range(chance.choice(AFTER if stage == "after" else (0, 1, 1, 1, 2, 3))):
            self._change(changed)
        size = len(changed)
        if chance.randrange(50) == 0:
            size += chance.choice((-1, 1, 1 << 20, -(1 << 31) - size, (1 << 31) - 1 - size))
        return struct.pack(">i", size) + changed

    def _change(self, body: bytearray) -> None:
        chance = self._chance
        # Mostly behind the header, where the decoders are.
        at = chance.randrange(len(body) + 1) if chance.randrange(8) == 0 else chance.randint(min(14, len(body)), len(body))
        match chance.randrange(6):
            case 0:
                body[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                limit = chance.choice(LIMITS)
                body[at : at + len(limit)] = limit
            case 2:
                del body[at : at + chance.randrange(1, 9)]
            case 3:
                body[at:at] = chance.randbytes(chance.randrange(1, 9))
            case 4:
                other = chance.choice(self._golden)
                start = chance.randrange(len(other))
                body[at:at] = other[start : start + chance.randrange(1, 60)]
            case _:
                if at < len(body):
                    body[at] ^= 1 << chance.randrange(8)


@dataclass
class Run:
    """What is shared by the workers."""

    frames_max: int
    changer: Changer
    frames: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    honest: int = 0

    @property
    def total(self) -> int:
        return self.frames.total()

    @property
    def is_over(self) -> bool:
        return self.total >= self.frames_max


@dataclass(frozen=True)
class Listener:
    name: str
    port: int
    tls: ssl.SSLContext | None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


async def log_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, user: str) -> None:
    writer.write(LOGIN + frame(request("sasl_authenticate", 1, data(f"\0{user}\0{user}-secret".encode()))))
    await read_frame(reader)
    assert (await read_frame(reader))[4:6] == b"\0\0", f"{user} cannot log in"


async def hostile(run: Run, listener: Listener, stage: str, user: str) -> None:
    """One connection: frames of a stage, until the broker closes it or has answered them all."""
    reader, writer = await listener.open()
    where = f"{stage} {listener.name}"
    try:
        if stage == "during":
            writer.write(frame(request("sasl_handshake", random.randrange(2), text(random.choice(MECHANISMS)))))
            await read_frame(reader)
        elif stage == "after":
            await log_in(reader, writer, user)
        count = BURST if stage == "after" else 4
        writer.write(b"".join(run.changer.of(stage) for _ in range(count)) + VERSIONS)
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(count):
                await read_frame(reader)
                run.frames[where] += 1
        run.ended["all answered"] += 1
    except (asyncio.IncompleteReadError, ConnectionError):
        run.frames[where] += 1
        run.ended["closed by the broker"] += 1
    except TimeoutError:
        run.ended["given up"] += 1
    finally:
        writer.transport.abort()


async def worker(run: Run, listeners: list[Listener], number: int) -> None:
    chance = random.Random(number)
    while not run.is_over:
        stage = chance.choices(STAGES, (1, 1, 3))[0]
        await hostile(run, chance.choice(listeners), stage, chance.choice(("eve", "ada")))


async def honest(run: Run, listener: Listener) -> None:
    """Asks all the time, and must be answered."""
    reader, writer = await listener.open()
    await log_in(reader, writer, "ada")
    while not run.is_over:
        writer.write(VERSIONS)
        async with asyncio.timeout(HONEST_S):
            assert await read_frame(reader)
        run.honest += 1
        await asyncio.sleep(0.01)
    writer.transport.abort()


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sockets(pid: int) -> int:
    return sum(os.readlink(each).startswith("socket:") for each in Path(f"/proc/{pid}/fd").iterdir())


async def attack(run: Run, listeners: list[Listener], pid: int) -> list[str]:
    """Returns what is wrong."""
    before = sockets(pid)
    started, settled = time.monotonic(), 0
    async with asyncio.TaskGroup() as group:
        for each in listeners:
            group.create_task(honest(run, each))
        for number in range(WORKERS):
            group.create_task(worker(run, listeners, number))
        while not run.is_over:
            await asyncio.sleep(1)
            if not settled and run.total * 10 >= run.frames_max:
                settled = resident_bytes(pid)
    took_s = time.monotonic() - started
    deadline = time.monotonic() + HONEST_S
    while (left := sockets(pid) - before) > 0 and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    growth = resident_bytes(pid) - (settled or resident_bytes(pid))
    print(f"{run.total} frames in {took_s:.0f} s, {run.honest} answers to honest clients, {growth >> 20} MiB more memory")
    for where, count in [*sorted(run.frames.items()), *sorted(run.ended.items())]:
        print(f"  {count:10}  {where}")
    problems = []
    if left > 0:
        problems.append(f"{left} sockets are still open")
    if growth > GROWTH_BYTES_MAX:
        problems.append(f"the memory grew by {growth >> 20} MiB")
    return problems


def settings_of(folder: Path) -> dict[str, str]:
    authority = Authority()
    prefix = "listener.name.{}.plain.sasl.jaas.config"
    return {
        "listeners": "CLEAR://127.0.0.1:0,TLS://127.0.0.1:0",
        "listener.security.protocol.map": "CLEAR:SASL_PLAINTEXT,TLS:SASL_SSL",
        "inter.broker.listener.name": "CLEAR",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        prefix.format("clear"): USERS,
        prefix.format("tls"): USERS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("broker").pem_file(folder / "broker.pem"),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:root",
        "connection.failed.authentication.delay.ms": "1",
        "num.partitions": "1",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "auto.create.topics.enable": "false",
        "log.retention.bytes": str(16 << 20),
        "log.segment.bytes": str(8 << 20),
    }


def prepare(port: int) -> None:
    """The topics that golden requests name, and what `ada` may do. `eve` may do nothing."""
    admin = AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "root",
            "sasl.password": "root-secret",
        }
    )
    acls = [
        (ResourceType.TOPIC, "*", AclOperation.READ),
        (ResourceType.TOPIC, "*", AclOperation.WRITE),
        (ResourceType.GROUP, "*", AclOperation.ALL),
        (ResourceType.TRANSACTIONAL_ID, "*", AclOperation.ALL),
    ]
    topics = [NewTopic(f"text-{number}", num_partitions=2) for number in range(1, 9)]
    allowed = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, "User:ada", "*", operation, AclPermissionType.ALLOW)
        for kind, name, operation in acls
    ]
    for done in (*admin.create_topics(topics).values(), *admin.create_acls(allowed).values()):
        done.result(60)


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def main(words: list[str]) -> int:
    frames_max, seed = (int(words[0]) if words else 100_000), (int(words[1]) if len(words) > 1 else 1)
    run = Run(frames_max, Changer(seed))
    with tempfile.TemporaryDirectory(prefix="ottla-fuzz-") as scratch, Broker(settings_of(Path(scratch))) as broker:
        assert broker.process is not None
        ports = [int(address.rpartition(":")[2]) for address in broker._listeners]
        prepare(ports[0])
        listeners = [Listener("in the clear", ports[0], None), Listener("inside TLS", ports[1], trusting())]
        try:
            problems = uvloop.run(attack(run, listeners, broker.process.pid))
        except* (TimeoutError, AssertionError, OSError, asyncio.IncompleteReadError) as failed:
            problems = [f"an honest client was not served: {failed.exceptions[0]!r}"]
        if not broker.running:
            problems.append("the broker has ended")
        tracebacks = broker.log.count("Traceback")
        if tracebacks:
            problems.append(f"the log has {tracebacks} tracebacks")
        if problems:
            log = ROOT / "build" / "fuzz_frames.log"
            log.parent.mkdir(exist_ok=True)
            log.write_text(broker.log)
            print(f"seed {seed}: {'; '.join(problems)}; see {log}", file=sys.stderr)
        return len(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
