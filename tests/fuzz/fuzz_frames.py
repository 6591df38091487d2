"""Changed requests to a broker that runs: at the TLS door, before, during, after and again at a login, in the clear and in TLS.

    python -m tests.fuzz.fuzz_frames [frames] [--seed 1] [--first 0]

A frame counts once the broker has answered it or closed its connection. The frames are the golden requests, with bytes changed,
removed, inserted or replaced by numbers that are at a limit; after a login most changes are of fields, so that the request still
decodes and its handler has work, or of records, whose CRC is right. Tokens are those of PLAIN, SCRAM, delegation tokens and
OAUTHBEARER, in requests and bare. Some frames come in pieces, some connections stop in the middle of one.

Meanwhile an honest client on each listener writes records and reads them back. At the end the broker must live, have no
connection and no descriptor more than before, hold little more memory than after the first tenth, and have logged no traceback.
If not, the log stays in build/fuzz_frames.log.

Connections have numbers. What one sends follows from the seed and its number: `--first N` begins with connection N, to go on with
a run that was interrupted, or to repeat those that were open at a failure. SIGUSR1 stops the attack while others need the
machine, and lets it go on.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import ssl
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
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
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from ottla.testing import Broker
from tests.fuzz.hostile_frames import (
    MECHANISMS,
    SCRAM,
    VERSIONS,
    Corpus,
    HostileFrames,
    frame,
    handshake,
    plain_token,
    token_request,
)
from tests.kit.certificates import Authority
from tests.kit.raw import batch, fetch_frame, produce_frame, read_fetched, read_produced, read_records
from tests.kit.tokens import Issuer

ROOT = Path(__file__).parents[2]
STAGES = ("door", "before", "during", "again", "after")
WEIGHTS = (5, 15, 25, 5, 50)
TLS_SHARE = {"before": 0.1, "during": 0.1, "again": 0.5, "after": 0.4}
"""A handshake costs as much as many frames."""
WORKERS = 64
BURST = 150
PATIENCE_S = 0.5
"""A changed request may wait for long, such as a Fetch: then its connection is given up."""
STEP_S = 0.25
HONEST_S = 60
HANDSHAKE_S = 15
"""What the broker gives a TLS handshake. Who hears nothing for longer was stopped (SIGSTOP), and its connection closed."""
IDLE_S = 60
"""connections.max.idle.ms of the broker."""
GROWTH_BYTES_MAX = 96 << 20
HALVES_MAX = 200
"""Connections that stopped in the middle of a frame, and are still open."""
TURNS = 500
"""Of an honest client on one connection."""
TELL_S = 10
LOG_BYTES_MAX = 64 << 20
HONEST_TOPIC = "honest"
USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_root="root-secret" user_ada="ada-secret" user_bob="bob-secret" user_eve="eve-secret";'
)
ISSUER = Issuer("ES256")
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
TOPIC_OPERATIONS = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS)
READING_CLUSTER = (
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.CLUSTER_ACTION,
    AclOperation.IDEMPOTENT_WRITE,
)


@dataclass
class Run:
    """What is shared by the workers."""

    frames_max: int
    seed: int
    next: int
    """The number of the next connection."""
    corpus: Corpus
    frames: Counter[str] = field(default_factory=Counter)
    total: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    honest_ms: list[float] = field(default_factory=list)
    open: set[int] = field(default_factory=set)
    halves: deque[Answers] = field(default_factory=deque)
    failed: bool = False
    paused: bool = False

    @property
    def is_over(self) -> bool:
        return self.failed or self.total >= self.frames_max

    def pause_or_go_on(self) -> None:
        self.paused = not self.paused

    def begin(self) -> int:
        number, self.next = self.next, self.next + 1
        self.open.add(number)
        return number

    def count(self, where: str, frames: int) -> None:
        self.frames[where] += frames
        self.total += frames

    def leave_half(self, answers: Answers) -> None:
        self.halves.append(answers)
        if len(self.halves) > HALVES_MAX:
            self.halves.popleft().transport.abort()


class Answers(asyncio.Protocol):
    """The frames that a connection receives: the first few whole, of the others the number."""

    def __init__(self, kept_max: int = 3) -> None:
        self._kept_max = kept_max
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
        if self._missing >= len(data) and self.count >= self._kept_max:
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
                if self.count >= self._kept_max:
                    self._missing, at = end - len(data), len(data)
                break
            self._one_more(data[at + 4 : end])
            at = end
        self._rest = data[at:]

    def _one_more(self, answer: bytes) -> None:
        if self.count < self._kept_max:
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

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    async def wait(self, count: int, seconds: float) -> bool:
        """Until there are so many answers, or the broker closes the connection. False: neither."""
        self._wanted = count
        left_s = seconds
        while self.count < count and not self.closed and left_s > 0:
            # In steps: while this process is stopped (SIGSTOP) time passes, and costs one step only.
            step_s = min(left_s, STEP_S)
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(step_s):
                    await self._waiter
            except TimeoutError:
                left_s -= step_s
        return self.count >= count or self.closed

    async def ask(self, request: bytes) -> bytes:
        """For honest clients. AssertionError if there is no answer."""
        wanted = self.count + 1
        self.write(request)
        assert await self.wait(wanted, HONEST_S), f"no answer within {HONEST_S} s"
        assert self.count >= wanted, "the connection was closed"
        return self.kept.pop()


@dataclass(frozen=True)
class Listener:
    name: str
    port: int
    tls: ssl.SSLContext | None

    async def open(self, new: Callable[[], Answers] = Answers) -> Answers:
        return (await asyncio.get_running_loop().create_connection(new, "127.0.0.1", self.port, ssl=self.tls))[1]


def login(user: str) -> bytes:
    """Answered twice."""
    return frame(handshake("PLAIN")) + frame(token_request(plain_token(user)))


class Attack:
    """One hostile connection."""

    def __init__(self, run: Run, clear: Listener, secured: tuple[Listener, ...], number: int) -> None:
        self._run = run
        self._clear = clear
        self._secured = secured
        self._chance = random.Random(run.seed << 40 | number)
        self._hostile = HostileFrames(run.corpus, self._chance, run.kinds)

    async def run(self) -> None:
        chance = self._chance
        stage = chance.choices(STAGES, WEIGHTS)[0]
        if stage == "door":
            await self._door()
            return
        listener = chance.choice(self._secured) if chance.random() < TLS_SHARE[stage] else self._clear
        began = time.monotonic()
        try:
            answers = await listener.open()
        except OSError:
            self._run.ended["not accepted"] += 1
            return
        try:
            honest, where = await self._prepare(stage, answers)
        except AssertionError:
            if time.monotonic() - began < HANDSHAKE_S:
                raise
            self._run.ended["idle while this process was stopped"] += 1
            return
        if listener.tls is not None and chance.random() < 0.05:
            await self._beneath(answers)
        elif chance.random() < 0.03:
            await self._half(stage, answers)
            return
        else:
            await self._send(stage, listener, answers, honest, where)
        answers.transport.abort()

    async def _door(self) -> None:
        try:
            answers = await Listener("", self._secured[0].port, None).open()
        except OSError:
            return
        answers.write(self._hostile.at_the_door())
        # What OpenSSL waits for after a good ClientHello is never sent.
        if not answers.transport.is_closing():
            answers.transport.write_eof()
        await answers.wait(1 << 30, PATIENCE_S)
        self._run.count("at the TLS door", 1)
        answers.transport.abort()

    async def _beneath(self, answers: Answers) -> None:
        """A record that the session did not encrypt."""
        self._run.kinds["TLS records beneath"] += 1
        record = self._hostile.tls_record()
        if not answers.transport.is_closing():
            with suppress(OSError):
                os.write(answers.transport.get_extra_info("socket").fileno(), record)
        await answers.wait(1 << 30, PATIENCE_S)
        self._run.count("beneath TLS", 1)

    async def _half(self, stage: str, answers: Answers) -> None:
        """Stops in the middle of a frame, and stays."""
        self._run.kinds["half a frame"] += 1
        whole = self._hostile.after_login() if stage == "after" else self._hostile.before_login()
        answers.write(whole[: self._chance.randrange(1, max(2, len(whole)))])
        self._run.leave_half(answers)

    async def _prepare(self, stage: str, answers: Answers) -> tuple[int, str]:
        """Sends what comes before the hostile frames. Returns how many answers it has, and the mechanism."""
        write = answers.write
        if stage in ("after", "again"):
            write(login(self._chance.choice(("eve", "ada", "ada", "bob"))))
            await answers.wait(2, HONEST_S)
            assert len(answers.kept) == 2 and answers.kept[1][4:6] == b"\0\0", f"cannot log in: {answers.kept!r}"  # noqa: PT018
        if stage == "during" or stage == "again":
            mechanism = "PLAIN" if stage == "again" and self._chance.random() < 0.8 else self._chance.choice(MECHANISMS)
            bare = self._chance.random() < 0.3
            write(frame(handshake(mechanism, 0 if bare else 1)))
            before = answers.count
            await answers.wait(before + 1, HONEST_S)
            return before + 1, f"{mechanism}{' bare' if bare else ''}"
        return answers.count, ""

    async def _send(self, stage: str, listener: Listener, answers: Answers, honest: int, mechanism: str) -> None:
        hostile, run = self._hostile, self._run
        count, sent = 3, 0
        bare = mechanism.endswith("bare")
        if stage == "after":
            frames = hostile.burst_after_login(BURST)
        elif stage == "before":
            frames = [hostile.before_login() for _ in range(count)]
        else:
            name = mechanism.removesuffix(" bare")
            if name in SCRAM and self._chance.random() < 0.7:
                answers.write(hostile.scram_first(bare=bare))
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
        await self._write(answers, b"".join(frames) + VERSIONS)
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

    async def _write(self, answers: Answers, data: bytes) -> None:
        if self._chance.random() >= 0.05:
            answers.write(data)
            return
        self._run.kinds["frames in pieces"] += 1
        places = sorted(self._chance.randrange(len(data)) for _ in range(8))
        for start, end in zip([0, *places], [*places, len(data)], strict=True):
            answers.write(data[start:end])
            await asyncio.sleep(0)


async def attack_in_turn(run: Run, clear: Listener, secured: tuple[Listener, ...]) -> None:
    while not run.is_over:
        if run.paused:
            await asyncio.sleep(0.5)
            continue
        number = run.begin()
        await Attack(run, clear, secured, number).run()
        run.open.remove(number)


async def honest(run: Run, listener: Listener) -> None:
    """Writes a record and reads it back, over and over, on one connection after another."""
    number = 0
    while not run.is_over:
        used = time.monotonic()
        try:
            answers = await listener.open(lambda: Answers(sys.maxsize))
        except OSError:
            if time.monotonic() - used < HANDSHAKE_S:
                raise
            continue  # it was stopped in the middle of the handshake
        answers.write(login("root"))
        await answers.wait(2, HONEST_S)
        for _ in range(TURNS):
            number += 1
            value = b"%s %d" % (listener.name.encode(), number)
            started = time.monotonic()
            try:
                written = read_produced(await answers.ask(produce_frame(HONEST_TOPIC, 0, batch([value]), correlation=number)))
                assert (written.correlation, written.error) == (number, 0), f"{written} for record {number}"
                (read,) = read_fetched(await answers.ask(fetch_frame(HONEST_TOPIC, [(0, written.base_offset)])))
                assert read.error == 0
                assert dict(read_records(read.records))[written.base_offset] == value
            except AssertionError:
                if not answers.closed or time.monotonic() - used < HANDSHAKE_S:
                    raise
                break  # this process was stopped for so long that the broker closed the connection
            used = time.monotonic()
            run.honest_ms.append((used - started) * 1000)
            if run.is_over:
                break
            await asyncio.sleep(1 if run.paused else 0.05)
        answers.transport.abort()


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sockets(pid: int) -> int:
    found = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found += os.readlink(each).startswith("socket:")
    return found


class Watch:
    """What the broker uses, and whether it has logged a traceback."""

    def __init__(self, run: Run, broker: Broker) -> None:
        assert broker.process is not None
        self._run = run
        self._pid = broker.process.pid
        self._began = time.monotonic()
        self.sockets_before = sockets(self._pid)
        """Those of a broker that nobody has connected to."""
        self.settled_bytes = 0
        """Resident after the first tenth."""
        assert broker._scratch is not None
        self._log = broker._scratch / "log"
        self._log_read = 0

    @property
    def bytes(self) -> int:
        return resident_bytes(self._pid)

    @property
    def sockets(self) -> int:
        return sockets(self._pid)

    async def until_over(self) -> None:
        run = self._run
        told = self._began
        while not run.is_over:
            await asyncio.sleep(1)
            if not self.settled_bytes and run.total * 10 >= run.frames_max:
                self.settled_bytes = self.bytes
            if time.monotonic() - told >= TELL_S:
                told = time.monotonic()
                self.tell()
                run.failed = self._has_traceback()

    def _has_traceback(self) -> bool:
        """In what was logged since the last call. The log of a long run has millions of denied requests: most of it goes."""
        with self._log.open("rb") as log:
            log.seek(self._log_read)
            found = b"Traceback" in log.read()
            self._log_read = log.tell()
        if not found and self._log_read > LOG_BYTES_MAX:
            os.truncate(self._log, 0)
            self._log_read = 0
        return found

    def tell(self) -> None:
        run = self._run
        rate = run.total / (time.monotonic() - self._began)
        print(
            f"{run.total} frames, {rate:.0f}/s, next connection {run.next}, {self.bytes >> 20} MiB, "
            f"{len(os.listdir(f'/proc/{self._pid}/fd'))} descriptors, {self.sockets} of them sockets",
            flush=True,
        )


async def attack(run: Run, clear: Listener, secured: tuple[Listener, ...], watch: Watch) -> list[str]:
    """Returns what is wrong."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, run.pause_or_go_on)
    try:
        async with asyncio.TaskGroup() as group:
            for each in (clear, secured[0]):
                group.create_task(honest(run, each))
            for _ in range(WORKERS):
                group.create_task(attack_in_turn(run, clear, secured))
            await watch.until_over()
    finally:
        for half in run.halves:
            half.transport.abort()
    deadline = time.monotonic() + 2 * HONEST_S
    while (left := watch.sockets - watch.sockets_before) > 0 and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    growth = watch.bytes - (watch.settled_bytes or watch.bytes)
    honest_ms = sorted(run.honest_ms)
    watch.tell()
    print(f"{growth >> 20} MiB more memory than after a tenth; {len(honest_ms)} honest records, 99%", end="")
    print(f" within {honest_ms[len(honest_ms) * 99 // 100]:.0f} ms, the slowest {honest_ms[-1]:.0f} ms")
    for counts in (run.frames, run.ended, run.kinds):
        for name, count in sorted(counts.items()):
            print(f"  {count:10}  {name}")
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
        # A connection that is gone behind a request that waits for very long is closed after so long.
        "connections.max.idle.ms": str(IDLE_S * 1000),
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
    """The topics that golden requests name, and what `ada` and `bob` may do. `eve` may do nothing."""
    admin = AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "root",
            "sasl.password": "root-secret",
        }
    )
    acls: list[tuple[str, ResourceType, str, AclOperation]] = [
        *((user, ResourceType.TOPIC, "text-", operation) for user in ("ada", "bob") for operation in TOPIC_OPERATIONS),
        *((user, kind, "", AclOperation.ALL) for user in ("ada", "bob") for kind in (ResourceType.GROUP, TRANSACTIONAL_ID)),
        *(("bob", ResourceType.BROKER, "kafka-cluster", operation) for operation in READING_CLUSTER),
    ]
    topics = [NewTopic(f"text-{number}", num_partitions=2) for number in range(1, 9)] + [NewTopic(HONEST_TOPIC, num_partitions=1)]
    prefixed, literal = ResourcePatternType.PREFIXED, ResourcePatternType.LITERAL
    allowed = [
        AclBinding(
            kind, name or "*", prefixed if name == "text-" else literal, f"User:{user}", "*", operation, AclPermissionType.ALLOW
        )
        for user, kind, name, operation in acls
    ]
    credentials: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion("eve", ScramCredentialInfo(mechanism, 4096), b"eve-secret")
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    ]
    for done in (
        *admin.create_topics(topics).values(),
        *admin.create_acls(allowed).values(),
        *admin.alter_user_scram_credentials(credentials).values(),
    ):
        done.result(60)


