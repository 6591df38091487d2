"""The text of a schema as people read and compare it. Pure."""

from __future__ import annotations

import difflib
import json


def pretty(schema_type: str, text: str) -> str:
    """A schema for people."""
    if schema_type == "PROTOBUF":
        return text.rstrip()
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text.rstrip()


def difference(before: str, after: str, before_name: str, after_name: str) -> str:
    """What changed, as a unified diff. Empty if nothing did."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), before_name, after_name, lineterm="")
    return "".join(f"{line}\n" for line in lines)
