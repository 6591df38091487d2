"""What this broker knows now: its id, the cluster image it has applied, and its settings with the dynamic ones.

`app` sets it. The other parts of the broker read it, and keep neither an image nor settings of their own.
"""

from __future__ import annotations

from ottla.cluster.image import ClusterImage
from ottla.cluster.settings import BrokerSettings


class LocalMetadata:
    __slots__ = ("broker_id", "image", "settings")

    def __init__(self, settings: BrokerSettings, broker_id: int = -1, image: ClusterImage | None = None) -> None:
        self.settings = settings
        self.broker_id = broker_id
        self.image = image if image is not None else ClusterImage("")
