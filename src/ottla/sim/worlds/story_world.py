"""What a cluster promises when one thing happens to it, one story at a time.

Owns: stories that a seed chooses and fills in, as those of late mail, in a cluster in which nothing else happens: a broker stops
cleanly, too few are in sync, the last one in sync is gone, a directory fails, settings change while somebody is away, a reader is
sent to the replica near it. Where so much goes on as in `cluster_world`, nobody could say in what time, and with which answer,
something has to be done; here one can. Nothing is lost in any of them but what an unclean election gives up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from ottla.broker.coordinators.groups import OFFSETS_TOPIC
from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.registry import API_BY_NAME
from ottla.replication.closest import RACK_AWARE
from ottla.sim.actors.play import Actor, NoAnswer
from ottla.sim.actors.readers import commit_offset, fetch_committed_offsets
from ottla.sim.kernel.disk import Fault
from ottla.sim.kernel.node import Node
from ottla.sim.models.checkers import require, scan
from ottla.sim.models.cluster_rules import PartitionState
from ottla.sim.worlds.late_world import TOPIC, LateWorld

PLACE: Final = (TOPIC, 0)
LATEST: Final = -1
SET: Final = 0
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SOON_S: Final = 30.0
QUIET_S: Final = 5.0
BALANCE_S: Final = 10.0
STORIES: Final = (
    *("stop", "too few", "the last", "balance", "settings", "directory", "near"),
    *("end", "deletion", "life", "joiner", "move", "absent", "histories", "answer", "coordinator"),
)


class StoryWorld(LateWorld):
    brokers_min = 4

    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> None:
        # Every fourth seed of many comes here: they go through all of them.
        self.story = STORIES[seed // 4 % len(STORIES)]
        super().__init__(seed, echo=echo)
        # Nobody leaves the in-sync replicas by accident: what happens is in the story.
        self.network.settings = replace(self.network.settings, spike_chance=0.0)
        self._leaderless = False
        """The topic had no leader since this was last looked at."""
        told = self.tree.on_change

        def on_change(paths: list[str]) -> None:
            told(paths)
            state = self.rules.state(PLACE)
            self._leaderless |= state is not None and state.leader < 0

        self.tree.on_change = on_change

    def _properties(self) -> dict[str, str]:
        self.dirs = 2
        return super()._properties() | {
            "auto.leader.rebalance.enable": "true" if self.story == "balance" else "false",
            "replica.selector.class": RACK_AWARE,
            "replica.high.watermark.checkpoint.interval.ms": "5000",
            "offsets.topic.replication.factor": "3",
        }

    def _node_properties(self, number: int) -> dict[str, str]:
        slow = {"replica.fetch.max.bytes": "300"} if number == self.count else {"replica.fetch.max.bytes": "1048576"}
        return super()._node_properties(number) | slow | {"broker.rack": f"rack-{number}"}

    def _stories(self) -> Sequence[Callable[[], Awaitable[None]]]:
        told = {
            "stop": self._stops,
            "too few": self._too_few_in_sync,
            "the last": self._last_one_gone,
            "balance": self._leaders_go_back,
            "settings": self._settings_change,
            "directory": self._directory_fails,
            "near": self._reader_goes_near,
            "end": self._end_is_asked,
            "deletion": self._deletion_is_inherited,
            "life": self._another_life,
            "joiner": self._joiner_has_to_reach_the_epoch,
            "move": self._move_is_inherited,
            "absent": self._topic_of_an_absent_one,
            "histories": self._histories_part,
            "answer": self._answer_is_lost,
            "coordinator": self._coordinator_moves,
        }
        self.trace.add(f"the story of {self.story}")
        return (told[self.story],)

    # --- the stories

    async def _stops(self) -> None:
        """A broker is asked to stop: what it leads has another leader before it is gone, and at no moment none (C07)."""
        nodes = self._three()
        await self._create(*nodes)
        await self._all_in_sync()
        await self._produce()
        leader = nodes[0]
        self._leaderless = False
        self.trace.add(f"{leader.host} is asked to stop")
        stopped = self.loop.create_task(leader.stop())
        while not stopped.done():
            await self._produce()
        require(stopped.result(), "handover", f"{leader.host} died while it stopped")
        state = self._state()
        is_relieved = state.leader not in (leader.number, -1) and leader.number not in state.isr and not self._leaderless
        require(
            is_relieved, "handover", f"{leader.host} has stopped, and leader and in sync are {state.leader}, {state.isr} (C07)"
        )
        await self._produce()
        await self._start(leader)

    async def _too_few_in_sync(self) -> None:
        """Fewer in sync than asked for: acks=all is refused and nothing kept, acks=1 is served and not committed (R11-R13)."""
        leader, other = self._others(self._office())
        await self._create(leader, other, config={"min.insync.replicas": "2"})
        await self._all_in_sync()
        await self._produce()
        replica = self._replica(leader)
        with self._cut(leader, other):
            waiting = self.loop.create_task(self._send(leader, b"waits", acks=-1, timeout_ms=60_000))
            await self._until(lambda: self._isr() == {leader.number}, "the follower has left")
            await self._until(lambda: replica.isr == (leader.number,), "the leader knows it")
            before, committed = replica.log.log_end_offset, replica.log.high_watermark
            code = await waiting
            allowed = (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NOT_ENOUGH_REPLICAS)
            require(code in allowed, "min-isr", f"acks=all that waited is answered with {code.name} (R12)")
            code = await self._send(leader, b"refused", acks=-1)
            require(
                code == ErrorCode.NOT_ENOUGH_REPLICAS, "min-isr", f"acks=all with one in sync is answered with {code.name} (R11)"
            )
            end = replica.log.log_end_offset
            require(end == before, "min-isr", f"a write that was refused was kept: the log goes from {before} to {end} (R11)")
            code = await self._send(leader, b"one has it", acks=1)
            require(code == ErrorCode.NONE, "min-isr", f"acks=1 is answered with {code.name}")
            await self._pass_time(QUIET_S)
            mark = replica.log.high_watermark
            require(
                mark == committed, "min-isr", f"with one of two in sync the high watermark went from {committed} to {mark} (R13)"
            )
        await self._all_in_sync()
        await self._produce()

    async def _last_one_gone(self) -> None:
        """The last one in sync is dead and a stale one is there: it leads where that is allowed, alone in sync and in a new
        epoch, and nowhere else (R16)."""
        allowed = self.rng.random() < 0.5
        leader, other = self._others(self._office())
        await self._create(leader, other, config={"unclean.leader.election.enable": "true" if allowed else "false"})
        await self._all_in_sync()
        await self._produce()
        self.trace.add(f"kill {other.host}")
        other.kill()
        await self._until(lambda: self._isr() == {leader.number}, "one is in sync")
        await self._produce()
        if allowed:
            self.lossy = self.rules.lossy = True
            self._kept.clear()
        self.trace.add(f"kill {leader.host}")
        leader.kill()
        await self._until(lambda: self._state().leader == -1, "nobody leads")
        epoch = self._state().leader_epoch
        await self._start(other)
        if allowed:
            await self._until(lambda: self._state().leader == other.number, "who is there leads", SOON_S)
            state = self._state()
            require(state.isr == (other.number,), "unclean", f"{other.host} leads without having been in sync, with {state.isr}")
            require(state.leader_epoch > epoch, "unclean", f"{other.host} leads in the former epoch {epoch}")
            await self._produce()
        else:
            await self._pass_time(QUIET_S)
            require(self._state().leader == -1, "unclean", f"{other.host} leads, and was not in sync")
        await self._start(leader)

    async def _leaders_go_back(self) -> None:
        """The preferred leader is away, comes back, is in sync: it leads again (F54), and never before it is."""
        nodes = self._three()
        await self._create(*nodes)
        await self._all_in_sync()
        preferred = nodes[0]
        preferred.kill()
        self.trace.add(f"kill {preferred.host}")
        await self._until(lambda: self._state().leader not in (preferred.number, -1), "another one leads")
        await self._produce()
        leader = next(node for node in nodes if node.number == self._state().leader)
        with self._cut(leader, preferred):
            await self._start(preferred)
            await self._pass_time(BALANCE_S + QUIET_S)
            state = self._state()
            require(state.leader == leader.number, "isr", f"{state.leader} leads, which is not in sync with {leader.host}")
        await self._until(lambda: self._state().leader == preferred.number, "the preferred leader leads", SOON_S)
        await self._produce()

    async def _settings_change(self) -> None:
        """Of a topic and of all brokers, asked of any of them, while one does not hear of it: it does later (C10)."""
        nodes = self._three()
        await self._create(*nodes)
        away = self.rng.choice(self.nodes)
        how = self.rng.choice(("hears", "is cut", "is dead"))
        segment_bytes = message_bytes = 0
        for _ in range(2):
            segment_bytes, message_bytes = self.rng.randint(2000, 9000), self.rng.randint(100_000, 900_000)
            self.trace.add(f"{away.host} {how}")
            if how == "is cut":
                away.cut_store()
            elif how == "is dead":
                away.kill()
            asked = self.rng.choice([node for node in self.nodes if node is not away])
            await self._alter(asked, TOPIC_RESOURCE, TOPIC, "segment.bytes", segment_bytes)
            await self._alter(asked, BROKER_RESOURCE, "", "message.max.bytes", message_bytes)
            await self._pass_time(self.rng.choice((0.5, 3.0)))
            if how == "is cut":
                away.heal_store()
            elif how == "is dead":
                await self._start(away)

        def differing() -> str:
            for node in self.nodes:
                assert node.broker is not None
                found = node.broker.settings.int("message.max.bytes")
                if found != message_bytes:
                    return f"{node.host}: message.max.bytes is {found}, not {message_bytes}"
                replica = self._replica(node)
                if replica is not None and replica.log.config.segment_bytes != segment_bytes:
                    return f"{node.host}: segment.bytes is {replica.log.config.segment_bytes}, not {segment_bytes}"
            return ""

        await self._until(lambda: not differing(), lambda: f"all know the settings: {differing()}", SOON_S, rule="settings")

    async def _directory_fails(self) -> None:
        """Of the leader: another replica leads, the broker goes on with its other directory (L06)."""
        leader, other = self._others(self._office())
        await self._create(leader, other)
        await self._all_in_sync()
        await self._produce()
        self.trace.add(f"{leader.host}: writing fails in {self._replica(leader).data_dir.path}")
        leader.disk.faults.append(Fault("write", f"{self._replica(leader).data_dir.path}/"))
        writing = self.loop.create_task(self._produce())
        await self._until(lambda: self._state().leader == other.number, "another one leads", SOON_S, rule="isolation")
        require(leader.alive, "isolation", f"{leader.host} is dead, and has a directory left")
        await writing
        leader.heal_disk()
        leader.kill()
        await self._start(leader)

    async def _reader_goes_near(self) -> None:
        """A reader is told of the replica in its rack, which gives it what is committed and no more; not of one that is not in
        sync (R19)."""
        leader, near, third = self._three()
        await self._create(leader, near, third)
        await self._all_in_sync()
        await self._produce()

        async def preferred(rack: str) -> int:
            return int((await self._read(leader, 0, rack)).preferred_read_replica)

        end_s = self.loop.time() + SOON_S
        while (told := await preferred(f"rack-{near.number}")) != near.number:
            require(self.loop.time() < end_s, "closest", f"a reader in the rack of {near.host} is told to read from {told}")
            await self._pass_time(0.5)
        require(await preferred("elsewhere") == -1, "closest", "a reader of no broker's rack is sent away from the leader")
        # The third does not hear of the next record: the near one has it, and it is not committed.
        with self._cut(leader, third):
            await self._send(leader, b"two have it", acks=1)
            end = self._replica(leader).log.log_end_offset
            if self._isr() == {node.number for node in (leader, near, third)}:
                await self._until(lambda: self._replica(near).log.log_end_offset >= end, "the near one has it")
            offset = 0
            while True:
                answer = await self._read(near, offset, "")
                batches, _ = scan(bytes(answer.records or b""))
                mark = self._replica(leader).log.high_watermark
                require(
                    not batches or batches[-1].last_offset < mark,
                    "read-bound",
                    f"{near.host} gives {batches[-1].last_offset if batches else -1}, committed is what is below {mark} (R19)",
                )
                if not batches:
                    break
                offset = batches[-1].last_offset + 1
            code = ErrorCode((await self._read(near, end + 3, "")).error_code)
            require(code == ErrorCode.OFFSET_NOT_AVAILABLE, "closest", f"what {near.host} does not have yet is {code.name} (R19)")
        await self._all_in_sync()
        with self._cut(leader, near):
            await self._send(leader, b"some have it", acks=1)
            await self._until(lambda: near.number not in self._replica(leader).isr, "the near one has left")
            told = await preferred(f"rack-{near.number}")
            require(told == -1, "closest", f"a reader is sent to {told}, which is not in sync (R19)")

    async def _end_is_asked(self) -> None:
        """A new leader that does not know yet what was committed does not tell an end below what was seen (R04)."""
        leader, third = self._others(self._office())
        new = self._office()
        await self._create(leader, new, third)
        await self._all_in_sync()
        await self._produce()
        committed = self._replica(leader).log.high_watermark
        self.trace.add(f"kill {third.host}; {leader.host} loses its session")
        third.kill()  # it counts as in sync until its session is over
        self.tree.lose_sessions_of(leader.host)
        await self._until(lambda: self._replica(new).is_leader, "the next one leads")
        for version in (4, 5, 9):
            code, offset = await self._end(new, version)
            not_yet = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
            require(
                code == not_yet or (code == ErrorCode.NONE and offset >= committed),
                "high-watermark",
                f"{new.host} tells {code.name}, {offset}; {committed} was committed (R04)",
            )
        await self._start(third)

    async def _deletion_is_inherited(self) -> None:
        """A controller is replaced while a topic is being deleted: the next one brings it to its end (C09)."""
        controller = self._office()
        one, other = self._others(controller)
        await self._create(one, other)
        await self._produce()
        held = self.network.hold_mail(controller.host, one.host, API_BY_NAME["stop_replica"].key)
        deleting = self.loop.create_task(self._delete())
        await self._until(lambda: self.tree.children("/admin/delete_topics"), "the deletion has begun")
        await self._replace_controller(controller)
        await deleting
        await self._until(lambda: self._is_gone(one, other), "the topic is gone", SOON_S)
        self.network.let_go(held)
        await self._create(one, other)
        await self._produce()

    async def _another_life(self) -> None:
        """A leader wishes to have a follower in sync that is restarted meanwhile, and has lost its tail: it speaks for the former
        life, and is not heard (C06, KIP-903)."""
        controller = self._office()
        leader, follower = self._others(controller)
        await self._create(leader, follower)
        await self._all_in_sync()
        with self._cut(leader, follower):
            await self._send(leader, b"one has it", acks=1)
            await self._until(lambda: self._replica(leader).isr == (leader.number,), "the leader knows it")
            await self._produce()
        held = self.network.hold_mail(leader.host, controller.host, API_BY_NAME["alter_partition"].key)
        await self._until(lambda: self._replica(leader).leadership.pending is not None, "the leader wishes to have it back")
        for way in ((leader.host, follower.host), (follower.host, leader.host)):
            self.network.block(*way)
        self.tree.lose_sessions_of(follower.host)
        follower.crash()
        await self._start(follower)
        self.trace.add(f"{controller.host} gets the wish")
        self.network.let_go(held)
        await self._pass_time(QUIET_S)
        self.network.heal()

    async def _joiner_has_to_reach_the_epoch(self) -> None:
        """A new leader does not know how much was committed: who has reached only its high watermark is not in sync (R03)."""
        slow = self.nodes[-1]
        while self._office() is slow:
            await self._replace_controller(slow)
        new = self._office()
        leader, third = self.rng.sample([node for node in self.nodes if node not in (slow, new)], 2)
        await self._create(leader, new, third, slow)
        await self._all_in_sync()
        with self._cut(leader, slow):
            await self._produce_one(b"not all have it", acks=1)
            await self._until(lambda: slow.number not in self._replica(leader).isr, "the slow one has left")
            await self._send_many(leader, 30)
            end = self._replica(leader).log.log_end_offset
            while self._replica(leader).log.high_watermark < end:
                await asyncio.sleep(0.002)
            self.rules.check()
            self.trace.add(f"kill {third.host}; {leader.host} loses its session")
            third.kill()  # it counts as in sync until it lags
            self.tree.lose_sessions_of(leader.host)
            end_s = self.loop.time() + SOON_S
            while self.loop.time() < end_s and slow.number not in self._isr():
                await asyncio.sleep(0.002)
                self.rules.check()
        await self._start(third)

    async def _move_is_inherited(self) -> None:
        """Replicas are on their way to other brokers, of which one is dead, and the controller is replaced: the former ones stay
        until all of the new ones are in sync; or until it is called off, and then for good (R18, C09)."""
        controller = self._office()
        absent = self.rng.choice([node for node in self.nodes if node is not controller])
        one, other, new = self.rng.sample([node for node in self.nodes if node is not absent], 3)
        await self._create(one, other)
        await self._all_in_sync()
        await self._produce()
        self.trace.add(f"kill {absent.host}")
        absent.kill()
        await self._move((new.number, absent.number))
        await self._until(lambda: self._state().is_moving, "it is on its way")
        before = self.tree.get("/controller_epoch")
        self.trace.add(f"{controller.host}, the controller, loses its session")
        self.tree.lose_sessions_of(controller.host)
        await self._until(lambda: self.tree.get("/controller_epoch") != before, "there is a new term")
        await self._produce()
        await self._pass_time(QUIET_S)
        replicas = {one.number, other.number, new.number, absent.number}
        require(set(self._state().replicas) == replicas, "moved", f"replicas are {self._state().replicas}, with one of them dead")
        expected = {new.number, absent.number}
        if self.rng.random() < 0.5:
            self.trace.add("it is called off")
            await self._move(None)
            expected = {one.number, other.number}
        await self._start(absent)
        await self._until(lambda: set(self._state().replicas) == expected, f"it is on {expected}", SOON_S, rule="moved")
        await self._produce()

    async def _topic_of_an_absent_one(self) -> None:
        """A topic is deleted, and perhaps made again, while one of its replicas is away: it comes back with what is no topic's
        any more, or another's (C08)."""
        one, absent = self._others(self._office())
        await self._create(one, absent)
        await self._all_in_sync()
        await self._produce()
        self.trace.add(f"kill {absent.host}")
        absent.kill()
        await self._delete()
        await self._until(lambda: self._is_gone(one), "the topic is gone")
        again = self.rng.random() < 0.7
        if again:
            await self._create(one, absent, await_all=False)
            await self._produce()
        await self._start(absent)
        await self._until(lambda: not self.rules.unsettled(), lambda: f"settled: {self.rules.unsettled()}")
        if again:
            self.rules.check_logs(whole=True)
        else:

            def kept() -> list[str]:
                return [path for path in absent.disk.paths("/") if f"/{TOPIC}-0/" in path]

            what = f"{absent.host} has nothing of a topic that is gone"
            await self._until(lambda: not kept(), what, SOON_S, rule="stray")
            await self._create(one, absent)
            await self._produce()

    async def _histories_part(self) -> None:
        """Two replicas lead in turn, each with records that the other never hears of; then one follows the other, which has
        nothing of its last epoch, and more than it of the one before: it is cut to where its own ends (R07, KIP-279)."""
        one, other = self._others(self._office())
        await self._create(one, other, config={"unclean.leader.election.enable": "true"})
        await self._all_in_sync()
        await self._produce()
        self.lossy = self.rules.lossy = True
        with self._cut(one, other):
            for _ in range(self.rng.randint(1, 4)):
                await self._send(one, b"one has it", acks=1)
            self.trace.add(f"{one.host} loses its session")
            self.tree.lose_sessions_of(one.host)
            await self._until(lambda: self._replica(other).is_leader, "the other one leads")
            for _ in range(self.rng.randint(1, 4)):
                await self._send(other, b"the other has it", acks=1)
            self.trace.add(f"kill {other.host}")
            other.kill()
            await self._until(lambda: self._replica(one).is_leader, "the first one leads again")
            await self._produce()
        await self._start(other)
        await self._until(lambda: not self.rules.unsettled(), lambda: f"settled: {self.rules.unsettled()}", SOON_S)

    async def _answer_is_lost(self) -> None:
        """The controller grants a leader's wish, and its answer is lost: the leader asks again, and hears that it is so (C05)."""
        controller = self._office()
        leader, follower = self._others(controller)
        await self._create(leader, follower)
        await self._all_in_sync()
        with self._cut(leader, follower):
            await self._send(leader, b"one has it", acks=1)
            await self._until(lambda: self._replica(leader).isr == (leader.number,), "the follower has left")
            self.trace.add(f"{leader.host} hears nothing of {controller.host}")
            self.network.block(controller.host, leader.host)
            for way in ((leader.host, follower.host), (follower.host, leader.host)):
                self.network.unblock(*way)
            await self._until(lambda: self._isr() == {leader.number, follower.number}, "the follower is back")
            # The leader does not know that it is: it counts all the same (R02).
            for way in ((leader.host, follower.host), (follower.host, leader.host)):
                self.network.block(*way)
            await self._send(leader, b"one has it", acks=1)
            await self._pass_time(QUIET_S)
        await self._all_in_sync()
        await self._produce()

    async def _coordinator_moves(self) -> None:
        """A new coordinator does not know yet how much of its log is committed; it knows all offsets that were (G07)."""
        await self._create(*self._others(self._office()))
        group, place = "group", (OFFSETS_TOPIC, 0)

        def committer(offset: int) -> Callable[[Actor], Awaitable[None]]:
            async def act(actor: Actor) -> None:
                while not await commit_offset(actor, group, PLACE, offset):
                    await actor.backoff()

            return act

        await self._alone("member", committer(1))
        while True:
            await self._all_in_sync()
            state = self.rules.state(place)
            assert state is not None
            after = [number for number in state.replicas if number != state.leader]
            leader, new, third = (self.nodes[number - 1] for number in (state.leader, *after))
            if self._office() not in (leader, third):
                break
            await self._replace_controller(self._office())
        await self._alone("member", committer(2))
        self.trace.add(f"kill {third.host}; {leader.host}, the coordinator, loses its session")
        third.kill()  # it counts as in sync until it lags
        self.tree.lose_sessions_of(leader.host)

        def has_moved() -> bool:
            now = self.rules.state(place)
            return now is not None and now.leader == new.number

        await self._until(has_moved, "another one coordinates")
        found = await self.scene.alone("member", lambda actor: fetch_committed_offsets(actor, group, [PLACE]))
        require(found == {PLACE: 2}, "committed", f"{new.host} says {found}, 2 was committed (G07)")
        await self._start(third)

    # --- what happens in them

    def _three(self) -> list[Node]:
        controller = self._office()
        found = self._others(controller)
        return [*found, self.rng.choice([node for node in self.nodes if node not in found])]

    def _state(self) -> PartitionState:
        state = self.rules.state(PLACE)
        assert state is not None
        return state

    async def _all_in_sync(self) -> None:
        await self._until(lambda: not self.rules.unsettled(), lambda: f"settled: {self.rules.unsettled()}")

    async def _once(self, node: Node, api: str, version: int, request: object) -> Any:
        """Asked of one broker, again where no answer came."""

        async def act(actor: Actor) -> Any:
            while True:
                try:
                    return await actor.call(("127.0.0.1", node.port), api, version, request, patience_s=120.0)
                except NoAnswer:
                    await actor.backoff()

        return await self.scene.alone("somebody", act)

    async def _send(self, node: Node, value: bytes, *, acks: int, timeout_ms: int = 3000) -> ErrorCode:
        request = self._produce_request(self._state(), value, acks, timeout_ms)
        answer = await self._once(node, "produce", 13, request)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    async def _move(self, target: Sequence[int] | None) -> None:
        asked = ReassignablePartition(partition_index=0, replicas=None if target is None else list(target))
        topic = ReassignableTopic(name=TOPIC, partitions=[asked])
        request = AlterPartitionReassignmentsRequest(timeout_ms=3000, topics=[topic])

        def code_of(found: Any) -> int:
            return int(found.error_code or found.responses[0].partitions[0].error_code)

        await self._ask("alter_partition_reassignments", 0, request, code_of, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)

    async def _send_many(self, node: Node, count: int) -> None:
        """Faster than anybody could fetch one by one."""

        async def act(actor: Actor) -> None:
            require(await actor.reach(("127.0.0.1", node.port)), "hang", f"{node.host} is out of reach")
            connection = await actor._connection(("127.0.0.1", node.port))
            requests = [self._produce_request(self._state(), b"%d" % number * 150, 1) for number in range(count)]
            await asyncio.gather(*(connection.send("produce", 13, request) for request in requests))

        await self._alone("producer", act)

    async def _read(self, node: Node, offset: int, rack: str) -> Any:
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=100_000)
        topic = FetchTopic(topic=TOPIC, topic_id=self._state().topic_id, partitions=[asked])
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=100_000, session_epoch=-1, topics=[topic], rack_id=rack)
        return (await self._once(node, "fetch", 13, request)).responses[0].partitions[0]

    async def _end(self, node: Node, version: int) -> tuple[ErrorCode, int]:
        topic = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)])
        answer = await self._once(node, "list_offsets", version, ListOffsetsRequest(replica_id=-1, topics=[topic]))
        found = answer.topics[0].partitions[0]
        return ErrorCode(found.error_code), found.offset

    async def _alter(self, node: Node, resource_type: int, resource: str, name: str, value: int) -> None:
        config = AlterableConfig(name=name, config_operation=SET, value=str(value))
        asked = AlterConfigsResource(resource_type=resource_type, resource_name=resource, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[asked], validate_only=False)
        code = ErrorCode((await self._once(node, "incremental_alter_configs", 1, request)).responses[0].error_code)
        self.trace.add(f"{node.host} is told that {name} of {resource or 'all brokers'} is {value}: {code.name}")
        require(code == ErrorCode.NONE, "error", f"{name} cannot be altered: {code.name}")
