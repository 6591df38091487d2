"""Pipelines and `format("ottla")` on a secured broker of ours: SASL_SSL with a password, and with an OAUTHBEARER token."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from ottla.testing import Broker, Security
from tests.kit.tokens import Issuer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipelines.conftest import Shop

pytestmark = pytest.mark.slow

OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
COPY = """
from ottla import pipelines as p

orders = p.source("{source}", p.json("id long"), name="orders")
p.sql(orders, to=p.sink("{out}", key="id"), name="copy", query="SELECT * FROM orders")
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_pipeline_over_sasl_ssl(shop: Shop, spark: SparkSession, tmp_path: Path, mechanism: str) -> None:
    issuer = Issuer()
    (tmp_path / "keys.json").write_bytes(issuer.jwks())
    (tmp_path / "token").write_text(issuer.token(sub="admin"))
    keys = (tmp_path / "keys.json").as_uri()
    oauth = {"sasl.oauthbearer.jwks.endpoint.url": keys, "sasl.oauthbearer.allowed.urls": keys}
    with Broker(oauth, security=Security("SASL_SSL", ("OAUTHBEARER", "SCRAM-SHA-512"))) as broker:
        settings = broker.client_properties("admin", "SCRAM-SHA-512")
        if mechanism == "OAUTHBEARER":
            settings |= {
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": f"{OAUTH};",
                "sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri(),
            }
        servers = settings.pop("bootstrap.servers")
        prefix = f"o{os.getpid()}{mechanism[:1]}."
        source, out = f"{prefix}in", f"{prefix}out"
        for name in (source, out):
            broker.create_topic(name, 2)
        from confluent_kafka import Producer

        producer = Producer(broker.client_config("admin"))
        for number in range(50):
            producer.produce(source, b'{"id": %d}' % number)
        assert producer.flush(60) == 0
        there = type(shop)(shop.folder, SimpleNamespace(bootstrap_servers=servers), spark, prefix)  # type: ignore[arg-type]
        file = there.pipeline(COPY.format(source=source, out=out))
        lines = "".join(f'"{name}" = {value!r}\n' for name, value in settings.items())
        file.with_suffix(".toml").write_text(f"[kafka]\n{lines}")
        there.run(file)
        options = {f"kafka.{name}": value for name, value in settings.items()} | {"kafka.bootstrap.servers": servers}
        read = spark.read.format("ottla").options(**options, subscribe=out, startingOffsets="earliest").load()
        assert read.count() == 50
