"""References in settings: `${NAME}` is an environment variable, `${file:/path}` the text of a file. `$${` stands for `${`.

Their values are secrets: an error shows the reference, never what it stands for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_REFERENCE = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def resolved(text: str) -> str:
    """The text with its references replaced. ValueError if one cannot be."""
    return _REFERENCE.sub(lambda match: "${" if match[1] else _value(match[2]), text)


def all_resolved(document: Any) -> Any:
    """`resolved` for every text in a document of dicts and lists."""
    if isinstance(document, str):
        return resolved(document)
    if isinstance(document, Mapping):
        return {key: all_resolved(value) for key, value in document.items()}
    if isinstance(document, list):
        return [all_resolved(value) for value in document]
    return document


def _value(reference: str) -> str:
    if reference.startswith("file:"):
        path = reference.removeprefix("file:")
        try:
            # Editors and `echo` end a file with a newline, which no secret has.
            return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise ValueError(f"${{{reference}}}: {error.strerror}") from None
    if not _NAME.fullmatch(reference):
        raise ValueError(f"${{{reference}}} is neither ${{NAME}} nor ${{file:/path}}")
    if reference not in os.environ:
        raise ValueError(f"${{{reference}}}: the environment has no variable {reference}")
    return os.environ[reference]
