"""Frames that a hostile client sends: golden requests, records, tokens and TLS records, changed by chance.

`Corpus` is what all clients begin with, `HostileFrames` is one client. Its frames follow from its seed.
"""

from __future__ import annotations

import base64
import json
import random
import re
import ssl
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ottla.broker.handlers import served
from ottla.errors import MalformedInput
from ottla.protocol.headers import decode_request_header
from ottla.protocol.registry import API_BY_KEY, API_BY_NAME
from ottla.wire.codec import decoder
from tests.fuzz.hostile_records import HostileRecords

MESSAGES = Path(__file__).parents[1] / "golden" / "messages"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
LIMITS = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\x00\x00\x00", b"\x7f\xff", b"\xff\xff", b"\x80")
FIELD_LIMITS = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\x00\x00\x00")
CHANGES = (
    "a byte", "a number at a limit", "bytes missing", "bytes inserted", "part of another request", "a bit",
    "text that is not UTF-8", "tagged fields", "an overlong varint",
)  # fmt: skip
TAGS = (
    b"\x02\x05\x01x\x05\x01y",  # one twice
    b"\x02\x09\x00\x05\x00",  # not in order
    b"\x01\x05\x7fx",  # past the end
    b"\xff\xff\xff\xff\x0f",  # too many
    b"\x01\x00\x01\x00",  # one that the message may define
)
MALFORMED_SHARE = 0.025
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


