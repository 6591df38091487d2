"""Secrets appear in no log line and in no answer (CV02, CV05). They are planted, and then searched for."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ottla.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.test_create_delegation_token import TOKENS, create, expire, renew, token_login
from tests.broker.test_sasl import speaker

BROKER = 4
JAAS = "listener.name.in.plain.sasl.jaas.config"


def test_cv02_cv05_secrets_are_neither_logged_nor_answered(play: Any, caplog: pytest.LogCaptureFixture) -> None:
    secrets = ["planted"]

    async def case(stage: Any) -> None:
        wrong = await speaker(stage)
        await wrong.handshake()
        assert (await wrong.authenticate(b"\0ada\0planted-wrong")).error_code
        peer = await speaker(stage)
        await peer.login()
        upsertion = ScramCredentialUpsertion(
            name="dora", mechanism=1, iterations=4096, salt=b"planted-salt", salted_password=b"planted-salted-password-of-32-by"
        )
        for name in ("dora", ""):
            upsertion.name = name
            request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
            answer = await peer.call("alter_user_scram_credentials", 0, request)
            assert "planted" not in repr(answer)
        token = await create(peer)
        secrets.append(bytes(token.hmac).hex())
        await renew(peer, bytes(token.hmac))
        await token_login(stage, token)
        await expire(peer, bytes(token.hmac))
        for value in ('X required user_eve="planted-eve";', 'X required user_eve="planted'):
            config = AlterableConfig(name=JAAS, config_operation=0, value=value)
            resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
            answer = await peer.call("incremental_alter_configs", 1, IncrementalAlterConfigsRequest(resources=[resource]))
            assert "planted" not in repr(answer)
        asked = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)],
            include_synonyms=True,
        )
        described = await peer.call("describe_configs", 4, asked)
        shown = {config.name: config for config in described.results[0].configs}
        for name in (JAAS, "delegation.token.secret.key"):
            assert (shown[name].value, shown[name].is_sensitive) == (None, True)
        assert "planted" not in repr(described)

    with caplog.at_level(logging.DEBUG):
        play(case, **TOKENS)
    assert "Failed authentication" in caplog.text
    assert not [secret for secret in secrets if secret in caplog.text]
