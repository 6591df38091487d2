"""What this broker knows now: who it is, the cluster image it has applied, and its settings with the dynamic ones.

`app` sets it. The other parts of the broker read it, and keep neither an image nor settings of their own.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.cluster.image import ClusterImage, Endpoint
from ottla.cluster.settings import BrokerSettings


class LocalMetadata:
    def __init__(self, settings: BrokerSettings, broker_id: int = -1, image: ClusterImage | None = None) -> None:
        self.settings = settings
        self.broker_id = broker_id
        self.endpoints: tuple[Endpoint, ...] = ()
        """The advertised listeners, with the ports that are bound."""
        self.image = image if image is not None else ClusterImage("")
        self.in_cluster = settings.optional_str("zookeeper.connect") is not None
        self.authorizer = settings.new_authorizer()
        """With the ACLs of the metadata tree; None: everyone may do everything."""
        self.registration_epoch: Callable[[], int] | None = None
        """In a cluster: the epoch of this broker's registration."""

    @property
    def broker_epoch(self) -> int:
        """The epoch of the current registration, -1 for a broker alone."""
        return self.registration_epoch() if self.registration_epoch is not None else -1
