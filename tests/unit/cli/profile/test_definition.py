"""Secrets of a profile: from the environment, from commands, and never shown."""

from __future__ import annotations

import pytest

from ottla.cli.failure import Failure
from ottla.cli.profile.definition import Profile


def test_variables_are_read_when_the_properties_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = Profile("p", "a:1", {"sasl.jaas.config": 'x password="${PROFILE_PW}";', "plain": "$${PROFILE_PW} $5"})
    with pytest.raises(Failure, match=r"profile p: sasl\.jaas\.config needs the environment variable PROFILE_PW"):
        profile.resolved()
    monkeypatch.setenv("PROFILE_PW", "s3${x}")
    assert profile.resolved() == {"sasl.jaas.config": 'x password="s3${x}";', "plain": "${PROFILE_PW} $5"}


def test_the_first_line_of_a_command_is_the_value() -> None:
    profile = Profile("p", "a:1", {"sasl.password_command": "printf 'one two\\nthree\\n'", "client.id": "c"})
    assert profile.resolved() == {"sasl.password": "one two", "client.id": "c"}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("false", "ended with exit code 1"),
        ("true", "printed nothing"),
        ("no-such-program", "cannot run: No such file"),
        ("'", "cannot run"),
    ],
)
def test_a_command_that_fails_is_told(command: str, message: str) -> None:
    with pytest.raises(Failure, match=message):
        Profile("p", "a:1", {"ssl.key.password_command": command}).resolved()


def test_secrets_are_not_shown() -> None:
    properties = {
        "sasl.password": "pw1",
        "sasl.jaas.config": 'm required password="pw2";',
        "ssl.keystore.key": "pw3",
        "sasl.oauthbearer.client.secret": "pw4",
        "ssl.key.pem": "pw5",
        "sasl.username": "alice",
        "ssl.key.password": "${KEY_PW}",
        "ssl.truststore.location": "trust.pem",
    }
    profile = Profile("p", "a:1", properties)
    shown = profile.document()["properties"]
    assert "pw" not in str(shown) + repr(profile)
    assert shown["sasl.username"] == "alice"
    assert shown["ssl.key.password"] == "${KEY_PW}"
    assert shown["ssl.truststore.location"] == "trust.pem"
