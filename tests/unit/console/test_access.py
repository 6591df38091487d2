"""Logins are counted before they are tried."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from ottla.cli.console.settings import ConsoleSettings
from ottla.cli.failure import Failure
from ottla.console.access import LOGIN_TRIES, LOGIN_TRIES_ANYWHERE, Access, Session
from ottla.console.cluster import Cluster


class Guessed(Access):
    """The cluster refuses each password, or is away."""

    asked = 0
    away = False

    def _as_user(self, user: str, password: str) -> Session | None:
        self.asked += 1
        if self.away:
            raise Failure("no broker answers", code="BROKER_AWAY")
        return None


@pytest.fixture
def access() -> Guessed:
    return Guessed(ConsoleSettings("here:1", scram_login=True), cast(Cluster, None))


async def log_in(access: Access, times: int, address: str = "10.0.0.1") -> list[str | None]:
    attempts = [access.log_in(address, {"user": "ada", "password": str(number)}) for number in range(times)]
    found = await asyncio.gather(*attempts, return_exceptions=True)
    return [each.code for each in found if isinstance(each, Failure)]


def test_attempts_at_the_same_time_are_counted(access: Guessed) -> None:
    refused = asyncio.run(log_in(access, 50))
    assert access.asked == LOGIN_TRIES
    assert sorted(map(str, refused)) == ["LOGIN_REQUIRED"] * LOGIN_TRIES + ["TOO_MANY"] * (50 - LOGIN_TRIES)


def test_a_cluster_that_is_away_refuses_nobody(access: Guessed) -> None:
    access.away = True
    for _ in range(3):
        assert asyncio.run(log_in(access, LOGIN_TRIES)) == ["BROKER_AWAY"] * LOGIN_TRIES


def test_many_addresses_have_a_limit_together(access: Guessed) -> None:
    for number in range(LOGIN_TRIES_ANYWHERE):
        assert asyncio.run(log_in(access, 1, f"10.0.1.{number}")) == ["LOGIN_REQUIRED"]
    assert asyncio.run(log_in(access, 1, "10.0.2.1")) == ["TOO_MANY"]
