"""What members of a group were told, and what must therefore hold of the group.

Owns: every commit and its outcome, the acknowledged generations and epochs, and who owns which partition.
Never: looks into the coordinator. What a crash may take is known from the log end offset at each acknowledgement.

1. A committed offset is a register: a fetch returns the last value acknowledged before it was sent, or one that was in flight
   since. Acknowledged means written: it survives a kill, and a crash if the log survived up to there.
2. The generation of a classic group does not go back while the group exists; one that was not written (no SyncGroup was
   answered) may be given again after a restart. The epoch of a member of the new protocol never goes back.
3. A partition has one owner: in each generation of a classic group; at each moment in a group of the new protocol, where a member
   owns what it was given until it reports that it revoked it, or until its session may have expired.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from ottla.sim.violation import Violation, require

Place = tuple[str, int]
"""Topic and partition."""
Value = tuple[int, str]
"""Offset and metadata."""
NOTHING_COMMITTED: Final[Value] = (-1, "")
CONSUMER_SESSION_S: Final = 5.0
"""The broker's `group.consumer.session.timeout.ms`."""


@dataclass(slots=True)
class Commit:
    value: Value
    topic_id: bytes
    sent_s: float
    done_s: float = inf
    """When the answer came; without one, when it could not be in flight any more."""
    acknowledged: bool = False
    position: int = 0
    """Log end offset of the coordinator's partition when the answer came."""


@dataclass(slots=True)
class Generation:
    """A generation of a classic group."""

    leaders: set[str] = field(default_factory=set)
    protocols: set[str] = field(default_factory=set)
    given: list[dict[str, frozenset[Place]]] = field(default_factory=list)
    """Assignments that leaders sent, by member."""
    owned: dict[str, frozenset[Place]] = field(default_factory=dict)
    """Assignments that members got, by instance or member id."""


@dataclass(slots=True)
class Membership:
    """One member. It outlives the broker, and notices a restart only by the answers."""

    name: str
    instance_id: str | None
    member_id: str = ""
    epoch: int = -1
    """The generation, or the member epoch of the new protocol; -1: it has to join."""
    owned: frozenset[Place] = frozenset()
    told: frozenset[Place] | None = None
    """The partitions it last reported."""
    unheard: bool = False
    """A request of it was not answered."""
    valid_until_s: float = 0.0
    """Its session cannot expire before this time."""
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """Epochs it was given under its present id, with the log end offset."""
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    """Ids of the topics it was given partitions of."""

    @property
    def key(self) -> str:
        return self.instance_id or self.member_id

    def forget(self) -> None:
        self.member_id, self.epoch, self.owned, self.told, self.unheard = "", -1, frozenset(), None, False
        self.epochs = []


