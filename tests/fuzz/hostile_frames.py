"""Frames that a hostile client sends: golden requests, tokens and TLS records, changed by a seed."""

from __future__ import annotations

import base64
import json
import random
import re
import ssl
import struct
from dataclasses import dataclass
from pathlib import Path

from ottla.broker.handlers import served
from ottla.errors import MalformedInput
from ottla.protocol.headers import decode_request_header
from ottla.protocol.registry import API_BY_KEY, API_BY_NAME
from ottla.wire.codec import decoder

MESSAGES = Path(__file__).parents[1] / "golden" / "messages"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
LIMITS = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff" * 10, b"\x00\x00\x00\x00", b"\x7f\xff", b"\x80")
FIELD_LIMITS = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\x00\x00\x00")
HEADER_BYTES = 14
"""Of a golden request: api, version, correlation id and the client id "fuzz"."""


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


def handshake(mechanism: str, version: int = 1) -> bytes:
    return request("sasl_handshake", version, text(mechanism))


def token_request(token: bytes) -> bytes:
    return request("sasl_authenticate", 1, data(token))


def plain_token(user: str) -> bytes:
    return f"\0{user}\0{user}-secret".encode()


VERSIONS = frame(request("api_versions", 0, b""))


def golden() -> list[bytes]:
    """Every request in every version, also with numbers that exist: then handlers have work."""
    found = []
    for file in sorted(MESSAGES.glob("*.json")):
        for case in json.loads(file.read_text()):
            if case["kind"] == "request":
                message = bytes.fromhex(case["hex"])
                found += [request(file.stem, case["version"], each) for each in (message, _LARGE.sub(_zeros, message))]
    return found


_LARGE = re.compile(rb"\x00\x01\x11[\x70-\xff]|\x00\x00\x00\x01\x2a\x05\xf2[\x00-\xff]")
"""The numbers of golden messages, which no topic, partition or offset has."""


def _zeros(number: re.Match[bytes]) -> bytes:
    return bytes(len(number[0]))


