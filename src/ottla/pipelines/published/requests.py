"""Requests to a driver, in the topic in which it publishes itself: to stop between two batches.

A request names the run that it is for. A driver that began later is another run, and goes on. Who may write the topic may stop
what it names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ottla.pipelines.published.documents import VERSION, now_ms

_STOP = "stop"


def key_of(pipeline: str) -> str:
    """No flow has such a name."""
    return f"{pipeline}//request"


def stop_request(pipeline: str, run: str, by: str | None) -> dict[str, str]:
    """The record that asks a run to stop."""
    document = {"version": VERSION, "pipeline": pipeline, "run": run, "request": _STOP, "by": by, "at_ms": now_ms()}
    return {key_of(pipeline): json.dumps(document)}


def stop_asked_by(latest: Mapping[str, str], pipeline: str, run: str) -> str | None:
    """Who asked this run to stop; None if nobody did. `latest` are the values of the topic by key."""
    try:
        found = json.loads(latest.get(key_of(pipeline), "null"))
    except ValueError:
        return None
    if not isinstance(found, dict) or (found.get("version"), found.get("run"), found.get("request")) != (VERSION, run, _STOP):
        return None
    return str(found.get("by") or "somebody")
