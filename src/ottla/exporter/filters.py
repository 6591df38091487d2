"""Which topics and groups are exported, by regular expressions that match anywhere in a name, as kafka_exporter's do."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NameFilter:
    included: re.Pattern[str] | None = None
    excluded: re.Pattern[str] | None = None

    @classmethod
    def of(cls, included: str | None, excluded: str | None) -> NameFilter:
        """re.error if one is no regular expression."""
        return cls(re.compile(included) if included else None, re.compile(excluded) if excluded else None)

    def __call__(self, name: str) -> bool:
        if self.included is not None and self.included.search(name) is None:
            return False
        return self.excluded is None or self.excluded.search(name) is None


EVERYTHING = NameFilter()
