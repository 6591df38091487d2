"""What is wrong is said before Spark starts, in one line."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.pipelines import PipelineError, graph, java, loading, preflight
from ottla.pipelines.project import read
from tests.pipelines.test_pipeline_cli import COPY, ottla
from tests.pipelines.test_project import fake_java

if TYPE_CHECKING:
    from ottla.testing import Broker


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "shop.py"
    found.write_text(COPY.format(source="in", out="out"))
    return found


def test_a_storage_that_cannot_be_written(file: Path) -> None:
    code, stdout, stderr = ottla("run", file, "--storage", "/proc/nope", "-b", "127.0.0.1:1")
    assert (code, stdout) == (1, "")
    assert stderr.splitlines() == [
        "error: storage /proc/nope cannot be written: No such file or directory",
        "  choose another directory with --storage",
    ]
    beside = file.with_suffix(".txt")
    beside.write_text("")
    with pytest.raises(PipelineError, match="cannot be written"):
        preflight.check_storage(str(beside))
    preflight.check_storage("s3a://bucket/storage")
    assert {path for path in file.parent.iterdir() if path.name != "__pycache__"} == {beside, file}


@pytest.mark.parametrize("master", ["locl", "local[", "local[x]", "spark:/host:7077", "mesos://host:5050", "k8s"])
def test_a_master_that_spark_does_not_have(file: Path, master: str) -> None:
    code, _, stderr = ottla("run", file, "--master", master, "-b", "127.0.0.1:1")
    assert code == 1
    assert stderr.startswith(f"error: --master: {master!r} is no Spark master: write local[*], spark://host:7077")
    file.with_suffix(".toml").write_text(f'[spark]\nmaster = "{master}"\n')
    with pytest.raises(PipelineError, match=r"shop\.toml:2: master: "):
        read(file)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[*, 4]", "yarn", "k8s://https://10.0.0.1:6443"])
def test_masters_that_spark_has(master: str) -> None:
    preflight.check_master_name(master)
    preflight.check_master_answers(master)


def test_a_standalone_master_that_is_down(file: Path, ottla_broker: Broker) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        down = one.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as other:
            preflight.check_master_answers(f"spark://127.0.0.1:{down},127.0.0.1:{other.getsockname()[1]}")
        ottla_broker.create_topic("in", 1)
        code, _, stderr = ottla("run", file, "--master", f"spark://127.0.0.1:{down}", "-b", ottla_broker.bootstrap_servers)
    assert code == 1
    assert stderr.splitlines()[0] == f"error: no Spark master answers: 127.0.0.1:{down}: Connection refused"
    with pytest.raises(PipelineError, match="'host' is not an address"):
        preflight.check_master_answers("spark://host")


def test_an_address_in_the_options_of_a_source_is_refused_at_its_line(tmp_path: Path) -> None:
    file = tmp_path / "two.py"
    file.write_text(
        "from ottla import pipelines as p\n\norders = p.source('orders', options={'kafka.bootstrap.servers': 'other:9092'})\n"
    )
    code, _, stderr = ottla("run", file)
    assert code == 1
    assert stderr.startswith(f"error: {file}:3: source 'orders': kafka.bootstrap.servers is not an option of a source")


@pytest.mark.parametrize("verb", ["check", "preview", "run", "upgrade"])
def test_a_wrong_java_home_is_one_line_before_a_broker_is_asked(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "_packaged", lambda: None)
    broken = fake_java(tmp_path / "broken", "17")
    (broken / "bin" / "java").write_text("no program")
    homes = {
        tmp_path / "missing": "does not exist",
        tmp_path: "has no bin/java",
        broken: "has a bin/java that does not run",
        fake_java(tmp_path / "eight", "1.8.0_402"): "is Java 8",
        fake_java(tmp_path / "eleven", "11.0.2"): "is Java 11",
    }
    for home, said in homes.items():
        monkeypatch.setenv("JAVA_HOME", str(home))
        code, stdout, stderr = ottla(verb, file, "-b", "127.0.0.1:1", *(["--yes"] if verb == "upgrade" else []))
        assert (code, stdout) == (1, "")
        first, hint = stderr.splitlines()
        assert first == f"error: Spark needs Java 17 or 21: JAVA_HOME={home} {said}"
        assert hint.startswith("  install Java 17 or 21 (Debian: openjdk-17-jre-headless")


def test_a_jar_of_a_table_format_for_another_spark_is_refused_by_name() -> None:
    iceberg = {"spark.jars": "/jars/x.jar,/jars/iceberg-spark-runtime-4.1_2.13-1.12.0.jar"}
    preflight.check_jars(iceberg, "4.1.4")
    with pytest.raises(PipelineError) as caught:
        preflight.check_jars(iceberg, "4.3.0")
    assert caught.value.message == "iceberg-spark-runtime-4.1_2.13 in spark.jars is made for Spark 4.1, this is Spark 4.3.0"
    assert caught.value.hint == "use the jar for this Spark, or Spark 4.1: pip install 'pyspark==4.1.*'"
    with pytest.raises(PipelineError, match=r"made for Spark 4\.2"):
        preflight.check_jars({"spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0"}, "4.1.4")
    preflight.check_jars({"spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0"}, "4.2.1")
    preflight.check_jars({"spark.jars": "/jars/postgresql-42.7.8.jar,/jars/delta-spark_2.13-4.0.1.jar"}, "4.3.0")


def test_such_a_jar_is_refused_before_spark_starts(file: Path) -> None:
    code, stdout, stderr = ottla("check", file, "--conf", "spark.jars=/jars/delta-spark_4.1_2.13-4.4.0.jar")
    assert (code, stdout) == (1, "")
    assert "error: delta-spark_4.1_2.13 in spark.jars is made for Spark 4.1, this is Spark " in stderr


TABLES = """
from ottla import pipelines as p
sales = p.source("sales", p.string())
rates = p.files("rates", format="jdbc", static=True, options={{"url": "jdbc:mariadb://127.0.0.1:{read}/shop"}})
table = p.jdbc("jdbc:postgresql://user:secret@127.0.0.1:{down},127.0.0.1:{up}/shop", "t")
p.sql(sales, rates, to=table, name="f", query="SELECT 1")
"""


def test_a_database_that_is_down_is_said_before_spark_starts(tmp_path: Path, ottla_broker: Broker) -> None:
    file = tmp_path / "tables.py"
    ottla_broker.create_topic("sales", 1)
    with socket.socket() as one, socket.create_server(("127.0.0.1", 0)) as other:
        one.bind(("127.0.0.1", 0))
        down, up = one.getsockname()[1], other.getsockname()[1]
        file.write_text(TABLES.format(read=down, down=down, up=up))
        for words in (("run", file), ("check", file)):
            code, stdout, stderr = ottla(*words, "-b", ottla_broker.bootstrap_servers)
            assert (code, stdout) == (1, "")
            assert stderr.splitlines() == [
                f"error: {file}:4: table 'rates': no MariaDB answers: 127.0.0.1:{down}: Connection refused",
                "  nothing was read or written; start the database, or correct the URL",
            ]
        file.write_text(TABLES.format(read=up, down=down, up=down))
        with pytest.raises(PipelineError) as caught:
            preflight.check_tables(graph.plan(loading.load(file)))
        refused = f"127.0.0.1:{down}: Connection refused"
        assert caught.value.message == f"table 't': no PostgreSQL answers: {refused}; {refused}"
        file.write_text(TABLES.format(read=up, down=down, up=up))  # one of several hosts is enough
        preflight.check_tables(graph.plan(loading.load(file)))


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:postgresql:shop",
        "jdbc:sqlserver://host\\\\instance;databaseName=shop",
        "jdbc:mysql://address=(host=nowhere)(port=1)/shop",
        "jdbc:mysql:loadbalance://nowhere/shop",
        "jdbc:h2:mem:shop",
    ],
)
def test_urls_that_only_the_driver_understands(tmp_path: Path, url: str) -> None:
    file = tmp_path / "tables.py"
    file.write_text(
        f'from ottla import pipelines as p\np.sql(p.source("in"), to=p.jdbc("{url}", "t"), name="f", query="SELECT 1")\n'
    )
    preflight.check_tables(graph.plan(loading.load(file)))


def test_a_table_whose_directory_cannot_be_written(tmp_path: Path) -> None:
    file, beside = tmp_path / "tables.py", tmp_path / "beside"
    beside.write_text("")
    for path, said in {
        str(beside): f"table {str(beside)!r} is a file, not a directory",
        "/proc/nope/t": "table '/proc/nope/t': /proc/nope cannot be written: No such file or directory",
    }.items():
        file.write_text(
            f'from ottla import pipelines as p\np.sql(p.source("in"), to=p.table("{path}"), name="f", query="SELECT 1")\n'
        )
        with pytest.raises(PipelineError) as caught:
            preflight.check_tables(graph.plan(loading.load(file)))
        assert caught.value.message == said


def test_the_address_of_a_database_may_be_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tables.py"
    target = 'p.jdbc("${SHOP_DATABASE}", "t", mode="upsert", key="value")'
    file.write_text(f'from ottla import pipelines as p\np.sql(p.source("in"), to={target}, name="f", query="SELECT 1")\n')
    found = graph.plan(loading.load(file))
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        down = one.getsockname()[1]
        monkeypatch.setenv("SHOP_DATABASE", f"jdbc:postgresql://me:secret@127.0.0.1:{down}/shop")
        preflight.check_secrets(found)
        with pytest.raises(PipelineError) as caught:
            preflight.check_databases(found)
    assert caught.value.message == f"table 't': no PostgreSQL answers: 127.0.0.1:{down}: Connection refused"
    monkeypatch.setenv("SHOP_DATABASE", "me:secret@127.0.0.1")
    with pytest.raises(PipelineError) as caught:
        preflight.check_secrets(found)
    assert caught.value.message == "table 't': ${SHOP_DATABASE} is not a JDBC URL"
    monkeypatch.delenv("SHOP_DATABASE")
    with pytest.raises(PipelineError, match="the environment has no variable SHOP_DATABASE"):
        preflight.check_secrets(found)
