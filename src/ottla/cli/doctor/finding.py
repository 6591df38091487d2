"""A finding: what is wrong with what, how bad it is, and the command that mends it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    ERROR = "error"
    """Clients fail, or records are in danger."""
    WARNING = "warning"
    """It works, and will not for long, or not in every case."""
    INFO = "info"
    """Nothing is wrong, or nobody could look."""


ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    severity: Severity
    subject: str
    what: str
    mend: str | None = None

    def document(self) -> dict[str, Any]:
        return {
            "check": self.check,
            "severity": str(self.severity),
            "subject": self.subject,
            "what": self.what,
            "mend": self.mend,
        }
