from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cluster.settings import BrokerSettings
from ottla.runtime.config_providers import resolved

PACKAGE = "org.apache.kafka.common.config.provider."
ALL = {
    "config.providers": "file, dir,env",
    "config.providers.file.class": f"{PACKAGE}FileConfigProvider",
    "config.providers.dir.class": f"{PACKAGE}DirectoryConfigProvider",
    "config.providers.env.class": f"{PACKAGE}EnvVarConfigProvider",
}


def test_kafkas_three_providers(tmp_path: Path) -> None:
    (tmp_path / "s.properties").write_text("keystore.password=planted-1\nalice=planted-2\n")
    (tmp_path / "truststore").write_text("planted-3")
    given = {
        "ssl.keystore.password": f"${{file:{tmp_path}/s.properties:keystore.password}}",
        "sasl.jaas.config": f'X required user_alice="${{file:{tmp_path}/s.properties:alice}}" user_bob="${{env:A}}";',
        "ssl.truststore.password": f"${{dir:{tmp_path}:truststore}}",
        "ssl.key.password": "${other:x:y}",
    }
    found = resolved(ALL | given, {"A": "planted-4"})
    assert found["ssl.keystore.password"] == "planted-1"
    assert found["sasl.jaas.config"] == 'X required user_alice="planted-2" user_bob="planted-4";'
    assert found["ssl.truststore.password"] == "planted-3"
    assert found["ssl.key.password"] == "${other:x:y}", "as in Kafka"
    settings = BrokerSettings.parse(found)
    assert settings.str("ssl.keystore.password") == "planted-1"
    assert settings.warnings == []


def test_without_providers_the_text_stays() -> None:
    given = {"ssl.key.password": "${env:A}"}
    assert resolved(given, {"A": "b"}) == given


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"x": "${file:DIR/s.properties:nothing}"}, "x: ${file:DIR/s.properties:nothing}: the file has no such key"),
        ({"x": "${file:DIR/none:a}"}, "cannot be read: No such file"),
        ({"x": "${dir:DIR:../s.properties}"}, "the key names no file of the directory"),
        ({"x": "${env:NOTHING}"}, "no such variable"),
        ({"x": "${env:B}", "config.providers.env.param.allowlist.pattern": "A.*"}, "allowlist.pattern does not allow it"),
        ({"x": "${file:DIR/s.properties:a}", "config.providers.file.param.allowed.paths": "/elsewhere"}, "not in allowed.paths"),
        ({"config.providers": "vault"}, "config.providers.vault.class is missing"),
        ({"config.providers.env.class": "com.example.Vault"}, "com.example.Vault is not supported"),
    ],
)
def test_a_reference_that_finds_nothing_is_refused_and_shows_no_value(more: dict[str, str], word: str, tmp_path: Path) -> None:
    (tmp_path / "s.properties").write_text("a=planted\n")
    given = {name: text.replace("DIR", str(tmp_path)) for name, text in (ALL | more).items()}
    with pytest.raises(ValueError, match=r"\S") as refused:
        resolved(given, {"A": "planted", "B": "planted"})
    assert word.replace("DIR", str(tmp_path)) in str(refused.value)
    assert "planted" not in str(refused.value)


def test_a_file_that_is_no_properties_file_is_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "s.properties").write_text("a=\\uplanted\n")
    with pytest.raises(ValueError, match="is not a properties file") as refused:
        resolved(ALL | {"x": f"${{file:{tmp_path}/s.properties:a}}"}, {})
    assert "planted" not in str(refused.value)
