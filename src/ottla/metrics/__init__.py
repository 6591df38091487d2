"""What a broker measures, and how it is told: no I/O, no clock.

`table` names every metric with its type, labels and help; docs/metrics.md is made from it (`page`). `counters` counts rare
events, `histogram` durations and sizes. Collectors turn what parts measured into `family` objects, and `exposition` writes those
as Prometheus or OpenMetrics text, piece by piece.
"""

from ottla.metrics.counters import Counters

__all__ = ["Counters"]
