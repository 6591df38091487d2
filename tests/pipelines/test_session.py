"""What Spark is told and given, by master: this machine, a standalone cluster, YARN, Kubernetes (F77)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.pipelines import PipelineError, session
from ottla.pipelines.data_source import read_limits
from ottla.pipelines.project import override, read

JAVA = "spark.driver.extraJavaOptions"
KUBERNETES = "k8s://https://10.0.0.1:6443"


class Recorder:
    """SparkSession.builder, which notes what it hears, and the session it makes."""

    def __init__(self) -> None:
        self.heard: dict[str, str] = {}
        self.shipped: list[str] = []
        self.failure: Exception | None = None
        self.builder = self.sparkContext = self.dataSource = self
        self.sources: list[Any] = []

    def appName(self, name: str) -> Recorder:
        self.heard["spark.app.name"] = name
        return self

    def master(self, master: str) -> Recorder:
        self.heard["spark.master"] = master
        return self

    def config(self, key: str, value: str) -> Recorder:
        self.heard[key] = value
        return self

    def getOrCreate(self) -> Recorder:
        if self.failure is not None:
            raise self.failure
        return self

    def register(self, source: Any) -> None:
        self.sources.append(source)

    def addPyFile(self, file: str) -> None:
        self.shipped.append(file)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    import pyspark.sql

    found = Recorder()
    monkeypatch.setattr(pyspark.sql, "SparkSession", found)
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "HADOOP_CONF_DIR"):
        monkeypatch.setenv(name, "as it was")
    monkeypatch.setattr(session, "java_home", lambda: None)
    return found


def start(recorder: Recorder, tmp_path: Path, toml: str, **flags: Any) -> None:
    tmp_path.joinpath("shop.toml").write_text(toml)
    project = override(read(tmp_path / "shop.py"), **flags)
    session.start(project.name, project.master, project.conf, ship=project.ship)


@pytest.mark.parametrize(
    ("master", "conf"),
    [
        ("spark://10.0.0.1:7077", {"spark.executor.memory": "2g"}),
        ("yarn", {"spark.yarn.queue": "streams", "spark.archives": "hdfs:///e.tar.gz#e", "spark.pyspark.python": "e/bin/python"}),
        (KUBERNETES, {"spark.kubernetes.container.image": "shop/spark:4.3", "spark.kubernetes.namespace": "shop"}),
    ],
)  # fmt: skip
def test_a_cluster_gets_its_settings_and_the_package(
    recorder: Recorder, tmp_path: Path, master: str, conf: dict[str, str]
) -> None:
    lines = "".join(f'"{key}" = "{value}"\n' for key, value in conf.items())
    start(recorder, tmp_path, f'[spark]\nmaster = "{master}"\n[spark.conf]\n{lines}')
    assert recorder.heard["spark.master"] == master
    assert conf.items() <= recorder.heard.items()
    # Executors elsewhere reach the driver by its own name, and the user's image decides about Python.
    assert "spark.driver.host" not in recorder.heard
    assert recorder.heard["spark.stage.maxConsecutiveAttempts"] == "1"
    assert recorder.heard["spark.speculation"] == "false"
    # What decides about the executors' Python is the environment of this process when Spark starts in it.
    assert os.environ["PYSPARK_PYTHON"] == conf.get("spark.pyspark.python", "as it was")
    (package,) = recorder.shipped
    # The sources alone, from the zip: what an executor without Ottla would import.
    code = "import pyspark_ottla, ottla.pipelines.producing, ottla.pipelines.data_source.fetching as it; print(it.__file__)"
    words = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {package!r}); {code}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.startswith(package), done.stderr


def test_flags_go_before_the_file_and_ours_before_both(recorder: Recorder, tmp_path: Path) -> None:
    toml = '[spark]\nmaster = "yarn"\nship = false\n[spark.conf]\n"spark.executor.memory" = "1g"\n'
    conf = {"spark.executor.memory": "3g", "spark.stage.maxConsecutiveAttempts": "4"}
    start(recorder, tmp_path, toml, master=KUBERNETES, conf=conf)
    assert recorder.heard["spark.master"] == KUBERNETES
    assert recorder.heard["spark.executor.memory"] == "3g"
    assert recorder.heard["spark.stage.maxConsecutiveAttempts"] == "1"
    assert recorder.shipped == []


def test_this_machine_needs_no_package(recorder: Recorder, tmp_path: Path) -> None:
    start(recorder, tmp_path, "")
    assert recorder.heard["spark.master"] == "local[*]"
    assert recorder.heard["spark.driver.host"] == "127.0.0.1"
    assert recorder.shipped == []


def test_yarn_without_its_address_is_said_before_spark_starts(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(PipelineError, match="does not know where YARN is"):
        start(recorder, tmp_path, '[spark]\nmaster = "yarn"\n')
    assert recorder.heard == {}


def test_a_cluster_that_cannot_be_had_is_one_line(recorder: Recorder, tmp_path: Path) -> None:
    recorder.failure = RuntimeError("Could not load KUBERNETES classes.\n\tat org.apache.spark…")
    with pytest.raises(PipelineError, match=r"^Spark does not start on yarn: Could not load KUBERNETES classes\.$"):
        start(recorder, tmp_path, '[spark]\nmaster = "yarn"\n')


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"PATH": "/nowhere"}, sys.executable),
        ({"PATH": str(Path(sys.executable).parent)}, None),
        ({"PATH": "/nowhere", "PYSPARK_PYTHON": "python3"}, None),
        ({"PATH": "/nowhere", "PYSPARK_DRIVER_PYTHON": "jupyter"}, "jupyter"),
    ],
)
def test_the_import_names_this_python_to_spark_where_none_is_chosen(environment: dict[str, str], told: str | None) -> None:
    code = "import os, sys, ottla; print(os.environ.get('PYSPARK_DRIVER_PYTHON'), 'pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, env=environment)
    assert done.stdout == f"{told} False\n"


def test_spark_4_1_is_told_that_available_now_is_more_than_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
    for known in (True, False):
        monkeypatch.setattr(read_limits, "ARE_KNOWN", known)
        assert session.settings("local[2]", {}).get(wrapper) == (None if known else "true")


@pytest.mark.parametrize(
    ("given", "kept", "is_quiet"),
    [({}, "", True), ({JAVA: "-Xss4m"}, "-Xss4m ", True), ({JAVA: "-Dlog4j2.configurationFile=mine.xml"}, "", False)],
    ids=["none", "other", "log"],
)
def test_options_of_java_leave_sparks_log_quiet(given: dict[str, str], kept: str, is_quiet: bool) -> None:
    found = session.settings("local[2]", given)[JAVA]
    if is_quiet:
        assert re.fullmatch(re.escape(kept) + r"-Dlog4j2\.configurationFile=file:\S+", found)
    else:
        assert found == given[JAVA]