def client_hello() -> bytes:
    """The first record of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


@dataclass(frozen=True, slots=True)
class _Fields:
    """Positions in a request that can be changed so that it still decodes."""

    bytes_: list[int]
    """Each byte of a number or of a string."""
    numbers: list[int]
    """The first of four bytes that can be any number."""

    @classmethod
    def of(cls, body: bytes) -> _Fields:
        places = range(HEADER_BYTES, len(body))
        return cls(
            [at for at in places if all(_decodes(body, at, bytes([each])) for each in (0x00, 0x01, 0x7F, body[at] ^ 0x20))],
            [at for at in places[:-3] if all(_decodes(body, at, each) for each in FIELD_LIMITS)],
        )


def _decodes(body: bytes, at: int, changed: bytes) -> bool:
    body = body[:at] + changed + body[at + len(changed) :]
    try:
        header, position = decode_request_header(memoryview(body))
        _, end = decoder(API_BY_KEY[header.api_key].request, header.api_version)(body, position)
    except MalformedInput:
        return False
    return end == len(body)


def _is_served(body: bytes) -> bool:
    """To one who is logged in. SaslHandshake is not: it begins another login."""
    key, version = struct.unpack_from(">hh", body)
    handler = served(in_cluster=False).get(key)
    if handler is None or handler.api.name == "sasl_handshake":
        return False
    return handler.min_version <= version <= handler.max_version


class HostileFrames:
    """Every choice follows from the seed. `bearer`: a token that the broker accepts; `delegation`: id and secret of another."""

    def __init__(self, seed: int, bearer: str, delegation: tuple[str, str]) -> None:
        self._chance = random.Random(seed)
        self._golden = golden()
        self._served = [each for each in self._golden if _is_served(each)]
        self._fields: list[_Fields | None] = [None] * len(self._served)
        self._logins = [handshake(name, version) for version in (0, 1) for name in (*MECHANISMS, "GSSAPI")]
        self._hello = client_hello()
        scram = b"n,,n=eve,r=nonce", b"n,a=x,n=a,r=b,tokenauth=true", f"n,,n={delegation[0]},r=nonce,tokenauth=true".encode()
        self._tokens: dict[str, tuple[bytes, ...]] = {
            "PLAIN": (plain_token("eve"), b"eve\0eve\0eve-secret", b"\0eve\0wrong", b""),
            "SCRAM-SHA-256": scram,
            "SCRAM-SHA-512": scram,
            "OAUTHBEARER": (
                f"n,,\x01auth=Bearer {bearer}\x01\x01".encode(),
                f"n,a=ada,\x01auth=Bearer {bearer}\x01key=value\x01\x01".encode(),
                b"n,,\x01auth=Bearer a.b.c\x01\x01",
                b"\x01",
            ),
        }

    def hello(self) -> bytes:
        """Bytes for a TLS listener that has seen none."""
        changed = bytearray(self._hello)
        for _ in range(self._chance.choice((1, 1, 2, 3))):
            self._change(changed, 0)
        return bytes(changed)

    def before_login(self) -> bytes:
        return self._malformed(self._chance.choice(self._logins if self._chance.random() < 0.5 else self._golden))

    def token(self, mechanism: str, *, bare: bool) -> bytes:
        """Instead of the first message of a login."""
        if self._chance.random() < 0.2:
            return self._malformed(self._chance.choice(self._golden))
        token = bytearray(self._chance.choice(self._tokens[mechanism]))
        if self._chance.random() < 0.5:
            self._change(token, 0)
        return self._message(bytes(token), bare=bare)

    def scram_first(self, *, bare: bool) -> bytes:
        """An honest one, which is answered with a challenge."""
        return self._message(self._tokens["SCRAM-SHA-256"][self._chance.choice((0, 2))], bare=bare)

    def scram_final(self, challenge: bytes, *, bare: bool) -> bytes:
        """Whole nonce, wrong proof; then changed."""
        proof = base64.b64encode(self._chance.randbytes(self._chance.choice((32, 64))))
        final = bytearray(b"c=biws,%s,p=%s" % (challenge.partition(b",")[0], proof))
        if self._chance.random() < 0.7:
            self._change(final, 0)
        return self._message(bytes(final), bare=bare)

    def after_login(self) -> bytes:
        """Mostly one that decodes: a connection lives until the first that does not."""
        chance = self._chance
        kind = chance.random()
        if kind < 0.03:
            return self._malformed(chance.choice(self._served if kind < 0.025 else self._golden))
        index = int(chance.random() * len(self._served))
        if kind < 0.15:
            return frame(self._served[index])
        original = self._served[index]
        fields = self._fields[index]
        if fields is None:
            fields = self._fields[index] = _Fields.of(original)
        body = bytearray(original)
        for _ in range(1 + int(chance.random() * 3) if fields.bytes_ else 0):
            if fields.numbers and chance.random() < 0.3:
                at = fields.numbers[int(chance.random() * len(fields.numbers))]
                body[at : at + 4] = FIELD_LIMITS[int(chance.random() * len(FIELD_LIMITS))]
            else:
                body[fields.bytes_[int(chance.random() * len(fields.bytes_))]] = int(chance.random() * 128)
        return frame(bytes(body))

    def _message(self, token: bytes, *, bare: bool) -> bytes:
        return frame(token) if bare else self._malformed(token_request(token), changes=(0, 0, 0, 1))

    def _malformed(self, body: bytes, changes: tuple[int, ...] = (0, 1, 1, 1, 2, 3)) -> bytes:
        chance = self._chance
        changed = bytearray(body)
        for _ in range(chance.choice(changes)):
            # Mostly behind the header, where the decoders are.
            self._change(changed, 0 if chance.random() < 0.125 else HEADER_BYTES)
        size = len(changed)
        if chance.random() < 0.02:
            size += chance.choice((-1, 1, 1 << 20, -(1 << 31) - size, (1 << 31) - 1 - size))
        return struct.pack(">i", size) + changed

    def _change(self, body: bytearray, start: int) -> None:
        chance = self._chance
        at = chance.randint(min(start, len(body)), len(body))
        match int(chance.random() * 6):
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
                begin = chance.randrange(len(other))
                body[at:at] = other[begin : begin + chance.randrange(1, 60)]
            case _:
                if at < len(body):
                    body[at] ^= 1 << chance.randrange(8)
