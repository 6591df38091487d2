"""What runs a pipeline elsewhere: read by systemd's own checker, and by a YAML parser."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest
import yaml

from tests.kit.ottla_command import Ottla

PIPELINE = """
from ottla import pipelines as p

orders = p.source("orders", p.json("id long"))
p.sql(orders, to=p.sink("out"), name="copy", query="SELECT * FROM orders")
"""
SETTINGS = """
[pipeline]
name = "Big Orders"

[kafka]
"sasl.password" = "${NOT_ON_THIS_MACHINE}"
"ssl.key.password" = "geheim"
""".replace("Big Orders", "Big.Orders")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "a $b 100%"
    folder.mkdir()
    (folder / "orders.py").write_text(PIPELINE)
    (folder / "orders.toml").write_text(SETTINGS)
    return folder / "orders.py"


def test_the_unit_is_one_that_systemd_takes(file: Path, tmp_path: Path) -> None:
    unit = Ottla("").ok("pipeline", "deploy", "systemd", str(file), "--env", "prod", "--user", "root")
    assert "geheim" not in unit
    assert '/orders.py" --env prod' in unit
    assert "KillMode=mixed" in unit
    program = shutil.which("systemd-analyze")
    if program is not None:  # not part of the product: a container may have no systemd
        where = tmp_path / "ottla-big-orders.service"
        where.write_text(unit)
        done = subprocess.run([program, "verify", "--man=no", str(where)], capture_output=True, text=True)
        own = [line for line in done.stderr.splitlines() if "ottla-big-orders" in line]
        assert own == [], done.stderr


def test_the_manifest_names_the_files_of_the_pipeline(file: Path) -> None:
    ottla = Ottla("")
    text = ottla.ok("pipeline", "deploy", "spark-operator", str(file), "--image", "registry/spark:1", "--namespace", "shop")
    assert "geheim" not in text
    assert "--from-file=orders.py --from-file=orders.toml" in text
    made = yaml.safe_load(text)
    assert (made["kind"], made["metadata"]) == ("SparkApplication", {"name": "ottla-big-orders", "namespace": "shop"})
    spec = made["spec"]
    assert spec["sparkVersion"] == pyspark.__version__
    assert spec["arguments"][:3] == ["pipeline", "run", "/pipelines/orders.py"]
    assert spec["driver"]["volumeMounts"] == spec["executor"]["volumeMounts"] == [{"name": "pipeline", "mountPath": "/pipelines"}]
    done = ottla.run("pipeline", "deploy", "spark-operator", str(file))
    assert done.returncode == 2
    assert "--image is missing" in done.stderr
