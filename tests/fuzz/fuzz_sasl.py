"""Coverage-guided fuzzing of the parsers of logins, certificates and key stores, with atheris.

    python -m tests.fuzz.fuzz_sasl [seconds]

The first byte of an input picks the parser: PLAIN, SCRAM's two messages, OAUTHBEARER, JWT, JWKS, JAAS, Kerberos names and rules,
subjects of certificates and the rules that map them, JKS stores, passwords that Kafka has encrypted.
Each may return a value or raise its own exception; anything else stops the run and leaves the input in a `crash-...` file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["ottla.security", "ottla.tls.stores"]):
    from ottla.security.certificate import BadCertificate, read_certificate
    from ottla.security.jaas import BadJaas, parse_jaas, parse_jaas_file
    from ottla.security.jwt import NO_KEYS, BadKeys, BadToken, TokenRules, parse_keys, validate, validate_unsecured
    from ottla.security.kerberos_name import BadRule, NoUser, parse_rules, user_of
    from ottla.security.password_encoder import BadEncoding, PasswordEncoder
    from ottla.security.sasl import SaslFailure
    from ottla.security.sasl_oauthbearer import parse_client_message
    from ottla.security.sasl_plain import PlainServer, plain_users
    from ottla.security.sasl_scram import parse_client_final, parse_client_first
    from ottla.security.scram_credential import ScramCredential
    from ottla.security.ssl_principal import BadRule as BadMapping
    from ottla.security.ssl_principal import NoMatchingRule, SslPrincipalMapper
    from ottla.tls.stores import BadStore, certificates, key_and_chain

from tests.kit.certificates import Authority


def jks(der: bytes) -> bytes:
    """A trust store with one certificate."""
    entry = struct.pack(">iH1sqH5si", 2, 1, b"a", 0, 5, b"X.509", len(der)) + der
    content = struct.pack(">Iii", 0xFEEDFEED, 2, 1) + entry
    return content + hashlib.sha1("secret".encode("utf-16-be") + b"Mighty Aphrodite" + content).digest()


_STORE = Path(tempfile.gettempdir(), f"ottla-fuzz-{os.getpid()}.jks")
_USERS = plain_users({"user_ada": "secret"})
_RULES = parse_rules(["RULE:[1:$1@$0](.*@R)s/@.*//", "RULE:[2:$1]/L", "DEFAULT"])
_SEEDS = [
    b"\x00\0ada\0secret",
    b"\x01n,,n=ada,r=nonce,tokenauth=true",
    b"\x02c=biws,r=nonce,p=AAAA",
    b"\x03n,a=x,\x01auth=Bearer a.b.c\x01k=v\x01\x01",
    b"\x04eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIiwiZXhwIjoxfQ.",
    b'\x05{"keys":[{"kty":"EC","crv":"P-256","kid":"1","x":"AA","y":"AA"}]}',
    b'\x06a.B required user_x="y";',
    b'\x07S { a.B required x="y"; };',
    b"\x08kafka/host@R",
    b"\x09RULE:[1:$1](a)s/b/c/g/L",
    b"\x0bRULE:^CN=(.*?),(.*)$/$1@$2/L,DEFAULT\nCN=ada,O=x",
    b"\x0c" + Authority().issue("ada").der,
    b"\x0d" + jks(Authority().issue("ada").der),
    b"\x0eiterations:1024,keyLength:128,salt:AA==,initializationVector:AAAAAAAAAAAAAAAAAAAAAA==,"
    b"keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,passwordLength:1,"
    b"encryptedPassword:AAAAAAAAAAAAAAAAAAAAAA==",
    b"\x0asalt=AAAA,stored_key=AAAA,server_key=AAAA,iterations=4096",
]


def one_input(data: bytes) -> None:
    kind, rest = data[:1], data[1:]
    text = rest.decode(errors="replace")
    refusals = (SaslFailure, BadToken, BadKeys, BadJaas, BadRule, NoUser, BadMapping, NoMatchingRule, BadCertificate, BadEncoding)
    with contextlib.suppress(*refusals):
        match kind:
            case b"\x00":
                PlainServer(_USERS).step(rest, 0)
            case b"\x01":
                assert parse_client_first(rest).user
            case b"\x02":
                parse_client_final(rest)
            case b"\x03":
                assert parse_client_message(rest).token
            case b"\x04":
                with contextlib.suppress(BadToken):
                    validate(text, NO_KEYS, TokenRules(), 0)
                validate_unsecured(text, TokenRules(), (), 0)
            case b"\x05":
                parse_keys(rest)
            case b"\x06":
                parse_jaas(text)
            case b"\x07":
                parse_jaas_file(text)
            case b"\x08":
                assert user_of(text, _RULES, "R")
            case b"\x09":
                parse_rules([text])
            case b"\x0a":
                with contextlib.suppress(ValueError):
                    ScramCredential.parse(text)
            case b"\x0b":
                rules, _, name = text.partition("\n")
                SslPrincipalMapper(rules).name_of(name[:200])
            case b"\x0c":
                read_certificate(rest)
            case b"\x0d":
                _STORE.write_bytes(b"\xfe\xed\xfe\xed" + rest[4:])
                for read in (lambda: certificates(str(_STORE), None), lambda: key_and_chain(str(_STORE), None, "secret")):
                    with contextlib.suppress(BadStore):
                        read()
            case b"\x0e" if b"iterations:1024," in rest:
                PasswordEncoder(("secret",)).decode(text)


def main() -> None:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(_SEEDS):
            Path(corpus, str(number)).write_bytes(seed)
        atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", "-max_len=4096", corpus], one_input)
        try:
            atheris.Fuzz()
        finally:
            _STORE.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
