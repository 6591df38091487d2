"""Changed requests to a broker that runs: at the TLS door, before, during, after and again at a login, in the clear and in TLS.

    python -m tests.fuzz.fuzz_frames [frames] [seed]

A frame counts once the broker has answered it or closed its connection. The frames are the golden requests, with bytes changed,
removed, inserted or replaced by numbers that are at a limit; after a login most changes are of fields, so that the request still
decodes and its handler has work. Tokens are those of PLAIN, SCRAM, delegation tokens and OAUTHBEARER, in requests and bare.

Meanwhile an honest client on each listener must have its answers. At the end the broker must live, have no connection and no
descriptor more than before, hold little more memory than after the first tenth, and have logged no traceback. If not, the log
stays in build/fuzz_frames.log.
"""

from __future__ import annotations

import asyncio
import os
import random
import ssl
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

from ottla.testing import Broker
from tests.fuzz.hostile_frames import MECHANISMS, SCRAM, VERSIONS, HostileFrames, frame, handshake, plain_token, token_request
from tests.kit.certificates import Authority
from tests.kit.tokens import Issuer

ROOT = Path(__file__).parents[2]
STAGES = ("door", "before", "during", "again", "after")
WEIGHTS = (5, 15, 25, 5, 50)
TLS_SHARE = {"before": 0.1, "during": 0.1, "again": 0.5, "after": 0.4}
"""A handshake costs as much as many frames."""
WORKERS = 64
BURST = 100
PATIENCE_S = 0.5
"""A changed request may wait for long, such as a Fetch: then its connection is given up."""
HONEST_S = 30
GROWTH_BYTES_MAX = 96 << 20
USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_root="root-secret" user_ada="ada-secret" user_eve="eve-secret";'
)
ISSUER = Issuer("ES256")


@dataclass
class Run:
    """What is shared by the workers."""

    frames_max: int
    hostile: HostileFrames
    frames: Counter[str] = field(default_factory=Counter)
    total: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    honest_ms: list[float] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.total >= self.frames_max

    def count(self, where: str, frames: int) -> None:
        self.frames[where] += frames
        self.total += frames


class Answers(asyncio.Protocol):
    """The frames that a connection receives: the first few whole, of the others the number."""

    KEPT = 3

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.kept: list[bytes] = []
        self.count = 0
        self.closed = False
        self._rest = b""
        self._missing = 0
        self._wanted = 0
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._missing >= len(data) and self.count >= self.KEPT:
            self._missing -= len(data)
            if not self._missing:
                self._one_more(b"")
            return
        data = self._rest + data
        at = 0
        if self._missing:
            at, self._missing = self._missing, 0
            self._one_more(b"")
        while len(data) - at >= 4:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                if self.count >= self.KEPT:
                    self._missing, at = end - len(data), len(data)
                break
            self._one_more(data[at + 4 : end])
            at = end
        self._rest = data[at:]

    def _one_more(self, answer: bytes) -> None:
        if self.count < self.KEPT:
            self.kept.append(answer)
        self.count += 1
        if self.count >= self._wanted:
            self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, count: int, seconds: float) -> bool:
        """Until there are so many answers, or the broker closes the connection. False: neither."""
        if self.count < count and not self.closed:
            self._wanted = count
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(seconds):
                    await self._waiter
            except TimeoutError:
                return False
        return True


@dataclass(frozen=True)
class Listener:
    name: str
    port: int
    tls: ssl.SSLContext | None

    async def open(self) -> Answers:
        return (await asyncio.get_running_loop().create_connection(Answers, "127.0.0.1", self.port, ssl=self.tls))[1]


def login(user: str) -> bytes:
    """Answered twice."""
    return frame(handshake("PLAIN")) + frame(token_request(plain_token(user)))


class Attack:
    """Opens hostile connections, one after the other, until there were enough frames."""

    def __init__(self, run: Run, clear: Listener, secured: Listener, seed: int) -> None:
        self._run = run
        self._clear = clear
        self._secured = secured
        self._chance = random.Random(seed)

    async def go_on(self) -> None:
        while not self._run.is_over:
            stage = self._chance.choices(STAGES, WEIGHTS)[0]
            if stage == "door":
                await self._door()
                continue
            listener = self._secured if self._chance.random() < TLS_SHARE[stage] else self._clear
            try:
                answers = await listener.open()
            except OSError:
                self._run.ended["not accepted"] += 1
                continue
            try:
                honest, where = await self._prepare(stage, answers)
                await self._send(stage, listener, answers, honest, where)
            finally:
                answers.transport.abort()

    async def _door(self) -> None:
        try:
            answers = await Listener("", self._secured.port, None).open()
        except OSError:
            return
        answers.transport.write(self._run.hostile.hello())
        # What OpenSSL waits for after a good ClientHello is never sent.
        answers.transport.write_eof()
        await answers.wait(1 << 30, PATIENCE_S)
        self._run.count("at the TLS door", 1)
        answers.transport.abort()

    async def _prepare(self, stage: str, answers: Answers) -> tuple[int, str]:
        """Sends what comes before the hostile frames. Returns how many answers it has, and the mechanism."""
        write = answers.transport.write
        if stage in ("after", "again"):
            write(login(self._chance.choice(("eve", "ada"))))
            await answers.wait(2, HONEST_S)
            assert answers.kept[1][4:6] == b"\0\0", f"cannot log in: {answers.kept[1][:100]!r}"
        if stage == "during" or stage == "again":
            mechanism = "PLAIN" if stage == "again" and self._chance.random() < 0.8 else self._chance.choice(MECHANISMS)
            bare = self._chance.random() < 0.3
            write(frame(handshake(mechanism, 0 if bare else 1)))
            before = answers.count
            await answers.wait(before + 1, HONEST_S)
            return before + 1, f"{mechanism}{' bare' if bare else ''}"
        return answers.count, ""

    async def _send(self, stage: str, listener: Listener, answers: Answers, honest: int, mechanism: str) -> None:
        hostile, run = self._run.hostile, self._run
        count, sent = (BURST if stage == "after" else 3), 0
        bare = mechanism.endswith("bare")
        if stage == "after":
            frames = [hostile.after_login() for _ in range(count)]
        elif stage == "before":
            frames = [hostile.before_login() for _ in range(count)]
        else:
            name = mechanism.removesuffix(" bare")
            if name in SCRAM and self._chance.random() < 0.7:
                answers.transport.write(hostile.scram_first(bare=bare))
                await answers.wait(honest + 1, HONEST_S)
                if len(answers.kept) <= honest:
                    run.count(f"{stage} {listener.name}, {mechanism}", 1)
                    return
                reply = answers.kept[honest]
                frames = [hostile.scram_final(reply[reply.find(b"r=") :], bare=bare)]
                honest += 1
                mechanism += ", final"
            else:
                frames = [hostile.token(name, bare=bare) for _ in range(count)]
        where = f"{stage} {listener.name}{', ' if mechanism else ''}{mechanism}"
        answers.transport.write(b"".join(frames) + VERSIONS)
        in_time = await answers.wait(honest + len(frames), PATIENCE_S)
        sent = min(answers.count - honest, len(frames))
        if sent == len(frames):
            run.ended["all answered"] += 1
        elif answers.closed:
            sent += 1
            run.ended["closed by the broker"] += 1
        elif not in_time:
            run.ended["given up"] += 1
        run.count(where, sent)