class GroupModel:
    def __init__(self, group_id: str, kind: str, topics: tuple[str, ...], retention_s: float, now: Callable[[], float]) -> None:
        self.group_id = group_id
        self.kind = kind
        """classic or consumer"""
        self.topics = topics
        self.protocols: tuple[str, ...] = ()
        """Protocols of its members, each in its own order. A loaded coordinator knows only one."""
        self.retention_s = retention_s
        self.now = now
        self.commits: dict[Place, list[Commit]] = {}
        self.generations: dict[int, Generation] = {}
        self.members: list[Membership] = []
        self.given_max = -1
        """The highest generation that was given to anybody."""
        self.written: list[tuple[int, int]] = []
        """Generations acknowledged with an assignment, with the log end offset."""
        self.incarnation = 0
        self.alive_s = -inf
        """When a member was last known to be one."""
        self.left_s = -inf
        """When one last asked to leave."""

    # --- commits

    def committing(self, place: Place, value: Value, topic_id: bytes) -> Commit:
        commit = Commit(value, topic_id, self.now())
        self.commits.setdefault(place, []).append(commit)
        return commit

    def committed(self, commit: Commit, position: int) -> None:
        commit.acknowledged, commit.done_s, commit.position = True, self.now(), position

    def refused(self, place: Place, commit: Commit) -> None:
        """The commit was certainly not written."""
        self.commits[place].remove(commit)

    def fetched(self, place: Place, topic_id: bytes, value: Value, sent_s: float) -> None:
        commits = [commit for commit in self.commits.get(place, ()) if commit.topic_id == topic_id]
        binding = [commit for commit in commits if commit.acknowledged and commit.done_s < sent_s]
        newest_s = max((commit.sent_s for commit in binding), default=-inf)
        allowed = {commit.value for commit in commits if not commit.done_s < newest_s}
        if not binding or self.may_expire(max(commit.sent_s for commit in binding)):
            allowed.add(NOTHING_COMMITTED)
        require(
            value in allowed,
            "committed",
            f"{self.group_id}: the offset of {place[0]}-{place[1]} is {value!r}, it must be one of {sorted(allowed)!r}",
        )

    def alive(self, sent_s: float) -> None:
        """The group had a member at this time. Offsets that may have expired before stay uncertain."""
        for commits in self.commits.values() if self.retention_s != inf else ():
            for commit in commits:
                commit.acknowledged &= not self.may_expire(commit.sent_s)
        self.alive_s = max(self.alive_s, sent_s)

    def may_expire(self, committed_s: float) -> bool:
        """Whether an offset committed at that time may have expired by now.

        That takes a moment without members. A classic group counts from there, as in Kafka; a group of the new protocol counts
        from the commit, so that one moment is enough.
        """
        may_be_empty = self.left_s >= self.alive_s or self.now() - self.alive_s >= CONSUMER_SESSION_S
        since_s = committed_s if self.kind == "consumer" and may_be_empty else max(committed_s, self.alive_s)
        return self.now() - since_s >= self.retention_s

    def leaving(self) -> None:
        self.left_s = self.now()

    def is_pinned(self, exists: Callable[[str, bytes], bool]) -> bool:
        """Whether it has an offset that keeps it from being deleted."""
        for place, commits in self.commits.items():
            erased_s = max((commit.done_s for commit in commits if commit.value == NOTHING_COMMITTED), default=-inf)
            for commit in commits:
                if not commit.acknowledged or commit.sent_s <= erased_s or self.may_expire(commit.sent_s):
                    continue
                if exists(place[0], commit.topic_id):
                    return True
        return False

    def may_be_another(self) -> None:
        """Nothing kept the group from being deleted: a group of its name may be a new one."""
        self.given_max = -1
        self.written.clear()
        self.generations.clear()
        self.incarnation += 1

    # --- classic generations

    def joined(
        self, member: Membership, member_id: str, generation: int, leader: str, protocol: str, bound: int, strict: bool
    ) -> None:
        """JoinGroup was answered. `bound` is the highest generation that was known when it was sent."""
        require(
            generation >= bound,
            "generation",
            f"{self.group_id}: {member.name} is in generation {generation} after generation {bound}",
        )
        known = self.generations.setdefault(generation, Generation())
        known.protocols.add(protocol)
        if not any(other.instance_id for other in self.members):
            known.leaders.add(leader)
        if strict:
            require(
                len(known.leaders) <= 1 and len(known.protocols) <= 1,
                "generation",
                f"{self.group_id}: generation {generation} has the leaders {sorted(known.leaders)} and protocols "
                f"{sorted(known.protocols)}",
            )
        self.given_max = max(self.given_max, generation)
        member.member_id, member.epoch = member_id, generation

    def synced(self, member: Membership, owned: frozenset[Place], position: int) -> None:
        """SyncGroup was answered."""
        generation = member.epoch
        known = self.generations.setdefault(generation, Generation())
        # A static member may have returned under another id, which the leader did not know.
        given = [handed.get(member.member_id, handed.get(member.key)) for handed in known.given]
        require(
            not given or None in given or owned in given,
            "assignment",
            f"{self.group_id}: {member.name} has {sorted(owned)} in generation {generation}, the leader gave {given}",
        )
        for other, places in known.owned.items():
            both = owned & places if other != member.key else frozenset()
            require(
                not both,
                "two-owners",
                f"{self.group_id} generation {generation}: {sorted(both)} is owned by {other} and by {member.name}",
            )
        known.owned[member.key] = owned
        member.owned = owned
        self.written.append((generation, position))

    @property
    def written_max(self) -> int:
        return max((generation for generation, _ in self.written), default=-1)

    # --- the new protocol

    def moved(self, member: Membership, epoch: int, owned: frozenset[Place] | None, valid_until_s: float, position: int) -> None:
        """A heartbeat was answered, perhaps with another assignment."""
        before = max((known for known, _ in member.epochs), default=-1)
        require(epoch >= before, "epoch", f"{self.group_id}: {member.name} is in epoch {epoch} after epoch {before}")
        if epoch > before:
            member.epochs.append((epoch, position))
        member.epoch = epoch
        if owned is not None:
            member.owned = owned
        member.valid_until_s = max(member.valid_until_s, valid_until_s)
        now = self.now()
        if now >= member.valid_until_s:
            return
        for other in self.members:
            both = member.owned & other.owned if other is not member and now < other.valid_until_s else frozenset()
            require(
                not both,
                "two-owners",
                f"{self.group_id}: {sorted(both)} is assigned to {member.name}, and still owned by {other.name}",
            )

    def validity_ends(self) -> None:
        """Sessions are uncertain until the next answer."""
        for member in self.members:
            member.valid_until_s = 0.0

    # --- the coordinator's lives

    def coordinator_died(self) -> None:
        now = self.now()
        for commits in self.commits.values():
            for commit in commits:
                commit.done_s = min(commit.done_s, now)

    def coordinator_is_back(self, crashed: bool, position: int) -> None:
        """The coordinator is back, with its log up to a position."""
        if crashed:
            certain = self.retention_s == inf
            for commits in self.commits.values():
                for commit in commits:
                    # If its last state is lost, so is the time since it became empty.
                    commit.acknowledged &= certain and commit.position <= position
            self.written = [fact for fact in self.written if fact[1] <= position]
            for number in [number for number in self.generations if number > self.written_max]:
                del self.generations[number]
            for member in self.members:
                member.epochs = [fact for fact in member.epochs if fact[1] <= position]
            self.validity_ends()
        self.given_max = self.written_max
        for number, generation in self.generations.items():
            if number > self.given_max:
                generation.leaders.clear()
                generation.protocols.clear()


def settled(members: list[Membership], wanted: frozenset[Place]) -> bool:
    """Whether all members are in one generation or epoch and own all partitions between them."""
    owned = [place for member in members for place in member.owned]
    return (
        len({member.epoch for member in members}) == 1
        and members[0].epoch >= 0
        and len(owned) == len(wanted)
        and frozenset(owned) == wanted
    )


def differences(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The first field in which two descriptions of a group differ; empty if in none."""
    for name in before:
        if before[name] != after.get(name):
            return f"{name} was {before[name]} and is {after.get(name)}"
    return ""


__all__ = ["NOTHING_COMMITTED", "Commit", "GroupModel", "Membership", "Place", "Value", "Violation", "differences", "settled"]
