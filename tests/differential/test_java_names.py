"""Subjects of certificates and mapping rules, compared with Java's X500Principal and Kafka's SslPrincipalMapper (TL03, TL04)."""

from __future__ import annotations

import base64
import random
import subprocess
from pathlib import Path

import pytest

from ottla.security.certificate import rfc2253_name
from ottla.security.ssl_principal import BadRule, NoMatchingRule, SslPrincipalMapper
from tests.kit.peers import KAFKA_4, java_command

pytestmark = pytest.mark.java

OIDS = {
    "CN": "550403",
    "C": "550406",
    "L": "550407",
    "ST": "550408",
    "O": "55040a",
    "OU": "55040b",
    "STREET": "550409",
    "DC": "0992268993f22c640119",
    "UID": "0992268993f22c640101",
    "E": "2a864886f70d010901",
    "T": "55040c",
    "serialNumber": "550405",
    "GN": "55042a",
    "private": "2b0601040182370201ffffff7f",
    "large": "88378f2f",
}
UTF8, PRINTABLE, T61, IA5, GENERAL, BMP, UNIVERSAL, NUMERIC, VISIBLE, BITS, INTEGER, OCTETS = (
    0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E, 0x1C, 0x12, 0x1A, 0x03, 0x02, 0x04
)  # fmt: skip


def tlv(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def name(*relatives: list[tuple[str, int, bytes]]) -> bytes:
    """A DER name: each relative name is a set of (attribute, tag, content)."""
    return tlv(
        0x30,
        *(
            tlv(0x31, *(tlv(0x30, tlv(6, bytes.fromhex(OIDS[oid])), tlv(tag, content)) for oid, tag, content in relative))
            for relative in relatives
        ),
    )


def one(content: bytes, tag: int = UTF8, oid: str = "CN") -> bytes:
    return name([(oid, tag, content)])


NAMES = [
    name(),
    one(b"alice"),
    name([("C", PRINTABLE, b"NL")], [("O", UTF8, b"Ottla")], [("OU", UTF8, b"x")], [("CN", UTF8, b"alice")]),
    name([("DC", IA5, b"com")], [("DC", IA5, b"example")], [("UID", UTF8, b"u1")], [("STREET", UTF8, b"Main 1")]),
    name([("CN", UTF8, b"a"), ("OU", UTF8, b"b")]),
    name([("OU", UTF8, b"b"), ("CN", UTF8, b"a"), ("E", IA5, b"a@b")]),
    *(one(bytes([char]) + b"x" + bytes([char]) + b"y" + bytes([char])) for char in range(0x80)),
    *(one(text) for text in (b"", b" ", b"  ", b" a", b"a ", b"  a  b  ", b"\r a\r", b"\t a\t", b"#a", b"a#", b"\\", b'"q"')),
    one("Zoë 東京 😀 ﬁ".encode()),
    one(b"caf\xe9", T61),
    one(b"\xff\xfe broken \xc3"),
    one("Straße".encode("utf-16-be"), BMP),
    one("x".encode("utf-32-be"), UNIVERSAL),
    one(b"123", NUMERIC),
    one(b"visible", VISIBLE),
    one(b"general", GENERAL),
    one(b"ia5", IA5),
    one(b"\x00\x80", BITS),
    one(b"\x2a", INTEGER),
    one(b"octets", OCTETS),
    one(b"x" * 300),
    one(b"x" * 70_000),
    *(one(b"a@b,c", IA5, oid) for oid in OIDS),
]

SUBJECTS = [
    "CN=kafka1.example.com,OU=Brokers,O=Ottla,C=NL",
    "CN=Duke,OU=ServiceUsers,O=Org,C=US",
    "CN=duke\\,x,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
    "cn=lower",
    "",
    "CN=Zoë Straße,O=ÎÄ",
    "CN=a\nb",
    "CN=a\rb",
]
RULES = [
    "DEFAULT",
    "",
    " DEFAULT ",
    "DEFAULT,DEFAULT",
    "DEFAULTX",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,DEFAULT",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
    "RULE:^CN=([^,]*),.*$/$1/L, RULE:^CN=(.*)$/$1@plain/ ,DEFAULT",
    "RULE:^CN=([^,]*).*/$1@$4/",
    "RULE:^CN=([^,]*).*/$12/",
    "RULE:^(C)(N)(=)(.)(.)(.)(.)(.)(.)(.)(.).*/$11-$12-$1/",
    "RULE:^CN=([^,]*).*/$0/",
    "RULE:^CN=([^,]*).*/\\$1/",
    "RULE:^CN=([^,]*).*/a\\/b$1/",
    "RULE:^CN=([^,]*).*/$1/X",
    "RULE:^CN=([^,]*).*/$1/LL",
    "RULE:^CN=([^,]*).*/$1/L,",
    "RULE:^CN=([^,]*).*/$1",
    "RULE:.*/x/",
    "RULE:.*/x/,DEFAULT",
    "RULE:[a-z]*/y/,DEFAULT",
    "RULE:CN=(?<user>[^,]*),.*/$1/",
    "RULE:^CN=(\\w+).*/$1/",
    "RULE:^CN=(\\S+)\\s?.*$/$1/",
    "RULE:(?i)^cn=([a-z]+).*$/$1/",
    "RULE:^CN=\\Qkafka1.example\\E(.*?),.*$/$1/",
    "RULE:^CN=([^]]*?),.*$/$1/",
    "RULE:^CN=([\\w.&-]+),.*$/$1/",
    "RULE:^CN=(.++),C=NL$/$1/,DEFAULT",
    "RULE:^CN=(?>[a-z0-9.]+),(.*)$/$1/,DEFAULT",
    "RULE:^CN=(.*)\\z/$1/,DEFAULT",
    "RULE:(CN)=(.*)/$2, $1/",
    "RULE:^CN=(\\u0044uke),.*$/$1/,DEFAULT",
    "RULE:(x)?CN=(.*?),.*/[$1]$2/",
    "rubbish",
    "RULE:",
    "RULE:a",
    "RULE:(/x/",
]
UNSUPPORTED = {
    "RULE:^CN=(\\p{Alpha}+),.*$/$1/",
    "RULE:^CN=([a-z&&[^k]]+),.*$/$1/",
    "RULE:(?x) ^CN=(.*?),.* $/$1/",
    "RULE:^CN=(?<u>.)\\k<u>.*/$1/",
}
"""Java knows them, Ottla refuses to start with them."""


def in_java(lines: list[str]) -> list[str]:
    command = java_command(KAFKA_4, str(Path(__file__).parent / "JavaNames.java"))
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=300)
    answers = done.stdout.split("\n")[:-1]
    assert len(answers) == len(lines), done.stderr
    return [answer[0] + base64.b64decode(answer[1:]).decode() for answer in answers]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def mapped(rules: str, subject: str) -> str:
    try:
        return "=" + SslPrincipalMapper(rules).name_of(subject)
    except (BadRule, NoMatchingRule):
        return "!"


