"""CreateAcls, DeleteAcls and DescribeAcls: ACLs in the metadata tree, written by the broker that is asked, controller or not.

1. The change of a resource and its notification are one write, which checks the version of the node that it starts from (AC08).
   A resource that has no entries left has no node.
2. In a cluster a change is answered when every registered broker of Ottla has acknowledged its notification (AC09, ADR 9). Apache
   Kafka brokers acknowledge nothing: they enforce it a moment later, as among themselves.
3. A broker that does not acknowledge in time fails the request with REQUEST_TIMED_OUT, although the change is written: the client
   must not believe that it is enforced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.broker.controller.controller_state import kafka_error
from ottla.broker.controller.metadata_writer import shielded
from ottla.broker.metadata.acl_follower import decoded, ensure_acl_paths, load_acls
from ottla.broker.metadata.tree import each
from ottla.cluster import znodes
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import BadVersion, Change, Clock, Create, Delete, MetadataStore, NodeExists, NoNode, SetData, StoreError
from ottla.security import acl_nodes
from ottla.security.acl import (
    CLUSTER,
    CLUSTER_NAME,
    OPERATION_NAMES,
    PATTERN_NAMES,
    PERMISSION_NAMES,
    RESOURCE_NAMES,
    AclEntry,
    AclFilter,
    ResourcePattern,
)
from ottla.security.authorizer import Authorizer

if TYPE_CHECKING:
    from ottla.broker.metadata.acl_follower import AclFollower

logger = logging.getLogger(__name__)

Binding = tuple[ResourcePattern, AclEntry]

_POLL_FIRST_S: Final = 0.003
_POLL_MAX_S: Final = 0.1


@dataclass(slots=True)
class Deleted:
    """What one filter deleted."""

    acls: list[Binding] = field(default_factory=list)
    failures: dict[ResourcePattern, KafkaError] = field(default_factory=dict)
    """Resources whose matching ACLs could not be deleted, or whose deletion is not known to be enforced."""
    failure: KafkaError | None = None
    """Why it is unknown whether there are more: a resource could not be read, or an earlier deletion is not known to be
    enforced."""


@dataclass(slots=True)
class _Written:
    """The last notification of each kind that brokers have to acknowledge for a request."""

    literal: int = -1
    prefixed: int = -1
    unchanged: set[int] = field(default_factory=set)
    """Pattern types of resources that were as requested already. The request that made them so may still wait for brokers: the
    last notification there is counts."""

    def note(self, path: str) -> None:
        number = int(path.rpartition(acl_nodes.CHANGE_PREFIX)[2])
        if path.startswith(f"{acl_nodes.ACL_CHANGES}/"):
            self.literal = max(self.literal, number)
        else:
            self.prefixed = max(self.prefixed, number)

    @property
    def empty(self) -> bool:
        return self.literal < 0 and self.prefixed < 0


class AclRequests:
    def __init__(
        self,
        store: MetadataStore,
        authorizer: Authorizer,
        broker_id: int,
        clock: Clock,
        follower: AclFollower | None = None,
        *,
        acknowledged_within_s: float = 30.0,
    ) -> None:
        """`follower`: of a broker in a cluster."""
        self.authorizer = authorizer
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self._follower = follower
        self._within_s = acknowledged_within_s
        self._lock = follower.lock if follower is not None else asyncio.Lock()

    async def load(self) -> None:
        """Read the ACLs of a broker alone."""
        await ensure_acl_paths(self._store)
        self.authorizer.replace_all(await load_acls(self._store))

    def describe(self, wanted: AclFilter) -> dict[ResourcePattern, list[AclEntry]]:
        """The ACLs that match, in order."""
        found: dict[ResourcePattern, list[AclEntry]] = {}
        for resource, entries in sorted(self.authorizer.index.entries.items()):
            if wanted.matches_resource(resource):
                matching = [entry for entry in sorted(entries) if wanted.matches_entry(entry)]
                if matching:
                    found[resource] = matching
        return found

    @shielded
    async def create(self, bindings: Sequence[Binding]) -> list[KafkaError | None]:
        """For each ACL, in order: None if every broker enforces it, or a KafkaError."""
        results: list[KafkaError | None] = [_problem(resource, entry) for resource, entry in bindings]
        by_resource: dict[ResourcePattern, set[int]] = {}
        for number, (resource, _) in enumerate(bindings):
            if results[number] is None:
                by_resource.setdefault(resource, set()).add(number)
        written = _Written()
        for resource, numbers in by_resource.items():
            added = frozenset(bindings[number][1] for number in numbers)
            try:
                await self._change(resource, lambda present, added=added: present | added, written, repair=False)  # type: ignore[misc]
            except KafkaError as error:
                for number in numbers:
                    results[number] = error
        late = await self._until_enforced(written)
        return [late if result is None else result for result in results]

    @shielded
    async def delete(self, filters: Sequence[AclFilter]) -> list[Deleted]:
        """For each filter, in order, what it deleted. An ACL that several match is reported under the first."""
        results = [Deleted() for _ in filters]
        resources = set(self.authorizer.index.entries).union(*(each.named_resources() for each in filters))
        written = _Written()
        for resource in sorted(resources):
            matching = [number for number, each in enumerate(filters) if each.matches_resource(resource)]
            if not matching:
                continue
            removed: dict[AclEntry, int] = {}

            def remaining(
                present: frozenset[AclEntry], matching: list[int] = matching, removed: dict[AclEntry, int] = removed
            ) -> frozenset[AclEntry]:
                removed.clear()
                for entry in sorted(present):
                    first = next((number for number in matching if filters[number].matches_entry(entry)), None)
                    if first is not None:
                        removed[entry] = first
                return present.difference(removed)

            failure: KafkaError | None = None
            try:
                await self._change(resource, remaining, written, repair=True)
            except KafkaError as error:
                failure = error
            for entry, number in removed.items():
                results[number].acls.append((resource, entry))
                if failure is not None:
                    results[number].failures[resource] = failure
            if failure is not None and not removed:
                for number in matching:
                    results[number].failure = failure
        late = await self._until_enforced(written)
        if late is not None:
            for result in results:
                result.failure = result.failure or late
                for resource, _ in result.acls:
                    result.failures.setdefault(resource, late)
        return results

    async def _change(
        self,
        resource: ResourcePattern,
        alter: Callable[[frozenset[AclEntry]], frozenset[AclEntry]],
        written: _Written,
        *,
        repair: bool,
    ) -> None:
        """Replace the entries of a resource by what `alter` makes of them, here and in the tree. `repair`: also those of a node
        that cannot be parsed."""
        path = acl_nodes.acl_path(resource)
        notification = Create(acl_nodes.change_path(resource.pattern), acl_nodes.encode_acl_change(resource), sequential=True)
        async with self._lock:
            try:
                while True:
                    node = await self._store.get(path)
                    present = decoded(resource, node)
                    if present is acl_nodes.UNREADABLE and not repair:
                        text = f"the ACLs of {resource} cannot be parsed; delete them first"
                        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text)
                    entries = alter(present)
                    if entries != present:
                        change: Change
                        if node is None:
                            change = Create(path, acl_nodes.encode_acls(entries))
                        elif entries:
                            change = SetData(path, acl_nodes.encode_acls(entries), node.version)
                        else:
                            change = Delete(path, node.version)
                        try:
                            paths = await self._store.multi([change, notification])
                        except (BadVersion, NodeExists):
                            continue
                        except NoNode:
                            await ensure_acl_paths(self._store)
                            continue
                        written.note(paths[-1])
                    else:
                        written.unchanged.add(resource.pattern)
                    if self.authorizer.index.entries.get(resource, frozenset()) != entries:
                        self.authorizer.set(resource, entries)
                    return
            except StoreError as error:
                raise kafka_error(error) from error

    async def _until_enforced(self, written: _Written) -> KafkaError | None:
        """Wait until every broker enforces what was written. Returns an error that names those that have not done so in time."""
        if self._follower is None:
            return None
        deadline = self._clock.monotonic() + self._within_s
        pause_s = _POLL_FIRST_S
        try:
            await self._note_unchanged(written)
        except StoreError as error:
            return kafka_error(error)
        while not written.empty:
            try:
                late = await self._not_enforcing(written)
            except StoreError as error:
                return kafka_error(error)
            if not late:
                return None
            if self._clock.monotonic() >= deadline:
                brokers = ", ".join(map(str, late))
                logger.warning("ACLs are written, but brokers %s have not confirmed that they enforce them", brokers)
                return KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT, f"the ACLs are written, but not yet enforced by broker {brokers}; try again"
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _POLL_MAX_S)
        return None

    async def _note_unchanged(self, written: _Written) -> None:
        for pattern in written.unchanged:
            directory = acl_nodes.change_path(pattern).rpartition("/")[0]
            for name in await self._store.children(directory):
                written.note(f"{directory}/{name}")

    async def _not_enforcing(self, written: _Written) -> list[int]:
        """Registered brokers with an authorizer of Ottla that have not acknowledged what was written."""
        brokers = [int(name) for name in await self._store.children(znodes.BROKER_IDS) if name.isdigit()]
        others = [broker_id for broker_id in brokers if broker_id != self._broker_id]
        nodes = await each([acl_nodes.acknowledged_path(broker_id) for broker_id in others], self._store.get)
        late: list[int] = []
        for broker_id, node in zip(others, nodes, strict=True):
            if node is not None:
                literal, prefixed = acl_nodes.decode_acknowledged(node.data)
                if literal < written.literal or prefixed < written.prefixed:
                    late.append(broker_id)
        return late


def _problem(resource: ResourcePattern, entry: AclEntry) -> KafkaError | None:
    """Why an ACL cannot be created."""
    for what, number, known in (
        ("resource type", resource.type, RESOURCE_NAMES),
        ("pattern type", resource.pattern, PATTERN_NAMES),
        ("operation", entry.operation, OPERATION_NAMES),
        ("permission type", entry.permission, PERMISSION_NAMES),
    ):
        if number not in known:
            return KafkaError(ErrorCode.INVALID_REQUEST, f"an ACL cannot have the {what} {number}")
    if resource.type == CLUSTER and resource.name != CLUSTER_NAME:
        return KafkaError(ErrorCode.INVALID_REQUEST, f"the only resource of type CLUSTER is {CLUSTER_NAME}")
    if not resource.name:
        return KafkaError(ErrorCode.INVALID_REQUEST, "the name of the resource is empty")
    if "/" in resource.name or resource.name in (".", ".."):
        return KafkaError(ErrorCode.INVALID_REQUEST, f"{resource.name!r} cannot be the name of a resource")
    try:
        acl_nodes.check_principal(entry.principal)
    except ValueError as error:
        return KafkaError(ErrorCode.INVALID_REQUEST, str(error))
    return None


def words(bindings: Iterable[Binding]) -> str:
    """ACLs for the log."""
    return "; ".join(f"{entry} on {resource}" for resource, entry in bindings)
