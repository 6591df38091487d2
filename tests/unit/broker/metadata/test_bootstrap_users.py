"""The first users of a cluster come from a file, once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.broker.metadata.bootstrap_users import add_bootstrap_users, parse_users
from ottla.broker.metadata.client_configs import alter_client_config, load_client_configs
from ottla.broker.metadata.identity import ensure_base_paths
from ottla.broker.startup_error import StartupError
from ottla.cluster.client_entities import USER
from ottla.runtime.embedded_store import EmbeddedStore
from ottla.security.scram_credential import ScramCredential

CREDENTIAL = ScramCredential.of_password("SCRAM-SHA-512", b"salt", "secret").text()


def test_a_user_that_was_removed_does_not_come_back(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"ad.min.SCRAM-SHA-512={CREDENTIAL}\n")

    async def play() -> None:
        store = EmbeddedStore.open(str(tmp_path / "m.db"))
        await ensure_base_paths(store)
        await add_bootstrap_users(store, str(file))
        assert await load_client_configs(store) == {((USER, "ad.min"),): {"SCRAM-SHA-512": CREDENTIAL}}
        await alter_client_config(store, ((USER, "ad.min"),), lambda before: {})
        file.unlink()
        await add_bootstrap_users(store, str(file))
        assert await load_client_configs(store) == {}
        await store.close()

    asyncio.run(play())


@pytest.mark.parametrize(
    ("text", "said"),
    [(f"admin={CREDENTIAL}\n", "admin is not USER.MECHANISM"), ("a.SCRAM-SHA-512=hush\n", "is not a SCRAM credential")],
)
def test_a_file_that_is_none_is_refused_without_its_values(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "users").write_text(text)
    with pytest.raises(StartupError) as refused:
        parse_users(str(tmp_path / "users"))
    assert said in str(refused.value)
    assert "hush" not in str(refused.value)
    with pytest.raises(StartupError, match="cannot be read"):
        parse_users(str(tmp_path / "none"))