def trusting(newest: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = newest
    return context


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.fuzz_frames")
    parser.add_argument("frames", type=int, nargs="?", default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, metavar="CONNECTION")
    options = parser.parse_args()
    run = Run(options.frames, options.seed, options.first, Corpus(ISSUER.token(aud="kafka"), ("token", "secret")))
    with tempfile.TemporaryDirectory(prefix="ottla-fuzz-") as scratch, Broker(settings_of(Path(scratch))) as broker:
        ports = [int(address.rpartition(":")[2]) for address in broker._listeners]
        watch = Watch(run, broker)
        prepare(ports[0])
        clear = Listener("in the clear", ports[0], None)
        versions = (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2)
        secured = tuple(Listener("inside TLS", ports[1], trusting(newest)) for newest in versions)
        try:
            problems = uvloop.run(attack(run, clear, secured, watch))
        except* (TimeoutError, AssertionError, OSError) as failed:
            problems = [f"a client was not served: {failed.exceptions[0]!r}"]
        if not broker.running:
            problems.append("the broker has ended")
        tracebacks = broker.log.count("Traceback")
        if tracebacks:
            problems.append(f"the log has {tracebacks} tracebacks")
        if problems:
            log = ROOT / "build" / "fuzz_frames.log"
            log.parent.mkdir(exist_ok=True)
            log.write_text(broker.log)
            where = f"seed {run.seed}, connections {min(run.open, default=run.next)} to {run.next - 1}"
            print(f"{where}: {'; '.join(problems)}; see {log}", file=sys.stderr)
        return len(problems)


if __name__ == "__main__":
    sys.exit(main())
