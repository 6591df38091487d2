"""Random walks through the classic protocol: whatever members do, the rules hold and nobody waits for ever."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from ottla.coordinator.group.classic_group import ClassicGroup, State

SEEDS = range(40)
STEPS = 120


def _check(group: ClassicGroup) -> None:
    members = group.members
    assert group.awaiting_join == sum(member.join_token is not None for member in members.values())
    assert group.instances == {m.instance_id: m.member_id for m in members.values() if m.instance_id is not None}
    assert all(member_id == member.member_id for member_id, member in members.items())
    assert not group.pending_join.keys() & members.keys()
    assert group.pending_sync <= members.keys()
    assert (group.leader in members) if members else group.leader is None
    assert bool(members) or group.state in (State.EMPTY, State.PREPARING_REBALANCE)
    assert not members or group.state is not State.EMPTY
    names = {name for member in members.values() for name, _ in member.protocols}
    assert group.votes_for == {name: sum(name in dict(m.protocols) for m in members.values()) for name in names}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_walk_keeps_the_rules(seed: int, new_host: Callable[..., Any]) -> None:
    chance = random.Random(seed)
    host = new_host(size_max=chance.choice([3, 100]), initial_rebalance_delay_ms=chance.choice([0, 3000]))
    known: list[tuple[str, str | None]] = [("nobody", None)]
    highest = 0
    parked: set[int] = set()
    for _ in range(STEPS):
        group = host.shard.groups.by_id.get("g")
        generation = group.generation if group is not None and chance.random() < 0.9 else 1
        member_id, instance = chance.choice(known[-6:])
        protocols = {name: bytes([chance.randrange(2)]) for name in chance.choice([["a"], ["a", "b"], ["b", "a"]])}
        match chance.randrange(10):
            case 0 | 1:
                new_instance = chance.choice([None, None, "one", "two"])
                token = host.join(instance=new_instance, protocols=protocols, version=chance.choice([0, 3, 8, 9]))
                parked.add(token)
                if token in host.answers and host.answers[token].member_id:
                    known.append((host.answers[token].member_id, new_instance))
                else:
                    group = host.shard.groups.by_id.get("g")
                    known += [(m.member_id, m.instance_id) for m in group.members.values()][-1:] if group else []
            case 2 | 3 | 4:
                parked.add(host.join(member_id, instance=instance, protocols=protocols))
            case 5 | 6:
                parked.add(host.sync(member_id, generation, {name: name.encode() for name, _ in known}, instance=instance))
            case 7:
                host.heartbeat(member_id, generation, instance=instance)
                host.commit(member=member_id, generation=generation, instance=instance)
            case 8:
                host.leave((member_id if chance.random() < 0.8 else "", instance))
            case 9:
                host.advance(chance.choice([1, 2999, 6000, 20_000]))
                if chance.random() < 0.1:
                    host.reload()
                    parked -= parked - host.answers.keys()
                    highest = 0
        group = host.shard.groups.by_id.get("g")
        if group is not None:
            _check(group)
            assert group.generation >= highest
            highest = group.generation
        for token in parked & host.answers.keys():
            answer = host.answers[token]
            if hasattr(answer, "members") and answer.error_code == 0:
                assert answer.member_id
    host.advance(1_000_000)
    assert parked <= host.answers.keys(), "somebody waits for ever"
    group = host.shard.groups.by_id.get("g")
    assert group is None or group.state is State.EMPTY
    assert not [key for key in host.timers if key[1] != "session"]
