"""The first users of a new cluster: SCRAM credentials from a file, before anybody can log in to create them.

`ottla.bootstrap.users.file` names a properties file with a line for each user and mechanism; the value is what Kafka keeps in
/config/users, salted:

    admin.SCRAM-SHA-512=salt=…,stored_key=…,server_key=…,iterations=8192

It is applied once: a node in the metadata tree remembers it. So a user that was removed does not come back with the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from ottla.broker.metadata.client_configs import alter_client_config
from ottla.broker.startup_error import StartupError
from ottla.cluster import znodes
from ottla.cluster.client_entities import USER
from ottla.cluster.properties import PropertiesError, parse_properties
from ottla.ports import Create, MetadataStore, NodeExists
from ottla.security.scram_credential import SCRAM_HASHES, ScramCredential

logger = logging.getLogger(__name__)

Users = Mapping[str, Mapping[str, str]]
"""Credentials by user and mechanism."""


async def add_bootstrap_users(store: MetadataStore, path: str) -> None:
    """StartupError if the file cannot be used. After the first time it is not even read."""
    if await store.get(znodes.BOOTSTRAPPED_USERS) is not None:
        return
    users = parse_users(path)
    for user, credentials in users.items():
        await add_user(store, user, credentials)
    try:
        await store.multi([Create(znodes.BOOTSTRAPPED_USERS)])
    except NodeExists:
        return  # another broker was faster, with the same file
    logger.info("Added the users of ottla.bootstrap.users.file: %s", ", ".join(sorted(users)))


async def add_user(store: MetadataStore, user: str, credentials: Mapping[str, str], *, replace: bool = False) -> None:
    """Credentials that exist already stay, unless they are to be replaced."""
    await alter_client_config(
        store, ((USER, user),), lambda config: {**config, **credentials} if replace else {**credentials, **config}
    )


def parse_users(path: str) -> Users:
    name = f"ottla.bootstrap.users.file={path}"
    try:
        lines = parse_properties(Path(path).read_text())
    except OSError as error:
        raise StartupError(f"{name} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, PropertiesError) as error:
        raise StartupError(f"{name}: {error}") from None
    users: dict[str, dict[str, str]] = {}
    for key, text in lines.items():
        user, _, mechanism = key.rpartition(".")
        if not user or mechanism not in SCRAM_HASHES:
            raise StartupError(f"{name}: {key} is not USER.MECHANISM; mechanisms are {', '.join(SCRAM_HASHES)}")
        try:
            users.setdefault(user, {})[mechanism] = ScramCredential.parse(text).text()
        except ValueError:
            raise StartupError(f"{name}: the value of {key} is not a SCRAM credential") from None
    return users