def random_names(seed: int, count: int) -> list[bytes]:
    rng = random.Random(seed)
    alphabet = [*'ab ,=+<>#;"\\\r\0', "é", "😀", "\n"]
    return [
        name(
            *(
                [
                    (
                        rng.choice(list(OIDS)),
                        rng.choice([UTF8, PRINTABLE, IA5]),
                        "".join(rng.choices(alphabet, k=rng.randrange(6))).encode(),
                    )
                    for _ in range(rng.randint(1, 2))
                ]
                for _ in range(rng.randint(1, 4))
            )
        )
        for _ in range(count)
    ]


def test_tl03_a_subject_is_written_as_java_writes_it() -> None:
    names = [*NAMES, *random_names(1, 400)]
    answers = in_java([f"name {der.hex()}" for der in names])
    different = {der.hex(): (answer, "=" + rfc2253_name(der)) for der, answer in zip(names, answers, strict=True)}
    assert {der: pair for der, pair in different.items() if pair[0] != pair[1] and pair[0][0] == "="} == {}
    assert sum(answer[0] == "=" for answer in answers) > len(names) * 0.9


def test_tl04_rules_map_as_kafkas_mapper_does() -> None:
    cases = [(rules, subject) for rules in RULES for subject in SUBJECTS]
    answers = in_java([f"rule {encoded(rules)} {encoded(subject)}" for rules, subject in cases])
    different = {}
    for (rules, subject), answer in zip(cases, answers, strict=True):
        ours = mapped(rules, subject)
        if ours != (answer if answer[0] == "=" else "!"):
            different[rules, subject] = (answer, ours)
    assert different == {}


@pytest.mark.parametrize("rules", sorted(UNSUPPORTED))
def test_tl04_a_pattern_that_python_does_not_have_is_refused(rules: str) -> None:
    with pytest.raises(BadRule, match="is not supported"):
        SslPrincipalMapper(rules)
