"""Bugs of authorization: ACL changes that are confirmed too early or lost, and decisions that outlive the ACLs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.broker.authorization import hot
from ottla.broker.controller import acl_requests
from ottla.broker.controller.acl_requests import AclRequests
from ottla.broker.metadata.acl_follower import AclFollower
from ottla.broker.metadata.change_notifications import ChangeNotifications
from ottla.errors import KafkaError
from ottla.ports import Change, Delete, SetData
from ottla.security.acl import DENY, AclEntry
from ottla.security.acl_index import Rules
from ottla.security.authorizer import Authorizer, Permissions
from ottla.sim.bugs.registry import Patch, bug

FIRST_WITH_ACLS = 2
"""The first seed of the world `cluster` that has ACLs."""


@bug("a change of ACLs is confirmed before other brokers enforce it", world="cluster", seeds_max=20, first=FIRST_WITH_ACLS)
def acl_changes_not_awaited() -> list[Patch]:
    async def at_once(self: AclRequests, written: Any) -> KafkaError | None:
        return None

    return [(AclRequests, "_until_enforced", at_once)]


@bug(
    "a repeated change of ACLs is confirmed although the first may not be enforced",
    world="cluster",
    seeds_max=40,
    first=FIRST_WITH_ACLS,
)
def repeated_acl_change_not_awaited() -> list[Patch]:
    async def note_unchanged(self: AclRequests, written: Any) -> None:
        return None

    return [(AclRequests, "_note_unchanged", note_unchanged)]


@bug("a change of ACLs does not check the version of the node", world="cluster", seeds_max=40, first=FIRST_WITH_ACLS)
def acl_changes_overwritten() -> list[Patch]:
    return [
        (acl_requests, "SetData", lambda path, data, version: SetData(path, data)),
        (acl_requests, "Delete", lambda path, version: Delete(path)),
    ]


@bug("a broker confirms a change of ACLs before it has read them", world="cluster", seeds_max=40, first=FIRST_WITH_ACLS)
def acls_acknowledged_unread() -> list[Patch]:
    original = AclFollower._apply

    async def apply(self: AclFollower, notifications: ChangeNotifications, fresh: list[str]) -> None:
        notifications.seen(fresh[-1])
        await self._acknowledge()
        await original(self, notifications, fresh)

    return [(AclFollower, "_apply", apply)]


@bug("a broker does not follow ACL changes after its session has expired", world="cluster", seeds_max=40, first=FIRST_WITH_ACLS)
def acls_not_read_after_expiry() -> list[Patch]:
    original = AclFollower.registration

    def registration(self: AclFollower) -> Sequence[Change]:
        return original(self) if self._acknowledged is None and not self._authorizer.suspended else []

    def registered_again(self: AclFollower) -> None:
        self._authorizer.resume()
        if self._reader._task is not None:
            self._reader._task.cancel()

    return [(AclFollower, "registration", registration), (AclFollower, "registered_again", registered_again)]


@bug("the decisions of a session are kept when ACLs change", world="cluster", seeds_max=20, first=FIRST_WITH_ACLS)
def decisions_kept() -> list[Patch]:
    original = Authorizer.refresh

    def refresh(self: Authorizer, permissions: Permissions) -> None:
        if permissions.generation:
            permissions.generation = self.generation
        original(self, permissions)

    return [(Authorizer, "refresh", refresh)]


@bug("the decisions of a fetch session are kept when ACLs change", world="cluster", seeds_max=40, first=FIRST_WITH_ACLS)
def fetch_session_not_authorized_again() -> list[Patch]:
    return [(hot, "_may_read_all", lambda *_: True)]


@bug("a DENY that is added does not count", world="cluster", seeds_max=20, first=FIRST_WITH_ACLS)
def denials_ignored() -> list[Patch]:
    original = Rules.add

    def add(self: Rules, entry: AclEntry) -> None:
        if entry.permission != DENY:
            original(self, entry)

    return [(Rules, "add", add)]
