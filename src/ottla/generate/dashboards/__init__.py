"""The dashboards: `brokers`, `topics`, `groups`, `pipelines`, described with `grafana`."""

from __future__ import annotations

from typing import Final

from ottla.generate.dashboards.brokers import BROKERS
from ottla.generate.dashboards.groups import GROUPS
from ottla.generate.dashboards.pipelines import PIPELINES
from ottla.generate.dashboards.topics import TOPICS

DASHBOARDS: Final = (BROKERS, TOPICS, GROUPS, PIPELINES)
