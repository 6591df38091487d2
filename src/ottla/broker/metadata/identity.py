"""The broker id and the cluster id, on which settings, metadata store and data directories must agree.

Resolves both at a start, generates those that do not exist yet, and creates the paths that every metadata store has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from ottla.broker.metadata.tree import load_brokers
from ottla.cluster import znodes
from ottla.cluster.image import Endpoint
from ottla.cluster.settings import BrokerSettings, SettingsError
from ottla.cluster.znodes import new_uuid, uuid_text
from ottla.ports import BadVersion, Change, Clock, Create, MetadataStore, NodeExists, Random, SetData, StoreError

logger = logging.getLogger(__name__)

_POLL_S: Final = 0.25
_SECRET_BYTES: Final = 32


async def resolve_identity(
    store: MetadataStore,
    settings: BrokerSettings,
    random: Random,
    stored_broker_id: int | None = None,
    stored_cluster_id: str | None = None,
) -> tuple[int, str]:
    """The broker id and the cluster id: from the settings, from meta.properties (`stored_*`), else generated.

    SettingsError where they disagree: data must not be opened as another broker or in another cluster.
    """
    connect = settings.optional_str("zookeeper.connect")
    if connect is not None and stored_cluster_id is not None and await store.get(znodes.CLUSTER_ID) is None:
        # A typo in the chroot: in an empty cluster all logs of this broker would be treated as stray.
        raise SettingsError(
            [
                f"the data directories belong to the cluster {stored_cluster_id}, but there is no cluster at "
                f"zookeeper.connect={connect} (is the path right?)"
            ]
        )
    await ensure_base_paths(store)
    problems: list[str] = []
    cluster_id = await find_cluster_id(store, random, stored_cluster_id)
    if stored_cluster_id is not None and stored_cluster_id != cluster_id:
        problems.append(
            f"the data directories belong to the cluster {stored_cluster_id}, but the metadata store to the cluster {cluster_id}"
        )
    broker_id = settings.broker_id()
    source = "meta.properties"
    if stored_broker_id is None and connect is None:
        stored_broker_id, source = await _only_replica(store), "according to its topics; meta.properties is missing"
    if stored_broker_id is not None:
        if broker_id not in (-1, stored_broker_id):
            problems.append(
                f"broker.id={broker_id}, but the data directories belong to broker {stored_broker_id} ({source}); "
                f"set broker.id={stored_broker_id}, or use other directories"
            )
        broker_id = stored_broker_id
    if problems:
        raise SettingsError(problems)
    if broker_id < 0 and connect is None:
        # There are no other brokers: an id that a failed start did not store can be used again.
        broker_id = settings.int("reserved.broker.max.id") + 1
    elif broker_id < 0:
        broker_id = await _generate_broker_id(store, settings)
    return broker_id, cluster_id


async def check_addresses(
    store: MetadataStore, broker_id: int, endpoints: Sequence[Endpoint], clock: Clock, expiry_s: float
) -> None:
    """StoreError if another broker advertises an address of this one: it would get the control requests of this broker.
    `expiry_s`: how long the registration of a broker that is gone may take to expire."""
    own = {(endpoint.host, endpoint.port) for endpoint in endpoints}
    deadline = clock.monotonic() + expiry_s
    warned = False
    while True:
        taken = [
            f"{endpoint.host}:{endpoint.port} is advertised by broker {number} already (advertised.listeners)"
            for number, broker in (await load_brokers(store)).items()
            for endpoint in broker.endpoints
            if number != broker_id and (endpoint.host, endpoint.port) in own
        ]
        if not taken:
            return
        if clock.monotonic() >= deadline:
            raise StoreError(taken[0])
        if not warned:
            warned = True
            logger.warning("%s; if that broker is gone, its registration expires within %.0f s", taken[0], expiry_s)
        await asyncio.sleep(_POLL_S)


async def ensure_base_paths(store: MetadataStore) -> None:
    """Create missing base paths. Other brokers may be creating them at the same time."""
    while True:
        missing = [path for path in znodes.BASE_PATHS if await store.get(path) is None]
        changes: list[Change] = [Create(path) for path in missing]
        if await store.get(znodes.CONTROLLER_EPOCH) is None:
            changes.append(Create(znodes.CONTROLLER_EPOCH, b"0"))
        try:
            if changes:
                await store.multi(changes)
            return
        except NodeExists:
            continue


async def find_cluster_id(store: MetadataStore, random: Random, stored: str | None) -> str:
    node = await store.get(znodes.CLUSTER_ID)
    if node is None:
        cluster_id = stored or uuid_text(new_uuid(random))
        try:
            await store.multi([Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id))])
            return cluster_id
        except NodeExists:
            node = await store.get(znodes.CLUSTER_ID)
            assert node is not None
    return znodes.decode_cluster_id(node.data)


async def find_login_secret(store: MetadataStore, random: Random) -> bytes:
    """A secret that all brokers share: from it follow the salts that SCRAM shows of unknown users."""
    node = await store.get(znodes.LOGIN_SECRET)
    while node is None:
        try:
            await store.multi([Create(znodes.LOGIN_SECRET, random.bytes(_SECRET_BYTES))])
        except NodeExists:
            pass
        node = await store.get(znodes.LOGIN_SECRET)
    return node.data


async def _only_replica(store: MetadataStore) -> int | None:
    """The broker id in the assignments of a broker that is alone. If every meta.properties is lost nothing else has it, and under
    another id all logs would be treated as stray."""
    for topic in await store.children(znodes.TOPICS):
        node = await store.get(znodes.topic_path(topic))
        replicas = (
            set() if node is None else {id for ids in znodes.decode_topic(topic, node.data).replicas.values() for id in ids}
        )
        if len(replicas) == 1:
            return replicas.pop()
    return None


async def _generate_broker_id(store: MetadataStore, settings: BrokerSettings) -> int:
    """As in Kafka, from the version of a node: each write gives another one."""
    while True:
        node = await store.get(znodes.BROKER_SEQUENCE)
        assert node is not None
        try:
            await store.multi([SetData(znodes.BROKER_SEQUENCE, b"", node.version)])
        except BadVersion:
            continue
        return settings.int("reserved.broker.max.id") + node.version + 1
