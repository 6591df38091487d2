"""Prometheus's text format, as a scraper reads it."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator, Mapping

Labels = frozenset[tuple[str, str]]

_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"(?:,|$)')


class Samples(Mapping[str, dict[Labels, float]]):
    """The samples of one page by name, and by labels."""

    def __init__(self, text: str) -> None:
        self._families: dict[str, dict[Labels, float]] = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                found = _SAMPLE.fullmatch(line)
                assert found, f"{line!r} is no sample"
                labels = frozenset(_LABEL.findall(found[2] or ""))
                family = self._families.setdefault(found[1], {})
                assert labels not in family, f"{line!r} is there twice"
                family[labels] = float(found[3])

    def __getitem__(self, name: str) -> dict[Labels, float]:
        return self._families[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._families)

    def __len__(self) -> int:
        return len(self._families)

    def of(self, name: str, **labels: object) -> float | None:
        """The sample of this name and exactly these labels."""
        return self._families.get(name, {}).get(frozenset((key, str(value)) for key, value in labels.items()))

    def with_labels(self, name: str, **labels: object) -> list[dict[str, str]]:
        """The labels of all samples of this name that have these labels."""
        wanted = {(key, str(value)) for key, value in labels.items()}
        return [dict(each) for each in self._families.get(name, {}) if wanted <= each]


def scrape(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return Samples(answer.read().decode())
