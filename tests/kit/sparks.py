"""Other releases of Spark: PySpark in a folder of the cache, fetched once.

A process with that folder at the front of PYTHONPATH runs that release, and so do its JVM and its Python workers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from tests.kit.peers import MissingCounterpart, cache_dir, fetching, single_jars

RELEASES = {"4.1": "4.1.4", "4.2": "4.2.1", "4.3": "4.3.0"}
"""The last version of each release."""
DELTA = "4.4.0"
ICEBERG = "1.12.0"


def environment(release: str) -> dict[str, str]:
    """The environment of a process that runs this release of Spark."""
    if metadata.version("pyspark") == RELEASES[release]:
        return dict(os.environ)
    before = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(_folder(RELEASES[release])), *([before] if before else [])])}


def _folder(version: str) -> Path:
    name = f"pyspark-{version}"
    with fetching(name) as folder:
        if not folder.is_dir():
            scratch = Path(tempfile.mkdtemp(dir=cache_dir(), prefix=f"{name}."))
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "-q",
                "--no-compile",
                "--target",
                str(scratch),
                f"pyspark=={version}",
            ]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                shutil.rmtree(scratch)
                raise MissingCounterpart(f"PySpark {version} could not be installed:\n{done.stderr[-2000:]}")
            scratch.chmod(0o755)
            scratch.rename(folder)
        return folder


def delta_conf(release: str) -> dict[str, str]:
    """Spark's settings for Delta tables. Delta has a jar for each release up to 4.2."""
    jars = single_jars("spark-tables", (f"io.delta:delta-spark_{release}_2.13:{DELTA}", f"io.delta:delta-storage:{DELTA}"))
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Each look at a table takes 50 tasks otherwise.
        "spark.databricks.delta.snapshotPartitions": "2",
    }


def iceberg_conf(release: str, warehouse: Path) -> dict[str, str]:
    """Spark's settings for Iceberg tables in the catalog `lake`. Iceberg has a jar for each release up to 4.1."""
    jars = single_jars("spark-tables", (f"org.apache.iceberg:iceberg-spark-runtime-{release}_2.13:{ICEBERG}",))
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(warehouse),
    }
