"""The same bytes to Apache Kafka 3.9 and to Ottla on SASL listeners: equal codes, equal ends (SA01-SA07, SC01-SC05).

Differences that are meant, so they are not compared: error texts; Kafka refuses an unknown SCRAM user at once, does not look at
the channel binding, and closes without an answer at a proof of another length or at a re-authentication with a mechanism that is
not enabled.
"""

from __future__ import annotations

import asyncio
import difflib
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.client.scram import Scram
from ottla.protocol.headers import decode_response, encode_request
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.registry import API_BY_NAME
from tests.compat.sasl.sasl_brokers import APACHE, SESSION_MS, sasl_broker

pytestmark = pytest.mark.java

PLAIN = b"\0ada\0planted-p"


class Dialogue:
    """One connection, and what the broker said on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.said: list[str] = []

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def frame(self, data: bytes) -> None:
        self.write(struct.pack(">i", len(data)) + data)

    async def answer(self) -> bytes | None:
        """The next frame; None if the broker closed the connection."""
        try:
            size = struct.unpack(">i", await asyncio.wait_for(self._reader.readexactly(4), 30))[0]
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.said.append("closed")
            return None

    async def ask(self, name: str, version: int, request: object) -> Any:
        for part in encode_request(API_BY_NAME[name], version, 7, "me", request):
            assert isinstance(part, bytes)
            self.write(part)
        frame = await self.answer()
        if frame is None:
            return None
        correlation_id, response = decode_response(API_BY_NAME[name], version, memoryview(frame))
        shown = [f"{name} v{version}", f"id {correlation_id}"]
        for field in ("error_code", "mechanisms", "session_lifetime_ms"):
            if hasattr(response, field):
                value = getattr(response, field)
                shown.append(f"{field} {sorted(value) if isinstance(value, list) else value}")
        if hasattr(response, "error_message"):
            shown.append("with a text" if response.error_message else "without a text")
        if name == "metadata":
            shown.append(f"{len(response.brokers)} brokers, topics {[(each.error_code, each.name) for each in response.topics]}")
        self.said.append(", ".join(shown))
        return response

    async def versions(self, version: int = 3, **fields: str) -> Any:
        names = {"client_software_name": "me", "client_software_version": "1"} | fields
        return await self.ask("api_versions", version, ApiVersionsRequest(**(names if version >= 3 else {})))

    async def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return await self.ask("sasl_handshake", version, SaslHandshakeRequest(mechanism=mechanism))

    async def token(self, token: bytes, version: int = 2) -> Any:
        return await self.ask("sasl_authenticate", version, SaslAuthenticateRequest(auth_bytes=token))

    async def metadata(self, version: int = 4) -> Any:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="nothing")], allow_auto_topic_creation=False)
        return await self.ask("metadata", version, request)

    async def is_closed(self) -> None:
        assert await self.answer() is None, self.said

    async def login(self) -> None:
        await self.handshake()
        await self.token(PLAIN)


Story = Callable[[Dialogue], Awaitable[None]]
STORIES: dict[str, Story] = {}
SHORT: set[str] = set()
"""Stories for the listener whose sessions are short."""


def story(short: bool = False) -> Callable[[Story], Story]:
    def add(function: Story) -> Story:
        STORIES[function.__name__] = function
        if short:
            SHORT.add(function.__name__)
        return function

    return add


def with_token(name: str, mechanism: str, token: bytes) -> None:
    async def tell(peer: Dialogue) -> None:
        await peer.handshake(mechanism)
        response = await peer.token(token)
        if response is not None and response.error_code:
            await peer.is_closed()

    STORIES[f"{mechanism} {name}"] = tell


for what, plain in {
    "right": PLAIN,
    "with its authorization id": b"ada\0ada\0planted-p",
    "another authorization id": b"bob\0ada\0planted-p",
    "wrong password": b"\0ada\0planted-b",
    "unknown user": b"\0eve\0planted-p",
    "empty": b"",
    "one part": b"ada",
    "two parts": b"ada\0planted-p",
    "four parts": b"\0ada\0planted-p\0",
    "no user": b"\0\0planted-p",
    "no password": b"\0ada\0",
    "not UTF-8": b"\0ada\0\xff\xfe",
    "long": b"\0ada\0" + b"x" * 100_000,
}.items():
    with_token(what, "PLAIN", plain)

for what, first in {
    "right": b"n,,n=carol,r=nonce",
    "with its authorization id": b"n,a=carol,n=carol,r=nonce",
    "another authorization id": b"n,a=dave,n=carol,r=nonce",
    "with an extension": b"n,,n=carol,r=nonce,x=y",
    "escaped": b"n,,n=a=2Cb=3Dc,r=nonce",
    "wrongly escaped": b"n,,n=a=2cb=3dc,r=nonce",
    "channel binding y": b"y,,n=carol,r=nonce",
    "channel binding p": b"p=tls-unique,,n=carol,r=nonce",
    "no nonce": b"n,,n=carol",
    "empty": b"",
    "garbage": b"\xff\xfe\x00",
    "no user": b"n,,n=,r=nonce",
    "wrong order": b"n,,r=nonce,n=carol",
    "unknown token": b"n,,n=carol,r=nonce,tokenauth=true",
}.items():
    if what != "unknown token":  # as an unknown user
        with_token(what, "SCRAM-SHA-256", first)


def frames(name: str, *sent: bytes, handshake: int | None = None) -> None:
    """These bytes, then nothing: the broker closes."""

    async def tell(peer: Dialogue) -> None:
        if handshake is not None:
            await peer.handshake(version=handshake)
        for data in sent:
            peer.write(data)
        await peer.is_closed()

    STORIES[f"frames: {name}"] = tell


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def header(api_key: int, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 7, 2) + b"me"


frames("metadata first", framed(header(3, 0) + b"\0\0\0\0"))
frames("a token first", framed(header(36, 1) + struct.pack(">i", len(PLAIN)) + PLAIN))
frames("an unknown API first", framed(header(999, 0)))
frames("a bare token first", framed(PLAIN))
frames("GSSAPI without GSSAPI", framed(b"\x60\x82\x01\x02" + bytes(64)))
frames("handshake v2", framed(header(17, 2) + b"\0\x05PLAIN"))
frames("handshake cut short", framed(header(17, 1) + b"\0\x05PLA"))
frames("too large", struct.pack(">i", 524289))
frames("negative", struct.pack(">i", -1))
frames("too large after the handshake", struct.pack(">i", 524289), handshake=1)
frames("token of an unknown version", framed(header(36, 9) + b"\0\0\0\0"), handshake=1)
frames("token cut short", framed(header(36, 1) + b"\0\0\0\x09abc"), handshake=1)
frames("unknown API instead of a token", framed(header(999, 0)), handshake=1)
frames("wrong bare token", framed(b"\0ada\0planted-b"), handshake=0)
frames("empty bare token", framed(b""), handshake=0)


@story()
async def the_usual_way(peer: Dialogue) -> None:
    await peer.versions()
    await peer.login()
    await peer.metadata()


@story()
async def every_version(peer: Dialogue) -> None:
    await peer.versions(version=0)
    await peer.handshake()
    await peer.token(PLAIN, version=0)
    await peer.metadata()


@story()
async def versions_may_be_repeated_after_an_error(peer: Dialogue) -> None:
    peer.frame(header(18, 99) + b"\0")
    reply = await peer.answer()
    assert reply is not None
    peer.said.append(repr(struct.unpack_from(">ih", reply)))
    await peer.versions(client_software_name="not valid!")
    await peer.versions()
    await peer.login()


@story()
async def versions_twice(peer: Dialogue) -> None:
    await peer.versions()
    await peer.versions()


@story()
async def metadata_after_versions(peer: Dialogue) -> None:
    await peer.versions()
    await peer.metadata()


@story()
async def unknown_mechanism(peer: Dialogue) -> None:
    await peer.handshake("GSSAPI")
    await peer.is_closed()


@story()
async def unknown_mechanism_v0(peer: Dialogue) -> None:
    await peer.handshake("plain", version=0)
    await peer.is_closed()


@story()
async def bare_tokens(peer: Dialogue) -> None:
    await peer.handshake(version=0)
    peer.frame(PLAIN)
    peer.said.append(repr(await peer.answer()))
    await peer.metadata()


@story()
async def metadata_instead_of_a_token(peer: Dialogue) -> None:
    await peer.handshake()
    await peer.metadata()
    await peer.is_closed()


@story()
async def find_coordinator_instead_of_a_token(peer: Dialogue) -> None:
    await peer.handshake()
    await peer.ask("find_coordinator", 1, FindCoordinatorRequest(key="g"))
    await peer.is_closed()


@story()
async def list_groups_instead_of_a_token(peer: Dialogue) -> None:
    await peer.handshake()
    await peer.ask("list_groups", 3, ListGroupsRequest())
    await peer.is_closed()


@story()
async def versions_instead_of_a_token(peer: Dialogue) -> None:
    await peer.handshake()
    await peer.versions()
    await peer.is_closed()


@story()
async def handshake_instead_of_a_token(peer: Dialogue) -> None:
    await peer.handshake()
    await peer.handshake()
    await peer.is_closed()


@story()
async def sasl_requests_after_the_login(peer: Dialogue) -> None:
    await peer.login()
    await peer.token(PLAIN)
    await peer.handshake()
    await peer.handshake(version=0)
    await peer.token(PLAIN, version=0)
    await peer.metadata()


def scram(name: str, password: str = "planted-s", change: Callable[[bytes], bytes] = bytes, version: int = 2) -> None:
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):

        async def tell(peer: Dialogue, mechanism: str = mechanism) -> None:
            client = Scram(mechanism, "carol", password, b"n" * 24)
            await peer.handshake(mechanism)
            first = await peer.token(client.first(), version)
            final = await peer.token(change(client.final(bytes(first.auth_bytes))), version)
            if final.error_code == 0:
                client.check_last(bytes(final.auth_bytes))
                await peer.metadata()
            else:
                await peer.is_closed()

        STORIES[f"{mechanism}: {name}"] = tell


scram("right")
scram("right, v0", version=0)
scram("wrong password", "planted-d")
scram("another nonce", change=lambda final: final.replace(b"r=", b"r=x"))
scram("shorter nonce", change=lambda final: final.replace(b"=,p=", b",p="))
scram("no proof", change=lambda final: final.rpartition(b",p=")[0])
scram("first message again", change=lambda final: b"n,,n=carol,r=nonce")


@story(short=True)
async def a_session_with_a_lifetime(peer: Dialogue) -> None:
    await peer.login()
    await peer.metadata()
    await peer.login()
    await peer.metadata()
    await peer.handshake()  # within a second
    await peer.metadata()


@story(short=True)
async def another_principal(peer: Dialogue) -> None:
    await peer.login()
    await peer.handshake()
    await peer.token(b"\0bob\0planted-b")
    await peer.is_closed()


@story(short=True)
async def another_mechanism(peer: Dialogue) -> None:
    await peer.login()
    await peer.handshake("SCRAM-SHA-256")
    await peer.token(b"n,,n=carol,r=nonce")


@story(short=True)
async def versions_during_reauthentication(peer: Dialogue) -> None:
    await peer.login()
    await peer.handshake()
    await peer.versions()
    await peer.is_closed()


@story(short=True)
async def after_the_expiry(peer: Dialogue) -> None:
    await peer.login()
    await asyncio.sleep(SESSION_MS / 1000 + 0.2)
    await peer.metadata()


@story(short=True)
async def reauthentication_after_the_expiry(peer: Dialogue) -> None:
    await peer.login()
    await asyncio.sleep(SESSION_MS / 1000 + 0.2)
    await peer.login()
    await peer.metadata()


# SCRAM credentials, on the listener without SASL


def upsertion(name: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"p" * (64 if mechanism == 2 else 32)
    )


def deletion(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


async def alter(peer: Dialogue, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    response = await peer.ask("alter_user_scram_credentials", 0, request)
    peer.said.append(f"{sorted((each.user, each.error_code, bool(each.error_message)) for each in response.results)}")


async def describe(peer: Dialogue, *names: str) -> None:
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])
    response = await peer.ask("describe_user_scram_credentials", 0, request)
    for each in response.results:
        infos = [(info.mechanism, info.iterations) for info in each.credential_infos]
        peer.said.append(f"{each.user!r}: {each.error_code} {infos}")


@story()
async def scram_credentials(peer: Dialogue) -> None:
    await alter(peer, upsertion("x1"), upsertion("x1", 2, 16384), upsertion("x2", iterations=8192))
    await describe(peer, "x2", "x1", "nobody", "x2", "", "")
    for iterations in (-1, 0, 4095, 16385, 2**31 - 1):
        await alter(peer, upsertion("x3", iterations=iterations), upsertion("x4"))
        await alter(peer, deletion("x4"))
    for mechanism in (0, 3, -1):
        await alter(peer, upsertion("x3", mechanism))
        await alter(peer, deletion("x3", mechanism))
    await alter(peer, upsertion(""))
    await alter(peer, deletion(""))
    await alter(peer, deletion("", 9), upsertion("x5"))
    await alter(peer, deletion("x5"), upsertion("x5"))
    await alter(peer, deletion("x5", 2), upsertion("x5"))
    await alter(peer, upsertion("x6"), upsertion("x6"), upsertion("x7"))
    await alter(peer, deletion("x7"), deletion("x5"), deletion("x1", 2))
    await describe(peer)
    await alter(peer)


async def tell_all(sasl: str, short: str, plaintext: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    gate = asyncio.Semaphore(8)

    async def hold(name: str) -> None:
        async with gate:
            address = short if name in SHORT else plaintext if name == "scram_credentials" else sasl
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            peer = Dialogue(reader, writer)
            try:
                await STORIES[name](peer)
            except Exception as error:
                peer.said.append(f"failed: {error!r}")
            found[name] = peer.said
            writer.transport.abort()

    await asyncio.gather(*map(hold, STORIES))
    return found


@pytest.fixture(scope="module")
def transcripts() -> dict[str, dict[str, list[str]]]:
    found = {}
    for name in ("ottla", APACHE):
        with sasl_broker(name) as broker:
            found[name] = asyncio.run(tell_all(broker.sasl, broker.short, broker.plaintext))
    return found


@pytest.mark.parametrize("name", STORIES)
def test_the_same_answers(transcripts: dict[str, dict[str, list[str]]], name: str) -> None:
    ours, theirs = transcripts["ottla"][name], transcripts[APACHE][name]
    assert ours, "nothing was said"
    assert ours == theirs, "\n".join(difflib.unified_diff(theirs, ours, "kafka", "ottla", lineterm=""))
