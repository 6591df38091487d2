"""Error codes of responses in words."""

from __future__ import annotations

from ottla.errors import ErrorCode


def error_name(code: int) -> str:
    """Kafka's name of an error code. A newer broker may send an unknown one."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
