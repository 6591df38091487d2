"""CreateTopics, DeleteTopics and CreatePartitions, as the controller performs them.

The rules are `cluster.controller_term`'s. A broker that is not the controller forwards the creation of topics it needs itself
(auto-created topics, `__consumer_offsets`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from ottla.broker.controller.controller_state import ControllerState, failed_results
from ottla.broker.controller.metadata_writer import Acknowledgement, MetadataWriter, shielded
from ottla.cluster.controller_term import ControllerTerm, MetadataUpdate, TopicResult
from ottla.cluster.requests import NewPartitions, NewTopic
from ottla.ports import Random, StoreError
from ottla.security.quotas import Charge

if TYPE_CHECKING:
    from ottla.broker.controller.topic_deletion import TopicDeletion

ForwardTopics = Callable[[Sequence[NewTopic]], Awaitable[list[TopicResult]]]

_ACKNOWLEDGED_S: Final = 10.0
"""How long a reply waits for brokers that are connected and do not answer: a broker that hangs must not block clients."""


async def acknowledged(acknowledgements: Collection[Acknowledgement]) -> None:
    """Wait until every broker that can be reached knows of the change: a client that hears of success finds it everywhere."""
    if acknowledgements:
        await asyncio.wait(acknowledgements, timeout=_ACKNOWLEDGED_S)


class TopicRequests:
    def __init__(
        self,
        state: ControllerState,
        writer: MetadataWriter,
        random: Random,
        *,
        deletion: TopicDeletion | None = None,
        forward: ForwardTopics | None = None,
    ) -> None:
        """Of a cluster: `deletion` removes topics from all brokers, `forward` asks the controller to create topics."""
        self._state = state
        self._writer = writer
        self._random = random
        self._deletion = deletion
        self._forward = forward

    async def create(
        self,
        requested: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        forward: bool = True,
        charge: Charge | None = None,
    ) -> list[TopicResult]:
        """For each topic, in order: the topic, usable now, or a KafkaError. `forward`: if this broker is not the controller, ask
        the controller. `charge`: the client's quota of mutations."""
        state = self._state
        if forward and self._forward is not None and not state.is_active:
            return await self._forward(requested)
        return await self._change(
            lambda term: term.create_topics(
                state.image, state.settings, requested, self._random, None if validate_only else charge
            ),
            validate_only=validate_only,
        )

    async def delete(self, requested: Sequence[str | bytes], charge: Charge | None = None) -> list[TopicResult]:
        """For each topic, by name or id, in order: the topic, deleted now, or a KafkaError."""
        if self._deletion is not None:
            return await self._deletion.delete(requested, charge)
        state = self._state
        return await self._change(lambda term: term.delete_topics(state.image, state.settings, requested, charge))

    async def create_partitions(
        self, requested: Sequence[NewPartitions], *, validate_only: bool = False, charge: Charge | None = None
    ) -> list[TopicResult]:
        """For each topic, in order: the topic with its new partitions, usable now, or a KafkaError."""
        state = self._state
        return await self._change(
            lambda term: term.create_partitions(state.image, requested, None if validate_only else charge),
            validate_only=validate_only,
        )

    @shielded
    async def _change(
        self, decide: Callable[[ControllerTerm], tuple[MetadataUpdate, list[TopicResult]]], *, validate_only: bool = False
    ) -> list[TopicResult]:
        async with self._state.lock:
            update, results = decide(self._state.active_term())
            if validate_only or update.empty:
                return results
            try:
                acknowledgements = await self._writer.commit(update)
            except StoreError as error:
                return failed_results(results, error)
        await acknowledged(acknowledgements)
        return results
