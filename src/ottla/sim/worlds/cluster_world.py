"""A cluster through whatever its nemesis does to it, with all kinds of clients at work.

Owns: who is at work, how long the misfortune lasts, and what must hold in the calm at the end: leaders everywhere, everybody in
sync, no transaction open, all replicas equal, and a history of the clients without a fault.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla.coordinator.txn.transaction_metadata import IDLE
from ottla.records.batch import read_batch_header
from ottla.records.record import read_records
from ottla.security.principal import USER, Principal
from ottla.sim.actors.acl_admin import (
    ROOT,
    RULES,
    SLOTS,
    Keeper,
    Principals,
    Suitor,
    ask_everybody,
    open_the_doors,
    principal_of,
    super_users,
)
from ottla.sim.actors.cluster_admin import GUESTS, Administrator, Guests, Visitor
from ottla.sim.actors.cluster_groups import ClusterGroups, Witness
from ottla.sim.actors.play import Actor
from ottla.sim.actors.scene import OTHER, SOURCE
from ottla.sim.actors.workload import Topic, Workload
from ottla.sim.kernel.process import Process
from ottla.sim.models.acl_model import AclModel
from ottla.sim.models.checkers import check_producers
from ottla.sim.models.history import Place
from ottla.sim.models.log_files import stored_batches
from ottla.sim.violation import Violation, require
from ottla.sim.worlds.cluster_harness import ClusterHarness
from ottla.sim.worlds.nemesis import Nemesis

SETTLE_S_MAX: Final = 120.0
SENDS_MAX: Final = 2000
"""Enough for a run: a network without delays would make one seed cost as much as ten."""
CLOCK_STEP_MS: Final = 1_800_000
BROKERS_MAX: Final = 5
AUTHORIZER: Final = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": super_users(BROKERS_MAX),
}


class Player(NamedTuple):
    """A client that only has to be run."""

    run: Callable[[], Any]


class ClusterWorld:
    """A run of one seed."""

    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> None:
        # Of a generator of its own: seeds without ACLs stay as they were.
        has_acls = random.Random(f"cluster acls {seed}").random() < 0.3
        self.cluster = ClusterHarness(seed, echo=echo, settings=AUTHORIZER if has_acls else {})
        self.trace = self.cluster.trace
        self.principals = self._authenticate() if has_acls else None
        self.nemesis = Nemesis(self.cluster)
        self.guests = Guests()
        self.groups: ClusterGroups | None = None

    def run(self) -> None:
        self.cluster.run(self._main)

    async def _main(self) -> None:
        cluster, rng = self.cluster, self.cluster.rng
        await cluster.start_all()
        principals = self.principals
        if principals is not None:
            await cluster.alone(ROOT, lambda root: open_the_doors(root, principals, cluster.replicas))
        await cluster.alone("admin", lambda admin: cluster.scene.create_topics(admin, {}, replicas=cluster.replicas))
        cluster.scene.enter(watched=False)
        self._enter_administrators()
        if principals is not None:
            self._enter_suitors(principals)
        if cluster.has_groups and not cluster.lossy:
            # After an unclean election the next coordinator may know less: nothing could be held against it.
            self._enter_members()
        cluster.tasks = [cluster.loop.create_task(self.nemesis.run()) for _ in range(rng.choice((1, 1, 2)))]
        await self._watch(rng.choice((15.0, 30.0, 50.0)))
        for task in cluster.tasks:
            task.cancel()
        await cluster.calm()
        ends = await self._settle()
        if not cluster.lossy:
            cluster.scene.judge(await cluster.scene.read_everything(ends))
        cluster.rules.check()
        cluster.rules.check_logs(whole=True)
        self._check_guests()
        if principals is not None:
            await self._check_acls(principals)
        for node in cluster.nodes:
            assert node.broker is not None
            for partition in sorted(node.broker.partitions, key=lambda each: each.topic_partition):
                if "compact" not in partition.log.config.cleanup_policy:
                    check_producers(node.disk, partition.log)
        cluster.complaints.check()

    async def _watch(self, seconds: float) -> None:
        cluster = self.cluster
        end_s = cluster.loop.time() + seconds
        while cluster.loop.time() < end_s and len(cluster.play.sends) < SENDS_MAX:
            await cluster.step()

    # --- who is at work

    def _enter_members(self) -> None:
        cluster = self.cluster
        shared = Workload(random.Random(cluster.extras.random()), cluster.trace, 0)
        for name in (SOURCE, OTHER):
            known = cluster.play.topics[name]
            shared.topics[name] = Topic(name, known.topic_id, {})
            shared.topics[name].add_partitions(known.partitions, cluster.loop.time)
        groups = self.groups = ClusterGroups(
            cluster.extras,
            shared,
            cluster.common,
            cluster.loop.time,
            (SOURCE, OTHER),
            [node.port for node in cluster.nodes],
            Witness(cluster.nodes, cluster.rules),
        )
        count = sum(len(model.members) + 1 for model in groups.models)
        for number in range(count):

            def member(_: int, process: Process, number: int = number) -> Player:
                client, act, pause_s = groups.clients(cluster.scene.view(process))[number]
                return Player(lambda: client.run(act, pause_s=pause_s))

            cluster.cast.keep(f"member-{number}", member)

    def _enter_administrators(self) -> None:
        cluster = self.cluster

        def administrator(number: int, process: Process) -> Actor:
            actor = Administrator(f"administrator.{number}", cluster.play, cluster.scene.view(process), process)
            actor.moves = cluster.has_moves
            actor.guests = self.guests if cluster.has_guests else None
            actor.broker_ids = [node.number for node in cluster.nodes]
            actor.alters = cluster.settings_change
            actor.replicas_min = 2 if cluster.min_isr > 1 or not cluster.flushes else 1
            return actor

        def visitor(number: int, process: Process) -> Actor:
            actor = Visitor(f"visitor.{number}", cluster.play, cluster.scene.view(process), process)
            actor.guests = self.guests
            return actor

        if cluster.has_moves or cluster.has_guests or cluster.settings_change:
            cluster.cast.keep("administrator", administrator)
        if cluster.has_guests:
            cluster.cast.keep("visitor", visitor)

    # --- principals

    def _authenticate(self) -> Principals:
        """Let every client be somebody, and note which brokers are registered."""
        cluster = self.cluster
        model = AclModel(cluster.loop.time)
        notice = cluster.tree.on_change

        def authenticate(connection: Any, host: str) -> None:
            connection.session.principal = Principal(USER, principal_of(host))

        def tree_changed(paths: list[str]) -> None:
            notice(paths)
            for path in paths:
                parent, _, name = path.rpartition("/")
                if parent == "/brokers/ids":
                    model.registered(int(name), is_there=cluster.tree.get(path) is not None)

        cluster.network.authenticate = authenticate
        cluster.tree.on_change = tree_changed
        return Principals(model)

    def _enter_suitors(self, principals: Principals) -> None:
        cluster = self.cluster
        for slot in range(SLOTS):

            def keeper(number: int, process: Process, slot: int = slot) -> Actor:
                actor = Keeper(f"keeper-{slot}.{number}", cluster.play, cluster.network.view(process, ROOT), process)
                actor.principals, actor.slot = principals, slot
                return actor

            def suitor(number: int, process: Process, slot: int = slot) -> Actor:
                actor = self._suitor(f"suitor-{slot}.{number}", principals, process)
                actor.slot = slot
                return actor

            cluster.cast.keep(f"keeper-{slot}", keeper)
            cluster.cast.keep(f"suitor-{slot}", suitor)

    def _suitor(self, name: str, principals: Principals, process: Process) -> Suitor:
        cluster = self.cluster
        actor = Suitor(name, cluster.play, cluster.network.view(process, name), process)
        actor.principals = principals
        actor.connect_as = lambda principal: cluster.network.view(process, principal)
        return actor

    async def _check_acls(self, principals: Principals) -> None:
        """The tree has the ACLs that there should be, and every broker enforces them."""
        cluster = self.cluster
        principals.model.check_tree(cluster.tree.get, principals.all(), RULES)
        await cluster.cast.play_alone(
            "suitor-last", lambda process: self._suitor("suitor-last", principals, process), ask_everybody, 120.0
        )
        model = principals.model
        cluster.trace.add(f"{model.judged} decisions, {model.refused} refusals")

    # --- the end

    async def _settle(self) -> dict[Place, int]:
        """All brokers are well: within the limit the cluster settles. Returns the high watermarks."""
        cluster = self.cluster
        end_s = cluster.loop.time() + SETTLE_S_MAX
        for node in cluster.nodes:
            node.set_clock(CLOCK_STEP_MS)
        while why := cluster.rules.unsettled() or self._open_transactions():
            require(cluster.loop.time() < end_s, "settles", f"after {SETTLE_S_MAX} s of calm: {why}")
            await cluster.step()
        cluster.trace.add("settled")
        if not cluster.lossy:
            await cluster.scene.copy_the_rest()
        await self._settle_groups()
        end_s = cluster.loop.time()
        while why := cluster.rules.unsettled() or self._open_transactions():
            require(cluster.loop.time() < end_s + SETTLE_S_MAX, "settles", f"{SETTLE_S_MAX} s after the last copies: {why}")
            await cluster.step()
        ends = {}
        for node in cluster.nodes:
            assert node.broker is not None
            for partition in node.broker.partitions:
                if partition.is_leader:
                    ends[partition.topic_partition.topic, partition.topic_partition.partition] = partition.log.high_watermark
        return ends

    async def _settle_groups(self) -> None:
        """Every group becomes stable, also without one of its members, and has the offsets that were acknowledged."""
        cluster, groups = self.cluster, self.groups
        if groups is None or cluster.lossy:
            return
        try:
            await cluster.cast.play_alone("groups", cluster.scene.view, groups.settle, 400.0)
        except TimeoutError as error:
            raise Violation("settles", str(error)) from error

    def _open_transactions(self) -> str:
        """The first transaction that is not ended, in words; empty: there is none."""
        cluster = self.cluster
        if cluster.lossy:
            return ""  # an unclean election may lose the coordinator's records: nobody owes the markers any more
        for node in cluster.nodes:
            assert node.broker is not None
            for number, hosted in sorted(node.broker.transactions.shards._hosted.items()):
                if hosted.shard is None:
                    return f"__transaction_state-{number} is not loaded"
                for each in hosted.shard.transactions.values():
                    if each.state not in IDLE:
                        return f"{each.transactional_id} is {each.state.name}"
            for partition in node.broker.partitions:
                if partition.is_leader and partition.log.last_stable_offset < partition.log.high_watermark:
                    return f"{partition.topic_partition}: the last stable offset is {partition.log.last_stable_offset}"
        return ""

    def _check_guests(self) -> None:
        """Topics that were created and deleted meanwhile have their own records only, and the deleted ones are gone."""
        cluster = self.cluster
        self.guests.check_gone({state.topic_id for state in cluster.states() if state is not None})
        if cluster.lossy:
            return
        for node in cluster.nodes:
            assert node.broker is not None
            for partition in node.broker.partitions:
                place = partition.topic_partition.topic, partition.topic_partition.partition
                if place[0] in GUESTS:
                    found: dict[int, bytes] = {}
                    for batch in stored_batches(node.disk, partition.log.dir):
                        records = read_records(batch.data, read_batch_header(batch.data, 0))
                        found |= {record.offset: bytes(record.value or b"") for record in records}
                    self.guests.check(place, partition.topic_id, found)
