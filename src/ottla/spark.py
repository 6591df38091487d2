"""Spark sessions in which `format("ottla")` works, and in which pipelines run: `ottla.spark.session()`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session"]


def session(master: str = "local[*]", *, name: str = "ottla", conf: dict[str, str] | None = None) -> SparkSession:
    """The Spark session of this process, started if there is none.

    Its tasks run the Python of this process, also in a session that was started before. A new session has the settings that
    exactly once needs.
    """
    from ottla.pipelines import session as sessions

    return sessions.with_data_source(sessions.start(name, master, conf or {}))


def adopt() -> None:
    """Make `format("ottla")` work in the session that runs in this process, if there is one."""
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    # `import ottla` calls this: whatever ails the session, the import must not fail.
    with suppress(Exception):
        active = None if is_remote() else SparkSession.getActiveSession()
        if active is not None:
            from ottla.pipelines import session as sessions

            sessions.with_data_source(active)
