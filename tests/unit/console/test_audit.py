"""What the audit keeps of a change (CV02): everything but secrets."""

from __future__ import annotations

from ottla.console.audit import without_secrets


def test_cv02_secrets_in_settings_are_left_out() -> None:
    names = (
        "ssl.keystore.password",
        "ssl.keystore.key",
        "plain.sasl.jaas.config",
        "sasl.oauthbearer.assertion.private.key.passphrase",
    )
    detail = {"set": {f"listener.name.a.{name}": "planted" for name in names} | {"num.partitions": 3}}
    kept = without_secrets(detail)
    assert "planted" not in str(kept)
    assert kept["set"]["num.partitions"] == 3
