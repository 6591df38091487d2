"""Secrets appear in no log line, no answer and no metric (CV02, CV04, CV05). They are planted, and then searched for."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.test_create_delegation_token import TOKENS, create, expire, renew, token_login
from tests.broker.test_metrics import METRICS_ON, page
from tests.broker.test_sasl import speaker

TOPIC, BROKER = 2, 4
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
        for path in ("/metrics", "/connections", "/readyz"):
            status, text = await page(stage, path)
            assert status == 200
            assert not [secret for secret in secrets if secret in text], path

    with caplog.at_level(logging.DEBUG):
        play(case, **TOKENS, **METRICS_ON)
    assert "Failed authentication" in caplog.text
    assert not [secret for secret in secrets if secret in caplog.text]


def test_cv04_configs_of_clients_read_neither_files_nor_the_environment(
    play: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secrets.properties").write_text("password=planted-in-a-file\n")
    monkeypatch.setenv("PLANTED", "planted-in-the-environment")
    references = [f"${{file:{tmp_path}/secrets.properties:password}}", f"${{directory:{tmp_path}:x}}", "${env:PLANTED}"]
    configs = [(BROKER, "", "config.providers", "file,directory,env")]
    for provider in ("File", "Directory", "EnvVar"):
        java_class = f"org.apache.kafka.common.config.provider.{provider}ConfigProvider"
        configs.append((BROKER, "", f"config.providers.{provider.lower().removesuffix('var')}.class", java_class))
    for text in references:
        configs += [
            (TOPIC, "orders", "cleanup.policy", text),
            (TOPIC, "orders", "leader.replication.throttled.replicas", text),
            (BROKER, "1", "compression.type", text),
            (BROKER, "1", JAAS, f'X required user_eve="{text}";'),
            (BROKER, "1", "listener.name.in.ssl.keystore.location", text),
            (BROKER, "1", "listener.name.in.ssl.keystore.password", text),
        ]

    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        await peer.login()
        topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        await peer.call("create_topics", 5, CreateTopicsRequest(topics=[topic]))
        answers: list[object] = []
        for kind, entity, name, value in configs:
            config = AlterableConfig(name=name, config_operation=0, value=value)
            resource = AlterConfigsResource(resource_type=kind, resource_name=entity, configs=[config])
            answers.append(await peer.call("incremental_alter_configs", 1, IncrementalAlterConfigsRequest(resources=[resource])))
        for kind, entity in ((TOPIC, "orders"), (BROKER, "1"), (BROKER, "")):
            asked = [DescribeConfigsResource(resource_type=kind, resource_name=entity, configuration_keys=None)]
            answers.append(await peer.call("describe_configs", 4, DescribeConfigsRequest(resources=asked)))
        assert "planted" not in repr(answers)
        image, settings = stage.broker.image, stage.broker.metadata.settings
        assert "planted" not in repr((image.topics, image.broker_configs, settings.dynamic_broker, settings.dynamic_default))
        assert settings.str("compression.type") == "producer"

    play(case, **TOKENS)
