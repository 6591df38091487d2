"""SCRAM as a client speaks it: the RFC's own dialogue, and servers that lie."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from ottla.client.scram import Scram, ScramError

NONCE = base64.b64decode("rOprNGfwEbeRWgbNEkqO")
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def test_the_dialogue_of_rfc_7677() -> None:
    scram = Scram("SCRAM-SHA-256", "user", "pencil", NONCE)
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.final(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    scram.check_last(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_sha_512_proves_the_password_to_one_who_keeps_only_its_key() -> None:
    scram = Scram("SCRAM-SHA-512", "alice", "secret", b"nonce-of-the-client")
    first = scram.first()[3:]
    nonce = first.partition(b"r=")[2] + b"server"
    server_first = b"r=" + nonce + b",s=" + base64.b64encode(b"salt") + b",i=8192"
    without_proof, _, proof = scram.final(server_first).partition(b",p=")
    said = b",".join([first, server_first, without_proof])
    salted = hashlib.pbkdf2_hmac("sha512", b"secret", b"salt", 8192)
    stored = hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()
    signature = hmac.digest(stored, said, "sha512")
    client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    assert hashlib.sha512(client_key).digest() == stored
    scram.check_last(b"v=" + base64.b64encode(hmac.digest(hmac.digest(salted, b"Server Key", "sha512"), said, "sha512")))


def test_names_with_commas_and_equals_signs_are_escaped() -> None:
    assert Scram("SCRAM-SHA-256", "a=b,c", "x", NONCE).first() == b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"r=somebodyelse,s=c2FsdA==,i=4096", "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=c2FsdA==,i=4096", "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=c2FsdA==,i=1", "1 iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=c2FsdA==,i=99999999999", "iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=c2FsdA==", "no number"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=!,i=4096", "salt"),
        (b"\xff", "UTF-8"),
        (b"", "nonce"),
    ],
)
def test_a_first_answer_that_cannot_be_is_refused(answer: bytes, said: str) -> None:
    with pytest.raises(ScramError, match=said):
        Scram("SCRAM-SHA-256", "user", "pencil", NONCE).final(answer)


@pytest.mark.parametrize(
    ("answer", "said"),
    [(b"v=AAAA", "not the one"), (b"v=!", "not the one"), (b"", "not the one"), (b"e=unknown-user", "unknown-user")],
)
def test_a_server_without_the_password_is_found_out(answer: bytes, said: str) -> None:
    scram = Scram("SCRAM-SHA-256", "user", "pencil", NONCE)
    scram.final(SERVER_FIRST)
    with pytest.raises(ScramError, match=said):
        scram.check_last(answer)


def test_a_server_that_skips_the_dialogue_is_found_out() -> None:
    with pytest.raises(ScramError, match="not the one"):
        Scram("SCRAM-SHA-256", "user", "pencil", NONCE).check_last(b"v=")
