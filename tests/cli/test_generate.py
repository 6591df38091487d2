"""`ottla generate`: files to a directory or to stdout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.ottla_command import Ottla

KINDS = {
    "scrape": ["prometheus.yml"],
    "rules": ["ottla-rules.yml"],
    "alerts": ["ottla-alerts.yml"],
    "dashboards": ["ottla-brokers.json", "ottla-topics.json", "ottla-groups.json", "ottla-pipelines.json"],
    "systemd": ["ottla.service", "ottla-exporter.service"],
}
NOBODY = Ottla("127.0.0.1:1")
"""No broker is needed."""


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_written(tmp_path: Path, kind: str) -> None:
    said = NOBODY.ok("generate", kind, "-o", str(tmp_path / "new" / "folder"))
    assert said.splitlines() == [str(tmp_path / "new" / "folder" / name) for name in KINDS[kind]]
    assert all(Path(line).read_text().strip() for line in said.splitlines())


def test_the_targets_are_those_given() -> None:
    said = NOBODY.ok("generate", "scrape", "--brokers", "b1:9404, b2:9404", "--cluster", "shop", "--job", "integrations/kafka")
    assert 'targets: ["b1:9404", "b2:9404"]' in said
    assert 'strimzi_io_cluster: "shop"' in said
    assert 'job_name: "integrations/kafka"' in said


def test_one_file_to_stdout_can_be_piped() -> None:
    assert NOBODY.ok("generate", "alerts").startswith("# Alert rules")


def test_a_dashboard_is_json(tmp_path: Path) -> None:
    NOBODY.ok("generate", "dashboards", "-o", str(tmp_path))
    titles = {json.loads(path.read_text())["title"] for path in tmp_path.glob("*.json")}
    assert titles == {"Kafka: brokers", "Kafka: topics", "Kafka: consumer groups", "Ottla: pipelines"}


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot write to" in NOBODY.fails("generate", "rules", "-o", str(tmp_path / "file"), code=2)
