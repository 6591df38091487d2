"""Content types (SR01): which one a client accepts, and which ones it may send."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

V1: Final = "application/vnd.schemaregistry.v1+json"
_PRODUCED: Final = (V1, "application/vnd.schemaregistry+json", "application/json")
_CONSUMED: Final = frozenset({*_PRODUCED, "application/octet-stream"})


@lru_cache(maxsize=256)
def accepted(accept: str) -> str | None:
    """The type to answer with, the client's preferred one and else the most specific. None if the client takes none of ours."""
    if not accept.strip():
        return V1
    best: dict[str, float] = {}
    for part in accept.split(","):
        name, *parameters = (word.strip() for word in part.split(";"))
        quality = _quality(parameters)
        for produced in _PRODUCED:
            if name.lower() in (produced, "*", "application/*") or name.startswith("*/"):
                best[produced] = max(best.get(produced, 0.0), quality)
    chosen = max(_PRODUCED, key=lambda produced: best.get(produced, 0.0))
    return chosen if best.get(chosen, 0.0) > 0 else None


def is_consumed(content_type: str) -> bool:
    """Whether a body of this type is read; one without a type is."""
    name = content_type.partition(";")[0].strip().lower()
    return not name or name in _CONSUMED


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
