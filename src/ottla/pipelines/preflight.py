"""What can be wrong with the settings of a run and is known before Spark starts, which takes tens of seconds."""

from __future__ import annotations

import re
import socket
import tempfile
from collections.abc import Mapping

from ottla.pipelines.checkpoint import local_folder
from ottla.pipelines.definitions import Files, Table
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.graph import Plan
from ottla.pipelines.java import java_home
from ottla.pipelines.secrets import all_resolved

_LOCAL = re.compile(r"local(\[(\d+|\*)(\s*,\s*\d+)?\])?|local-cluster\[.+\]")
_REMOTE = re.compile(r"spark://.+|yarn|k8s://.+")
_STANDALONE = "spark://"
_CONNECT_TIMEOUT_S = 3.0
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
    problems = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise PipelineError(f"master {master!r}: {address!r} is not an address", hint="write spark://host:7077")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S).close()
            return
        except OSError as error:
            problems.append(f"{address}: {error.strerror or error}")
    raise PipelineError(
        f"no Spark master answers: {'; '.join(problems)}", hint="nothing was read or written; start it, or change --master"
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


def check_secrets(plan: Plan) -> None:
    """PipelineError if the options of a database refer to a secret that is not there."""
    files = [node for nodes in plan.inputs.values() for node in nodes if isinstance(node, Files)]
    tables = [flow.to for flow in plan.queries if isinstance(flow.to, Table)]
    found: list[Files | Table] = [*files, *tables]
    for each in found:
        if each.format != "jdbc":
            continue
        try:
            all_resolved(dict(each.options))
        except ValueError as error:
            raise PipelineError(f"table {each.path!r}: {error}", each.place) from None


def check_storage(storage: str) -> None:
    """Make the directory of checkpoints. PipelineError if it cannot be written; only Spark can look into remote storage."""
    folder = local_folder(storage)
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise PipelineError(
            f"storage {storage} cannot be written: {error.strerror or error}", hint="choose another directory with --storage"
        ) from None
