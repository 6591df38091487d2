"""Publishes the controller's image to the brokers of a cluster, as control requests (F61).

Compares the image with the one before and sends each broker LeaderAndIsr, UpdateMetadata and StopReplica for the difference. The
requests are `cluster.control_requests`'; their delivery is `controller_channels`'.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ottla.broker.controller.controller_channels import ControllerChannels, Responded, Send
from ottla.broker.controller.controller_state import ControllerState
from ottla.broker.controller.publisher import Acknowledgement
from ottla.cluster.control_requests import ControlRequests, control_requests_between, stop_replica
from ottla.cluster.image import BrokerImage, ClusterImage
from ottla.protocol.messages.stop_replica import StopReplicaTopicState


class ControlRequestSender:
    def __init__(self, state: ControllerState, send: Send, on_response: Responded) -> None:
        self._state = state
        self._channels = ControllerChannels(send, on_response, self._full_requests)

    async def prepare(self, image: ClusterImage) -> None:
        """Nothing: this broker learns of the image as every other, by control requests."""

    def publish(
        self, before: ClusterImage, image: ClusterImage, created: Collection[tuple[str, int]]
    ) -> Collection[Acknowledgement]:
        for broker_id in before.brokers:
            if broker_id not in image.brokers:
                self._channels.forget(broker_id)
        return self._channels.send(self._between(before, image, created)).values()

    def send_everything(self, broker_id: int) -> None:
        """Send a broker its whole state again: its answer says which replicas are offline."""
        self._channels.send(self._full_requests(broker_id))

    def stop_replicas(self, broker: BrokerImage, topics: Sequence[StopReplicaTopicState]) -> None:
        """Stop replicas of a broker beyond what follows from the image."""
        request = stop_replica(self._state.image, broker, self._state.active_term().epoch, topics)
        self._channels.send_one(broker, "stop_replica", request)

    def close(self) -> None:
        self._channels.close()

    def _full_requests(self, broker_id: int) -> list[ControlRequests]:
        image = self._state.image
        without = replace(image, brokers={other: broker for other, broker in image.brokers.items() if other != broker_id})
        return [requests for requests in self._between(without, image) if requests.broker.id == broker_id]

    def _between(
        self, before: ClusterImage, image: ClusterImage, created: Collection[tuple[str, int]] = ()
    ) -> list[ControlRequests]:
        return control_requests_between(
            before,
            image,
            controller_epoch=self._state.active_term().epoch,
            listener=self._state.settings.listeners().inter_broker,
            created=created,
        )