async def honest(run: Run, listener: Listener) -> None:
    """Asks all the time, and must be answered."""
    answers = await listener.open()
    answers.transport.write(login("ada"))
    await answers.wait(2, HONEST_S)
    while not run.is_over:
        started = time.perf_counter()
        answers.transport.write(VERSIONS)
        assert await answers.wait(answers.count + 1, HONEST_S), f"no answer within {HONEST_S} s"
        assert not answers.closed, "the connection was closed"
        run.honest_ms.append((time.perf_counter() - started) * 1000)
        await asyncio.sleep(0.05)
    answers.transport.abort()


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sockets(pid: int) -> int:
    return sum(os.readlink(each).startswith("socket:") for each in Path(f"/proc/{pid}/fd").iterdir())


async def attack(run: Run, clear: Listener, secured: Listener, pid: int, seed: int) -> list[str]:
    """Returns what is wrong."""
    before = sockets(pid)
    started, settled = time.monotonic(), 0
    async with asyncio.TaskGroup() as group:
        for each in (clear, secured):
            group.create_task(honest(run, each))
        for number in range(WORKERS):
            group.create_task(Attack(run, clear, secured, seed * 1000 + number).go_on())
        while not run.is_over:
            await asyncio.sleep(1)
            if not settled and run.total * 10 >= run.frames_max:
                settled = resident_bytes(pid)
    took_s = time.monotonic() - started
    deadline = time.monotonic() + HONEST_S
    while (left := sockets(pid) - before) > 0 and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    growth = resident_bytes(pid) - (settled or resident_bytes(pid))
    honest_ms = sorted(run.honest_ms)
    print(f"{run.total} frames in {took_s:.0f} s, {growth >> 20} MiB more memory; {len(honest_ms)} honest answers, 99%", end="")
    print(f" within {honest_ms[len(honest_ms) * 99 // 100]:.0f} ms, the slowest {honest_ms[-1]:.0f} ms")
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
    keys = folder / "keys.json"
    keys.write_bytes(ISSUER.jwks())
    prefix = "listener.name.{}.plain.sasl.jaas.config"
    return {
        "listeners": "CLEAR://127.0.0.1:0,TLS://127.0.0.1:0",
        "listener.security.protocol.map": "CLEAR:SASL_PLAINTEXT,TLS:SASL_SSL",
        "inter.broker.listener.name": "CLEAR",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        prefix.format("clear"): USERS,
        prefix.format("tls"): USERS,
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.allowed.urls": f"file://{keys}",
        "sasl.oauthbearer.expected.audience": "kafka",
        "connections.max.reauth.ms": "3600000",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("broker").pem_file(folder / "broker.pem"),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:root",
        "connection.failed.authentication.delay.ms": "1",
        "delegation.token.secret.key": "not told",
        "num.partitions": "1",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "log.retention.bytes": str(16 << 20),
        "log.segment.bytes": str(8 << 20),
        "log.retention.check.interval.ms": "10000",
        # What clients may leave behind goes soon: else it would look like a leak.
        "offsets.retention.minutes": "1",
        "offsets.retention.check.interval.ms": "10000",
        "producer.id.expiration.ms": "60000",
        "producer.id.expiration.check.interval.ms": "10000",
        "transactional.id.expiration.ms": "60000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "10000",
        "delegation.token.max.lifetime.ms": "60000",
        "delegation.token.expiry.check.interval.ms": "10000",
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
    run = Run(frames_max, HostileFrames(seed, ISSUER.token(aud="kafka"), ("token", "secret")))
    with tempfile.TemporaryDirectory(prefix="ottla-fuzz-") as scratch, Broker(settings_of(Path(scratch))) as broker:
        assert broker.process is not None
        ports = [int(address.rpartition(":")[2]) for address in broker._listeners]
        prepare(ports[0])
        clear, secured = Listener("in the clear", ports[0], None), Listener("inside TLS", ports[1], trusting())
        try:
            problems = uvloop.run(attack(run, clear, secured, broker.process.pid, seed))
        except* (TimeoutError, AssertionError, OSError) as failed:
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
