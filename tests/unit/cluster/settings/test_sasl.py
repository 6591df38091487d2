"""The SASL settings of listeners (SA03, SA05, SA07)."""

from __future__ import annotations

import pytest

from ottla.cluster.settings import BrokerSettings, SettingsError

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SASL = {
    "listeners": "IN://127.0.0.1:1,OUT://127.0.0.1:2",
    "listener.security.protocol.map": "IN:SASL_PLAINTEXT,OUT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "IN",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
}


def problems_of(properties: dict[str, str]) -> str:
    with pytest.raises(SettingsError) as error:
        BrokerSettings.parse(SASL | properties)
    return str(error.value)


def test_sa03_each_listener_has_its_mechanisms() -> None:
    settings = BrokerSettings.parse(
        SASL
        | {
            "listener.name.out.sasl.enabled.mechanisms": "PLAIN, SCRAM-SHA-512,PLAIN",
            "listener.name.out.plain.sasl.jaas.config": f'{MODULE} user_ada="secret";',
        }
    )
    assert [each.name for each in settings.sasl_of("IN").mechanisms] == ["SCRAM-SHA-256"]
    assert [each.name for each in settings.sasl_of("OUT").mechanisms] == ["PLAIN", "SCRAM-SHA-512"]
    assert settings.sasl_of("OUT").mechanisms[0].options == {"user_ada": "secret"}
    assert "secret" not in repr(settings.sasl_of("OUT"))


def test_sa05_the_lifetime_is_that_of_mechanism_listener_or_broker() -> None:
    settings = BrokerSettings.parse(
        SASL
        | {
            "connections.max.reauth.ms": "1",
            "listener.name.in.connections.max.reauth.ms": "2",
            "listener.name.in.scram-sha-256.connections.max.reauth.ms": "3",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        }
    )
    assert [each.reauth_ms_max for each in settings.sasl_of("IN").mechanisms] == [3, 2]
    assert [each.reauth_ms_max for each in settings.sasl_of("OUT").mechanisms] == [1, 1]


def test_sa07_the_users_of_plain_may_be_those_of_the_broker() -> None:
    settings = BrokerSettings.parse(
        SASL | {"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": f'{MODULE} username="b" password="x" user_ada="secret";'}
    )
    assert settings.sasl_of("OUT").mechanisms[0].options["user_ada"] == "secret"


def test_sa07_plain_without_users_is_warned_of() -> None:
    [warning] = BrokerSettings.parse(SASL | {"listener.name.out.sasl.enabled.mechanisms": "PLAIN"}).warnings
    assert "nobody can log in with PLAIN on listener OUT" in warning
    assert "listener.name.out.plain.sasl.jaas.config" in warning


def test_sa07_only_kafka_s_login_modules_count() -> None:
    setting = "listener.name.out.plain.sasl.jaas.config"
    own = {"sasl.enabled.mechanisms": "PLAIN", setting: 'com.x.Ldap required user_ada="secret";'}
    problems = problems_of(own)
    assert f"{setting}: com.x.Ldap is not supported; allowed: org.apache.kafka" in problems
    assert "secret" not in problems
    # As in Kafka, users of PLAIN are options of PlainLoginModule only.
    scram = 'org.apache.kafka.common.security.scram.ScramLoginModule required user_ada="secret";'
    settings = BrokerSettings.parse(SASL | own | {setting: scram})
    assert settings.sasl_of("OUT").mechanisms[0].options == {}
    assert any("nobody can log in with PLAIN on listener OUT" in warning for warning in settings.warnings)


def test_what_cannot_work_is_refused_by_name() -> None:
    assert "CRAM-MD5 is not supported" in problems_of({"sasl.enabled.mechanisms": "CRAM-MD5"})
    assert "has no mechanism; set sasl.enabled.mechanisms" in problems_of({"sasl.enabled.mechanisms": ""})
    said = problems_of(
        {"sasl.enabled.mechanisms": "PLAIN", "listener.name.in.plain.sasl.jaas.config": f'{MODULE} user_ada="planted'}
    )
    assert "listener.name.in.plain.sasl.jaas.config: " in said
    assert "planted" not in said
    assert "sasl.server.callback.handler.class=com.example.Mine is not allowed" in problems_of(
        {"sasl.server.callback.handler.class": "com.example.Mine"}
    )


OAUTH = SASL | {"sasl.enabled.mechanisms": "OAUTHBEARER"}
UNSECURED = "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"


def test_oa04_keys_come_only_from_urls_that_are_allowed() -> None:
    name, url = "sasl.oauthbearer.jwks.endpoint.url", "https://issuer/keys"
    assert f"{name}={url} is not in sasl.oauthbearer.allowed.urls" in problems_of(OAUTH | {name: url})
    assert "is not allowed; allowed: https" in problems_of(
        OAUTH | {name: "http://issuer", "sasl.oauthbearer.allowed.urls": "http://issuer"}
    )
    settings = BrokerSettings.parse(OAUTH | {name: url, "sasl.oauthbearer.allowed.urls": f"https://x,{url}"})
    oauth = settings.sasl_of("IN").mechanisms[0].oauth
    assert oauth is not None
    assert (oauth.jwks_url, oauth.refresh_ms, oauth.backoff_ms, oauth.backoff_ms_max) == (url, 3_600_000, 100, 10_000)
    assert not settings.warnings


def test_oa05_cv01_unsecured_tokens_must_be_asked_for_and_are_warned_of() -> None:
    settings = BrokerSettings.parse(OAUTH)
    oauth = settings.sasl_of("IN").mechanisms[0].oauth
    assert oauth is not None
    assert not oauth.unsecured
    assert all("nobody can log in with OAUTHBEARER" in warning for warning in settings.warnings)
    settings = BrokerSettings.parse(OAUTH | {"listener.name.in.oauthbearer.sasl.server.callback.handler.class": UNSECURED})
    oauth = settings.sasl_of("IN").mechanisms[0].oauth
    assert oauth is not None
    assert oauth.unsecured
    assert any("listener IN accepts OAUTHBEARER tokens without a signature" in warning for warning in settings.warnings)
    other = settings.sasl_of("OUT").mechanisms[0].oauth
    assert other is not None
    assert not other.unsecured


def test_the_rules_of_kerberos_are_checked_at_the_start() -> None:
    name = "sasl.kerberos.principal.to.local.rules"
    assert f"{name}: 'RULE:[x]' is not a rule" in problems_of({"sasl.enabled.mechanisms": "GSSAPI", name: "DEFAULT,RULE:[x]"})
    module = 'com.sun.security.auth.module.Krb5LoginModule required keyTab="/k" principal="kafka/host@R";'
    settings = BrokerSettings.parse(
        SASL | {"sasl.enabled.mechanisms": "GSSAPI", "listener.name.in.gssapi.sasl.jaas.config": module}
    )
    kerberos = settings.sasl_of("IN").mechanisms[0].kerberos
    assert kerberos is not None
    assert (kerberos.principal, kerberos.keytab, len(kerberos.rules)) == ("kafka/host@R", "/k", 1)
