"""The public keys of an OAuth issuer (JWKS), kept current.

Owns when they are read: before the port opens, every `sasl.oauthbearer.jwks.endpoint.refresh.ms`, and at most once a minute when
a token names a key that is not known. A read that fails is repeated with backoff, and the keys known before stay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ottla.broker.startup_error import StartupError
from ottla.cluster.settings.sasl import OAuthSettings
from ottla.ports import Clock, Workers
from ottla.security.jwt import KEY_ID_MAX, NO_KEYS, BadKeys, KeySet, UnknownKey, ValidToken, parse_keys, validate

logger = logging.getLogger(__name__)

_EXPEDITED_S: Final = 60.0
_TIMEOUT_S: Final = 10.0
_START_TRIES: Final = 4


class IssuerKeys:
    def __init__(self, settings: OAuthSettings, workers: Workers, clock: Clock, read_url: Callable[[str, float], bytes]) -> None:
        assert settings.jwks_url is not None
        self.keys: KeySet = NO_KEYS
        self._settings = settings
        self._url = settings.jwks_url
        self._workers = workers
        self._clock = clock
        self._read_url = read_url
        self._wanted = asyncio.Event()
        self._expedited_at: float | None = None
        self._task: asyncio.Task[None] | None = None

    def validate(self, token: str, now_ms: int) -> ValidToken:
        try:
            return validate(token, self.keys, self._settings.rules, now_ms)
        except UnknownKey as error:
            self._expedite(error.key_id)
            raise

    async def start(self) -> None:
        """Read the keys, then keep them current. StartupError if they cannot be read."""
        for number in range(_START_TRIES):
            try:
                await self._read()
                break
            except (OSError, BadKeys) as error:
                if number == _START_TRIES - 1:
                    raise StartupError(
                        f"cannot read the keys at {self._url} (sasl.oauthbearer.jwks.endpoint.url): {error}"
                    ) from error
                await asyncio.sleep(self._backoff_s(number))
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _follow(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.refresh_ms / 1000):
                    await self._wanted.wait()
            self._wanted.clear()
            tries = 0
            while True:
                try:
                    await self._read()
                    break
                except (OSError, BadKeys) as error:
                    if tries == 0:
                        logger.error(
                            "Cannot read the keys at %s, keeping those known before and trying again: %s", self._url, error
                        )
                    await asyncio.sleep(self._backoff_s(tries))
                    tries += 1

    async def _read(self) -> None:
        document = await self._workers.run(lambda: self._read_url(self._url, _TIMEOUT_S))
        self.keys = parse_keys(document)
        if not self.keys.keys:
            logger.warning("There are no keys for signatures at %s: all tokens are refused", self._url)

    def _backoff_s(self, tries: int) -> float:
        return min(self._settings.backoff_ms << min(tries, 30), self._settings.backoff_ms_max) / 1000

    def _expedite(self, key_id: str) -> None:
        now = self._clock.monotonic()
        if len(key_id) > KEY_ID_MAX or (self._expedited_at is not None and now - self._expedited_at < _EXPEDITED_S):
            return
        self._expedited_at = now
        self._wanted.set()