class Corpus:
    """`bearer`: a token that the broker accepts; `delegation`: id and secret of another."""

    def __init__(self, bearer: str, delegation: tuple[str, str]) -> None:
        self.golden = golden()
        self.served = [each for each in self.golden if _is_served(each)]
        self.fields = [_Fields.of(each) for each in self.served]
        self.records = HostileRecords()
        self.logins = [handshake(name, version) for version in (0, 1) for name in (*MECHANISMS, "GSSAPI")]
        self.hello = client_hello()
        scram = b"n,,n=eve,r=nonce", b"n,a=x,n=a,r=b,tokenauth=true", f"n,,n={delegation[0]},r=nonce,tokenauth=true".encode()
        self.tokens: dict[str, tuple[bytes, ...]] = {
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


class HostileFrames:
    """`kinds` counts what was done to the frames."""

    def __init__(self, corpus: Corpus, chance: random.Random, kinds: Counter[str]) -> None:
        self._corpus = corpus
        self._chance = chance
        self._kinds = kinds

    def at_the_door(self) -> bytes:
        """Bytes for a TLS listener that has seen none."""
        chance, corpus = self._chance, self._corpus
        kind = chance.random()
        if kind < 0.2:
            self._kinds["no TLS at the TLS door"] += 1
            return frame(chance.choice(corpus.golden)) if kind < 0.15 else b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n"
        if kind < 0.4:
            self._kinds["TLS records behind the hello"] += 1
            return corpus.hello + b"".join(self.tls_record() for _ in range(chance.randint(1, 3)))
        if kind < 0.5:
            self._kinds["half a hello"] += 1
            return corpus.hello[: chance.randrange(len(corpus.hello))]
        changed = bytearray(corpus.hello)
        for _ in range(chance.choice((1, 1, 2, 3))):
            self._change(changed, 0)
        return bytes(changed)

    def tls_record(self) -> bytes:
        """One that does not belong: early data, a second hello, an alert, rubbish."""
        chance = self._chance
        kind = chance.choice((0x14, 0x15, 0x16, 0x17, 0x18, chance.randrange(256)))
        if kind == 0x16 and chance.random() < 0.5:
            return self._corpus.hello
        data = chance.randbytes(chance.randrange(1, 300))
        size = len(data) if chance.random() < 0.8 else chance.choice((0, 1, 0xFFFF, 0x4001))
        return struct.pack(">BHH", kind, chance.choice((0x0301, 0x0303, 0x0304, 0)), size) + data

    def before_login(self) -> bytes:
        corpus = self._corpus
        return self._malformed(self._chance.choice(corpus.logins if self._chance.random() < 0.5 else corpus.golden))

    def token(self, mechanism: str, *, bare: bool) -> bytes:
        """Instead of the first message of a login."""
        chance, corpus = self._chance, self._corpus
        kind = chance.random()
        if kind < 0.15:
            return self._malformed(chance.choice(corpus.golden))
        if kind < 0.2:
            self._kinds["a handshake again"] += 1
            return frame(chance.choice(corpus.logins))
        token = bytearray(chance.choice(corpus.tokens[mechanism]))
        if chance.random() < 0.5:
            self._change(token, 0)
        return self._message(bytes(token), bare=bare)

    def scram_first(self, *, bare: bool) -> bytes:
        """An honest one, which is answered with a challenge."""
        return self._message(self._corpus.tokens["SCRAM-SHA-256"][self._chance.choice((0, 2))], bare=bare)

    def scram_final(self, challenge: bytes, *, bare: bool) -> bytes:
        """Whole nonce, wrong proof; then changed."""
        proof = base64.b64encode(self._chance.randbytes(self._chance.choice((32, 64))))
        final = bytearray(b"c=biws,%s,p=%s" % (challenge.partition(b",")[0], proof))
        if self._chance.random() < 0.7:
            self._change(final, 0)
        return self._message(bytes(final), bare=bare)

    def burst_after_login(self, count_max: int) -> list[bytes]:
        """Mostly frames that decode: a connection lives until the first that does not. A few follow behind it."""
        frames: list[bytes] = []
        while len(frames) < count_max:
            if self._chance.random() < MALFORMED_SHARE:
                corpus = self._corpus
                frames.append(
                    self._malformed(self._chance.choice(corpus.served if self._chance.random() < 0.8 else corpus.golden))
                )
                count_max = min(count_max, len(frames) + 3)
            else:
                frames.append(self.after_login())
        return frames

    def after_login(self) -> bytes:
        """One that decodes."""
        chance, corpus = self._chance, self._corpus
        kind = chance.random()
        if kind < 0.12:
            wrong, version, message = corpus.records.message(chance)
            self._kinds[f"records: {wrong}"] += 1
            return frame(request("produce", version, message))
        index = int(chance.random() * len(corpus.served))
        original = corpus.served[index]
        if kind < 0.17:
            self._kinds["a golden request"] += 1
            return frame(original)
        fields = corpus.fields[index]
        body = bytearray(original)
        self._kinds["fields"] += 1
        for _ in range(1 + int(chance.random() * 3) if fields.bytes_ else 0):
            if fields.numbers and chance.random() < 0.3:
                at = fields.numbers[int(chance.random() * len(fields.numbers))]
                body[at : at + 4] = FIELD_LIMITS[int(chance.random() * len(FIELD_LIMITS))]
            else:
                body[fields.bytes_[int(chance.random() * len(fields.bytes_))]] = int(chance.random() * 128)
        return frame(bytes(body))

    def _message(self, token: bytes, *, bare: bool) -> bytes:
        if bare:
            self._kinds["a bare token"] += 1
            return frame(token)
        return self._malformed(token_request(token), changes=(0, 0, 0, 1))

    def _malformed(self, body: bytes, changes: tuple[int, ...] = (0, 1, 1, 1, 2, 3)) -> bytes:
        chance = self._chance
        changed = bytearray(body)
        for _ in range(chance.choice(changes)):
            # Mostly behind the header, where the decoders are.
            self._change(changed, 0 if chance.random() < 0.125 else HEADER_BYTES)
        size = len(changed)
        if chance.random() < 0.02:
            self._kinds["length of a frame"] += 1
            size = chance.choice((size - 1, size + 1, size + (1 << 20), 0, -1, -(1 << 31), (1 << 31) - 1, (100 << 20) + 1))
        return struct.pack(">i", size) + changed

    def _change(self, body: bytearray, start: int) -> None:
        chance = self._chance
        at = chance.randint(min(start, len(body)), len(body))
        kind = int(chance.random() * len(CHANGES))
        self._kinds[CHANGES[kind]] += 1
        match CHANGES[kind]:
            case "a byte":
                body[at : at + 1] = bytes([chance.randrange(256)])
            case "a number at a limit":
                limit = chance.choice(LIMITS)
                body[at : at + len(limit)] = limit
            case "bytes missing":
                del body[at : at + chance.randrange(1, 9)]
            case "bytes inserted":
                body[at:at] = chance.randbytes(chance.randrange(1, 9))
            case "part of another request":
                other = chance.choice(self._corpus.golden)
                begin = chance.randrange(len(other))
                body[at:at] = other[begin : begin + chance.randrange(1, 60)]
            case "text that is not UTF-8":
                at = body.find(b"text-")
                body[max(at, 0) : max(at, 0) + 2] = b"\xc3\x28"
            case "tagged fields":
                # At the end, where those of a flexible request are.
                body[-1:] = chance.choice(TAGS)
            case "an overlong varint":
                body[at : at + 1] = b"\xff" * chance.randrange(4, 11) + b"\x01"
            case _:
                if at < len(body):
                    body[at] ^= 1 << chance.randrange(8)
