"""Spark sessions in which `format("ottla")` works, and in which pipelines run: `ottla.spark.session()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session"]


def session(master: str = "local[*]", *, name: str = "ottla", conf: dict[str, str] | None = None) -> SparkSession:
    """The Spark session of this process, started if there is none.

    Spark runs the first `python3` of the PATH, which may be one without Ottla (a notebook's is). Here it runs the Python of this
    process, also in a session that was started before. A new session has the settings that exactly once needs.
    """
    from ottla.pipelines import session as sessions

    return sessions.with_data_source(sessions.start(name, master, conf or {}))
