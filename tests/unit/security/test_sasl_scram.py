"""SCRAM, server side (SC01, SC02). The client is the one that Ottla's own clients use, the vectors are those of the RFCs."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from ottla.client.scram import Scram
from ottla.security.principal import Principal
from ottla.security.sasl import Challenge, SaslFailure, Success
from ottla.security.sasl_scram import ScramIdentity, ScramServer, parse_client_final, parse_client_first
from ottla.security.scram_credential import ScramCredential

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
KEY = b"k" * 32


def lookup(mechanism: str, user: str, is_token: bool) -> ScramIdentity | None:
    if is_token:
        if user != "token-id":
            return None
        credential = ScramCredential.of_password(mechanism, b"salt", "aG1hYw==")
        return ScramIdentity(credential, Principal("User", "owner"), expires_at_ms=5000, by_token=True)
    passwords = {"ada": "secret", "a,b=c": "p,w=", "few": "secret"}
    if user not in passwords:
        return None
    iterations = 4095 if user == "few" else 4096
    return ScramIdentity(
        ScramCredential.of_password(mechanism, b"salt-of-" + user.encode(), passwords[user], iterations), Principal("User", user)
    )


def server(mechanism: str = "SCRAM-SHA-256", nonce: str = "servernonce", key: bytes = KEY) -> ScramServer:
    return ScramServer(mechanism, lookup, nonce, key)


def challenge(answer: Challenge | Success) -> bytes:
    assert isinstance(answer, Challenge)
    return answer.token


def login(mechanism: str, user: str, password: str, *, now_ms: int = 0) -> Success:
    one, client = server(mechanism), Scram(mechanism, user, password, b"n" * 24)
    answer = one.step(client.final(challenge(one.step(client.first(), now_ms))), now_ms)
    assert isinstance(answer, Success)
    assert answer.token is not None
    client.check_last(answer.token)
    return answer


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("ada", "secret"), ("a,b=c", "p,w=")])
def test_sc01_a_user_with_its_password_succeeds(mechanism: str, user: str, password: str) -> None:
    success = login(mechanism, user, password)
    assert success == Success(Principal("User", user), success.token)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("ada", "Secret"), ("nobody", "secret"), ("few", "secret")])
def test_sc02_a_wrong_password_and_an_unknown_user_fail_at_the_last_step(mechanism: str, user: str, password: str) -> None:
    one, client = server(mechanism), Scram(mechanism, user, password, b"n" * 24)
    final = client.final(challenge(one.step(client.first(), 0)))
    with pytest.raises(SaslFailure) as failure:
        one.step(final, 0)
    assert failure.value.told is None


def test_sc01_the_vector_of_rfc_7677() -> None:
    credential = ScramCredential.of_password("SCRAM-SHA-256", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), "pencil")
    one = ScramServer(
        "SCRAM-SHA-256",
        lambda mechanism, user, is_token: ScramIdentity(credential, Principal("User", user)),
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        KEY,
    )
    first = challenge(one.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", 0))
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    success = one.step(final, 0)
    assert success.token == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"y,,n=ada,r=nonce",
        b"p=tls-unique,,n=ada,r=nonce",
        b"n,,n=ada",
        b"n,,n=,r=nonce",
        b"n,,n=ada,r=",
        b"n,,r=nonce,n=ada",
        b"n,,n=a=2cda,r=nonce",
        b"n,,n=a=da,r=nonce",
        b"n,,n=ada,r=no\0nce",
        b"n,,n=ada,r=nonce,",
        b"n,,n=ada,r=nonce,1=x",
        b"n,,n=ad\xc3\xa4,r=nonce",
        b"n,ada,n=ada,r=nonce",
        b"n,,n=ada,r=" + b"x" * 20_000,
        b"\xff\xfe",
    ],
)
def test_sc01_a_malformed_first_message_fails(message: bytes) -> None:
    with pytest.raises(SaslFailure):
        server().step(message, 0)


def test_sc01_the_parts_of_a_first_message() -> None:
    first = parse_client_first(b"n,a=a=2Cb=3Dc,m=x,n=a=2Cb=3Dc,r=nonce,tokenauth=True,other=x=y")
    assert (first.user, first.authorization_id, first.nonce, first.token_auth) == ("a,b=c", "a,b=c", "nonce", True)
    assert first.gs2_header == "n,a=a=2Cb=3Dc,"
    assert first.bare == "m=x,n=a=2Cb=3Dc,r=nonce,tokenauth=True,other=x=y"
    assert not parse_client_first(b"n,,n=ada,r=nonce,tokenauth=false").token_auth


def test_sc01_another_authorization_id_fails() -> None:
    with pytest.raises(SaslFailure, match="authorization id"):
        server().step(b"n,a=bob,n=ada,r=nonce", 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final.replace(b"servernonce", b"servernoncx"),
        lambda final: final.replace(b"r=", b"r=x"),
        lambda final: final.replace(b"servernonce", b"servernoncex"),
        lambda final: final.replace(b"servernonce,", b","),
        lambda final: final.replace(b"c=biws", b"c=" + base64.b64encode(b"y,,")),
        lambda final: final.replace(b"c=biws", b"c="),
        lambda final: final.rpartition(b",p=")[0],
        lambda final: final.rpartition(b",p=")[0] + b",p=",
        lambda final: final.rpartition(b",p=")[0] + b",p=AAAA",
        lambda final: final + b",x=y",
        lambda final: b"",
    ],
)
def test_sc01_cv07_a_changed_final_message_fails(change: object) -> None:
    one, client = server(), Scram("SCRAM-SHA-256", "ada", "secret", b"n" * 24)
    final = client.final(challenge(one.step(client.first(), 0)))
    assert callable(change)
    with pytest.raises(SaslFailure):
        one.step(change(final), 0)


def test_sc01_librdkafka_before_2_6_1_repeats_its_nonce() -> None:
    one, client = server(), Scram("SCRAM-SHA-256", "ada", "secret", b"n" * 24)
    first = challenge(one.step(client.first(), 0))
    own = client.first().rpartition(b"r=")[2]
    client._nonce = own.decode() * 2
    # What the client signs is what it sends.
    salt, iterations = first.split(b",")[1:]
    doubled = client.final(b"r=" + own + first.removeprefix(b"r=").partition(b",")[0] + b"," + salt + b"," + iterations)
    without_proof = doubled.rpartition(b",p=")[0]
    credential = ScramCredential.of_password("SCRAM-SHA-256", b"salt-of-ada", "secret")
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt-of-ada", 4096)
    key = hmac.digest(salted, b"Client Key", "sha256")
    said = b",".join([client.first().removeprefix(b"n,,"), first, without_proof])
    signature = hmac.digest(credential.stored_key, said, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))
    assert isinstance(one.step(without_proof + b",p=" + proof, 0), Success)


def test_cv07_an_overheard_login_cannot_be_replayed() -> None:
    client = Scram("SCRAM-SHA-256", "ada", "secret", b"n" * 24)
    one = server(nonce="first")
    final = client.final(challenge(one.step(client.first(), 0)))
    assert isinstance(one.step(final, 0), Success)
    other = server(nonce="second")
    other.step(client.first(), 0)
    with pytest.raises(SaslFailure, match="nonce"):
        other.step(final, 0)


def test_sc02_the_salt_of_an_unknown_user_is_stable_and_like_a_real_one() -> None:
    def salt(user: str, key: bytes = KEY, mechanism: str = "SCRAM-SHA-256") -> bytes:
        first = challenge(server(mechanism, key=key).step(f"n,,n={user},r=nonce".encode(), 0))
        fields = dict(field.split(b"=", 1) for field in first.split(b","))
        assert fields[b"i"] == b"4096"
        return base64.b64decode(fields[b"s"])

    assert salt("nobody") == salt("nobody")
    assert len({salt("nobody"), salt("noone"), salt("nobody", b"other"), salt("nobody", mechanism="SCRAM-SHA-512")}) == 4
    assert 22 <= len(salt("nobody")) <= 26
    assert salt("nobody").isalnum()


def test_sc01_a_delegation_token_logs_in_as_its_owner_until_it_expires() -> None:
    def token_login(now_ms: int) -> Challenge | Success:
        one, client = server(), Scram("SCRAM-SHA-256", "token-id", "aG1hYw==", b"n" * 24)
        client._first_bare += ",tokenauth=true"
        return one.step(client.final(challenge(one.step(client.first(), now_ms))), now_ms)

    success = token_login(4999)
    assert isinstance(success, Success)
    assert (success.principal, success.by_token, success.expires_at_ms) == (Principal("User", "owner"), True, 5000)
    with pytest.raises(SaslFailure):
        token_login(5000)
    # Without the extension it is the name of a user.
    with pytest.raises(SaslFailure):
        login("SCRAM-SHA-256", "token-id", "aG1hYw==")


def test_sc01_the_parts_of_a_final_message_are_not_shown() -> None:
    final = parse_client_final(b"c=biws,r=nonce,x=y,p=AAAA")
    assert final.without_proof == "c=biws,r=nonce,x=y"
    assert "AAAA" not in repr(final)


def test_sc03_a_credential_is_kafkas_text() -> None:
    text = "salt=c2FsdA==,stored_key=AAAA,server_key=BBBB,iterations=8192"
    credential = ScramCredential.parse(text)
    assert credential.text() == text
    assert "AAAA" not in repr(credential)
    for wrong in ("", "salt=c2FsdA==", text + ",x=y", text.replace("8192", "-1"), text.replace("AAAA", "A!AA")):
        with pytest.raises(ValueError):
            ScramCredential.parse(wrong)
