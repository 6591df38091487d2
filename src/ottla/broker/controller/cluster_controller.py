"""The controller of a broker in a cluster: its parts, and the terms in which this broker is the active controller (F59-F61).

1. A term begins by loading the whole tree and sending every broker its whole state: what the previous controller left undone is
   done then (C09).
2. If the metadata tree and the image differ, the controller resigns: the next term loads everything again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ottla.broker.controller.acl_requests import AclRequests
from ottla.broker.controller.admin_znodes import AdminZnodes
from ottla.broker.controller.broker_requests import BrokerRequests
from ottla.broker.controller.cluster_configs import ClusterConfigs
from ottla.broker.controller.controller_channels import ControlRequestSender
from ottla.broker.controller.controller_client import BrokerClient, ControllerClient
from ottla.broker.controller.controller_state import ControllerState
from ottla.broker.controller.election import Election
from ottla.broker.controller.leader_elections import LeaderElections
from ottla.broker.controller.metadata_writer import MetadataWriter
from ottla.broker.controller.offline_replicas import OfflineReplicas
from ottla.broker.controller.partition_requests import PartitionRequests
from ottla.broker.controller.producer_ids import ProducerIds
from ottla.broker.controller.registration import BrokerRegistration
from ottla.broker.controller.topic_deletion import TopicDeletion
from ottla.broker.controller.topic_requests import TopicRequests
from ottla.broker.controller.topic_znodes import TopicZnodes
from ottla.broker.controller.tree_watcher import TreeWatcher
from ottla.broker.metadata.acl_follower import AclFollower
from ottla.broker.metadata.dynamic_configs import DynamicConfigs
from ottla.broker.metadata.identity import ensure_base_paths, find_cluster_id
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.metadata.tree import load_image, retry_unavailable
from ottla.cluster import znodes
from ottla.cluster.broker_changes import with_elections
from ottla.cluster.controller_term import ControllerTerm, MetadataUpdate
from ottla.cluster.image import BrokerImage, ClusterImage
from ottla.cluster.tree_changes import state_changes
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Clock, Create, MetadataStore, Random, StoreError

logger = logging.getLogger(__name__)


class ClusterController:
    def __init__(
        self,
        store: MetadataStore,
        metadata: LocalMetadata,
        configs: DynamicConfigs,
        client: BrokerClient,
        clock: Clock,
        random: Random,
    ) -> None:
        self.dynamic_configs = configs
        self._store = store
        self._random = random
        self._static_settings = metadata.settings
        self._cluster_id = ""
        self._loops: list[asyncio.Task[None]] = []
        self.state = state = ControllerState(metadata.broker_id, metadata.settings)
        acls: AclFollower | None = None
        if metadata.authorizer is not None:
            acls = AclFollower(store, metadata.authorizer, metadata.broker_id)
        self._acl_follower = acls
        self.registration = BrokerRegistration(store, metadata, clock, acls)
        self.election = Election(store, self.registration, clock, self)
        self._sender = ControlRequestSender(state, client.send, self._responded)
        self._writer = MetadataWriter(store, state, self._sender, on_conflict=self._conflicted, on_commit=self._committed)
        self._leaders = LeaderElections(store, state, self._writer)
        self.acl_requests: AclRequests | None = None
        if metadata.authorizer is not None:
            # A broker that can neither acknowledge nor be reached loses its registration within that time.
            within_s = self.registration.expiry_s + 2
            self.acl_requests = AclRequests(
                store, metadata.authorizer, metadata.broker_id, clock, acls, acknowledged_within_s=within_s
            )
        remote = ControllerClient(client.call, metadata, self.election)
        self._watcher = TreeWatcher(store, state, self.election.resign)
        self._deletion = TopicDeletion(store, state, self._writer, self._watcher)
        self._topic_znodes = TopicZnodes(store, state, self._writer, random, self._deletion, self._watcher.read_soon)
        self._offline = OfflineReplicas(store, state, self._writer, self._sender)
        self.topic_requests = TopicRequests(state, self._writer, random, deletion=self._deletion, forward=remote.create_topics)
        self.partition_requests = PartitionRequests(state, self._writer)
        self.config_requests = ClusterConfigs(store, state, configs, metadata)
        self.producer_ids = ProducerIds(store, state, remote.allocate_producer_ids)
        self.broker_requests = BrokerRequests(state, self._writer, self._sender, self.producer_ids, self._watcher.read_soon)
        self._admin_znodes = AdminZnodes(store, state, self.partition_requests, self._watcher)
        self._watcher.readers = (
            self._leaders.read_brokers,
            self._topic_znodes.read,
            self._deletion.read_marks,
            self._offline.read_log_dir_events,
            self._admin_znodes.read,
            self.broker_requests.complete_reassignments,
        )
        configs.on_topics = self._leaders.topics_configured
        configs.on_brokers = self._brokers_configured

    @property
    def broker_epoch(self) -> int:
        return self.registration.epoch

    @property
    def controller_id(self) -> int:
        return self.election.controller_id

    async def start(self, on_refused: Callable[[str], None]) -> None:
        """Register, and stand for election. StoreError if the broker cannot register.

        `on_refused` is called if it cannot register again later: this broker has to stop."""
        self.registration.on_refused = on_refused
        await retry_unavailable(lambda: ensure_base_paths(self._store))
        self._cluster_id = await retry_unavailable(lambda: find_cluster_id(self._store, self._random, None))
        await self.dynamic_configs.start()
        if self._acl_follower is not None:
            await self._acl_follower.start()
        self._watcher.watch()
        await self.election.start()
        if self._acl_follower is not None:
            await self._acl_follower.registered()
        loop = asyncio.get_running_loop()
        self._loops = [loop.create_task(self._watcher.run()), loop.create_task(self._leaders.balance())]

    async def stop(self) -> None:
        """End the term and stop watching. The registration goes with the session."""
        self.state.cancel_tasks()
        for task in self._loops:
            task.cancel()
        if self._loops:
            await asyncio.wait(self._loops)
        await self.election.stop()
        await self.dynamic_configs.stop()
        if self._acl_follower is not None:
            await self._acl_follower.stop()

    async def report_log_dir_failure(self) -> None:
        """Tell the controller that a data directory of this broker failed."""
        data = znodes.encode_log_dir_event(self.state.broker_id)
        await self._store.multi([Create(f"{znodes.LOG_DIR_EVENTS}/log_dir_event_", data, sequential=True)])

    # Terms

    async def begin_term(self, term: ControllerTerm) -> None:
        state = self.state
        # Before anything is awaited: a session that expires meanwhile ends this term too.
        state.term = term
        async with state.lock:
            dynamic = self.dynamic_configs
            known = dynamic.brokers, dynamic.groups, dynamic.client_metrics
            loaded = await load_image(self._store, self._cluster_id, state.broker_id, term.epoch, self._random, known)
            if state.term is not term:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "the session expired while the term began")
            deleting = await self._deletion.take_over(loaded)
            image = with_elections(loaded.image, state.unclean_allowed)
            created = {key for key in loaded.created if key[0] in image.topics}
            repairs = [change for change in loaded.repairs if znodes.topic_of(change.path) not in deleting]
            if await self._store.get(znodes.FEATURE) is None:
                repairs.append(Create(znodes.FEATURE, znodes.NO_FEATURES))
            changes = [term.fence, *repairs, *state_changes(loaded.image, image, term.epoch)]
            # No broker has heard of this controller: compared with this image, everything is new and some topics are removed.
            state.image = ClusterImage(self._cluster_id, topics=deleting)
            acknowledgements = await self._writer.commit(MetadataUpdate(changes, image), created=created)
        for topic in deleting.values():
            self._deletion.finish_later(topic, acknowledgements)
        self._watcher.read_soon()

    def end_term(self) -> None:
        self.state.term = None
        self._topic_znodes.end_term()
        self._deletion.end_term()
        self._admin_znodes.end_term()
        self._sender.close()
        self.state.image = ClusterImage("")

    def _resign(self) -> None:
        self.state.spawn(self.election.resign())

    def _conflicted(self, error: StoreError) -> None:
        logger.warning("Resigning as controller, the metadata tree differs from the controller's image: %s", error)
        self._resign()

    def _committed(self) -> None:
        if self._admin_znodes.has_reassignments:
            self._watcher.read_soon()

    def _responded(self, broker: BrokerImage, api_name: str, response: Any) -> None:
        if response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
            self._resign()
        else:
            self._offline.responded(broker, api_name, response)

    def _brokers_configured(self, configs: dict[str, dict[str, str]]) -> None:
        own, default = configs.get(str(self.state.broker_id), {}), configs.get("", {})
        self.state.settings = self._static_settings.with_dynamic(own, default) if own or default else self._static_settings
        self._leaders.brokers_configured(configs)
