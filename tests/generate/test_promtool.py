"""What `ottla generate` writes, judged by promtool: configuration, rules, and unit tests of the alerts."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from ottla.generate import recording_rules
from ottla.generate.kinds import KINDS, file_text
from ottla.generate.scrape import Targets
from tests.kit.prometheus import promtool

ALERTS_TEST = Path(__file__).with_name("alerts_test.yml")
ALERTS = re.findall(r"- alert: (\w+)", file_text("alerts.yml"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    targets = Targets(("b1:9404", "[::1]:9404"), ("e:9308",), ("p:9405",), 'it\'s a "cluster"', "integrations/kafka")
    for kind in ("scrape", "rules", "alerts"):
        for name, text in KINDS[kind](targets).items():
            (folder / name).write_text(text)
    shutil.copy(ALERTS_TEST, folder)
    return folder


def test_the_configuration_and_its_rules_are_valid(written: Path) -> None:
    said = promtool("check", "config", "prometheus.yml", cwd=written)
    assert f"{len(ALERTS)} rules found" in said
    assert "is valid prometheus config file" in said


def test_the_alerts_fire_when_they_should(written: Path) -> None:
    assert "SUCCESS" in promtool("test", "rules", ALERTS_TEST.name, cwd=written)


def test_every_alert_fires_in_a_test() -> None:
    tested = set(re.findall(r'alertname="(\w+)"|alertname: (\w+)', ALERTS_TEST.read_text()))
    assert set(ALERTS) == {first or second for first, second in tested}


def test_a_recording_rule_derives_the_names_of_others(written: Path) -> None:
    (written / "rules_test.yml").write_text("""\
rule_files: [ottla-rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'kafka_server_brokertopicmetrics_messagesin_total{topic="t",job="j"}', values: '0+60x10'}
      - {series: 'kafka_server_socket_server_metrics_connection_count{listener="L",networkProcessor="0"}', values: '7x10'}
      - {series: 'kafka_server_replicafetchermanager_maxlag{clientId="Replica",instance="a"}', values: '5x10'}
      - {series: 'kafka_server_quota_byte_rate{resource="Produce",user="u",clientId="c"}', values: '9x10'}
      - {series: 'kafka_server_quota_byte_rate{resource="Fetch",user="u",clientId="c"}', values: '8x10'}
    promql_expr_test:
      - expr: rate(kafka_server_brokertopicmetrics_messagesinpersec[5m])
        eval_time: 10m
        exp_samples: [{labels: '{topic="t",job="j"}', value: 1}]
      - expr: kafka_server_brokertopicmetrics_messagesinpersec_total
        eval_time: 10m
        exp_samples: [{labels: 'kafka_server_brokertopicmetrics_messagesinpersec_total{topic="t",job="j"}', value: 600}]
      - expr: kafka_server_socketservermetrics_connection_count
        eval_time: 10m
        exp_samples: [{labels: 'kafka_server_socketservermetrics_connection_count{listener="L",network_processor="0"}', value: 7}]
      - expr: kafka_server_replicafetchermanager_maxlag{clientid="Replica"}
        eval_time: 10m
        exp_samples: [{labels: 'kafka_server_replicafetchermanager_maxlag{clientid="Replica",instance="a"}', value: 5}]
      - expr: kafka_server_produce_byte_rate
        eval_time: 10m
        exp_samples: [{labels: 'kafka_server_produce_byte_rate{user="u",client_id="c"}', value: 9}]
""")
    assert "SUCCESS" in promtool("test", "rules", "rules_test.yml", cwd=written)


def test_no_name_is_recorded_twice() -> None:
    records = [rule.record for rules in recording_rules.GROUPS.values() for rule in rules()]
    assert len(records) == len(set(records))
