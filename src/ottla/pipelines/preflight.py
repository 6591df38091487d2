"""What can be wrong with the settings of a run and is known before Spark starts, which takes tens of seconds."""

from __future__ import annotations

import re
import socket
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from ottla.pipelines.checkpoint import local_folder
from ottla.pipelines.definitions import Files, Table
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.graph import Plan
from ottla.pipelines.java import java_home
from ottla.pipelines.secrets import all_resolved, resolved

_LOCAL = re.compile(r"local(\[(\d+|\*)(\s*,\s*\d+)?\])?|local-cluster\[.+\]")
_REMOTE = re.compile(r"spark://.+|yarn|k8s://.+")
_STANDALONE = "spark://"
_CONNECT_TIMEOUT_S = 3.0
_DATABASE = re.compile(r"jdbc:(postgresql|mysql|mariadb|sqlserver)://([^/?;\\()=]+)(?=[/?;]|$)")
_DATABASE_NAMES = {"postgresql": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB", "sqlserver": "SQL Server"}
_DATABASE_PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306, "sqlserver": 1433}
_JARS_OF_ONE_SPARK = re.compile(r"((?:delta-spark|iceberg-spark-runtime)[_-](\d+\.\d+)_[\d.]+)")
"""The names of Delta's and Iceberg's jars say for which Spark they are made."""


def check_master_name(master: str) -> None:
    """ValueError if Spark has no master of this form."""
    if not _LOCAL.fullmatch(master) and not _REMOTE.fullmatch(master):
        raise ValueError(f"{master!r} is no Spark master: write local[*], spark://host:7077, yarn or k8s://…")


def check_master_answers(master: str) -> None:
    """PipelineError if no standalone master answers. Spark itself tries for a minute."""
    if not master.startswith(_STANDALONE):
        return
    addresses = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise PipelineError(f"master {master!r}: {address!r} is not an address", hint="write spark://host:7077")
        addresses.append((host.strip("[]"), int(port)))
    problem = _no_answer(addresses)
    if problem is not None:
        raise PipelineError(
            f"no Spark master answers: {problem}", hint="nothing was read or written; start it, or change --master"
        )


def check_jars(conf: Mapping[str, str], spark: str) -> None:
    """PipelineError if a jar of a table format is made for another Spark than this version: it would fail at some batch."""
    for setting in ("spark.jars", "spark.jars.packages"):
        for jar, made_for in _JARS_OF_ONE_SPARK.findall(conf.get(setting, "")):
            if made_for != ".".join(spark.split(".")[:2]):
                raise PipelineError(
                    f"{jar} in {setting} is made for Spark {made_for}, this is Spark {spark}",
                    hint=f"use the jar for this Spark, or Spark {made_for}: pip install 'pyspark=={made_for}.*'",
                )


def check_java() -> None:
    """PipelineError if there is no Java that Spark runs on."""
    java_home()


def _databases(plan: Plan) -> list[Files | Table]:
    files = [node for nodes in plan.inputs.values() for node in nodes if isinstance(node, Files)]
    tables = [flow.to for flow in plan.queries if isinstance(flow.to, Table)]
    found: list[Files | Table] = [*files, *tables]
    return [each for each in found if each.format == "jdbc"]


def check_secrets(plan: Plan) -> None:
    """PipelineError if the options of a database refer to a secret that is not there."""
    for each in _databases(plan):
        try:
            options = all_resolved(dict(each.options))
        except ValueError as error:
            raise PipelineError(f"table {each.path!r}: {error}", each.place) from None
        if not options["url"].startswith("jdbc:"):
            # What a reference stands for is not shown.
            said = f"table {each.path!r}: {dict(each.options)['url']} is not a JDBC URL"
            raise PipelineError(said, each.place, hint="write jdbc:postgresql://host/database")


def check_tables(plan: Plan) -> None:
    """PipelineError if a database does not answer, or the directory of a table cannot be written."""
    for flow in plan.queries:
        if isinstance(flow.to, Table) and flow.to.format not in ("jdbc", "iceberg"):
            _check_folder(flow.to)
    check_databases(plan)


def check_databases(plan: Plan) -> None:
    """PipelineError if a database does not answer. Its driver would say so once Spark has started."""
    asked: set[str] = set()
    for each in _databases(plan):
        url = resolved(dict(each.options)["url"])
        found = _DATABASE.match(url)
        if found is None or url in asked:
            continue
        asked.add(url)
        addresses = [_address(part, _DATABASE_PORTS[found[1]]) for part in found[2].rpartition("@")[2].split(",")]
        problem = _no_answer(addresses)
        if problem is not None:
            raise PipelineError(
                f"table {each.path!r}: no {_DATABASE_NAMES[found[1]]} answers: {problem}",
                each.place,
                hint="nothing was read or written; start the database, or correct the URL",
            )


def _check_folder(table: Table) -> None:
    folder = local_folder(table.path)
    if folder is None:
        return
    if folder.is_file():
        raise PipelineError(f"table {table.path!r} is a file, not a directory", table.place)
    try:
        _make_writable(folder.parent)  # drafts are beside the table
    except OSError as error:
        raise PipelineError(
            f"table {table.path!r}: {folder.parent} cannot be written: {error.strerror or error}", table.place
        ) from None


def _address(text: str, port: int) -> tuple[str, int]:
    host, colon, given = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    return (host if colon else text).strip("[]"), int(given) if given.isdecimal() else port


def _no_answer(addresses: Iterable[tuple[str, int]]) -> str | None:
    """Why none of the addresses answers; None if one does."""
    problems = []
    for host, port in addresses:
        try:
            socket.create_connection((host, port), _CONNECT_TIMEOUT_S).close()
            return None
        except OSError as error:
            problems.append(f"{host}:{port}: {error.strerror or error}")
    return "; ".join(problems)


def check_storage(storage: str) -> None:
    """Make the directory of checkpoints. PipelineError if it cannot be written; only Spark can look into remote storage."""
    folder = local_folder(storage)
    if folder is None:
        return
    try:
        _make_writable(folder)
    except OSError as error:
        raise PipelineError(
            f"storage {storage} cannot be written: {error.strerror or error}", hint="choose another directory with --storage"
        ) from None


def _make_writable(folder: Path) -> None:
    """Make the directory. OSError if nothing can be written there."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass
