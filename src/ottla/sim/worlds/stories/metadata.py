"""Stories of topics and settings that change while a broker is away or the controller is replaced."""

from __future__ import annotations

from ottla.protocol.registry import API_BY_NAME
from ottla.sim.violation import require
from ottla.sim.worlds.story_stage import QUIET_S, SOON_S, TOPIC, StoryStage

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4


async def configs_change(stage: StoryStage) -> None:
    """Configs of a topic and of all brokers change while one broker is out of touch: it learns of them later (C10)."""
    nodes = stage.three()
    await stage.create(*nodes)
    away = stage.rng.choice(stage.nodes)
    how = stage.rng.choice(("hears", "is cut", "is dead"))
    segment_bytes = message_bytes = 0
    for _ in range(2):
        segment_bytes, message_bytes = stage.rng.randint(2000, 9000), stage.rng.randint(100_000, 900_000)
        stage.trace.add(f"{away.host} {how}")
        if how == "is cut":
            away.cut_store()
        elif how == "is dead":
            away.kill()
        asked = stage.rng.choice([node for node in stage.nodes if node is not away])
        await stage.alter_config(asked, TOPIC_RESOURCE, TOPIC, "segment.bytes", segment_bytes)
        await stage.alter_config(asked, BROKER_RESOURCE, "", "message.max.bytes", message_bytes)
        await stage.pass_time(stage.rng.choice((0.5, 3.0)))
        if how == "is cut":
            away.heal_store()
        elif how == "is dead":
            await stage.start(away)

    def differing() -> str:
        for node in stage.nodes:
            assert node.broker is not None
            found = node.broker.settings.int("message.max.bytes")
            if found != message_bytes:
                return f"{node.host}: message.max.bytes is {found}, not {message_bytes}"
            replica = stage.replica(node)
            if replica is not None and replica.log.config.segment_bytes != segment_bytes:
                return f"{node.host}: segment.bytes is {replica.log.config.segment_bytes}, not {segment_bytes}"
        return ""

    await stage.until(lambda: not differing(), lambda: f"all know the settings: {differing()}", SOON_S, rule="settings")


async def deletion_is_inherited(stage: StoryStage) -> None:
    """The controller is replaced while a topic is being deleted: the next one finishes the deletion (C09)."""
    controller = stage.controller()
    one, other = stage.two_others(controller)
    await stage.create(one, other)
    await stage.produce()
    held = stage.network.hold_requests(controller.host, one.host, API_BY_NAME["stop_replica"].key)
    deleting = stage.loop.create_task(stage.delete())
    await stage.until(lambda: stage.tree.children("/admin/delete_topics"), "the deletion has begun")
    await stage.replace_controller(controller)
    await deleting
    await stage.until(lambda: stage.is_gone(one, other), "the topic is gone", SOON_S)
    stage.network.release(held)
    await stage.create(one, other)
    await stage.produce()


async def reassignment_is_inherited(stage: StoryStage) -> None:
    """A reassignment is under way, one of the new replicas is dead, and the controller is replaced: the old replicas stay until
    all new ones are in sync, or, if the reassignment is cancelled, for good (R18, C09)."""
    controller = stage.controller()
    absent = stage.rng.choice([node for node in stage.nodes if node is not controller])
    one, other, new = stage.rng.sample([node for node in stage.nodes if node is not absent], 3)
    await stage.create(one, other)
    await stage.until_settled()
    await stage.produce()
    stage.trace.add(f"kill {absent.host}")
    absent.kill()
    await stage.reassign((new.number, absent.number))
    await stage.until(lambda: stage.state().is_moving, "it is on its way")
    before = stage.tree.get("/controller_epoch")
    stage.trace.add(f"{controller.host}, the controller, loses its session")
    stage.tree.lose_sessions_of(controller.host)
    await stage.until(lambda: stage.tree.get("/controller_epoch") != before, "there is a new term")
    await stage.produce()
    await stage.pass_time(QUIET_S)
    replicas = {one.number, other.number, new.number, absent.number}
    require(
        set(stage.state().replicas) == replicas,
        "moved",
        f"replicas are {stage.state().replicas}, though one of the new ones is dead",
    )
    expected = {new.number, absent.number}
    if stage.rng.random() < 0.5:
        stage.trace.add("it is called off")
        await stage.reassign(None)
        expected = {one.number, other.number}
    await stage.start(absent)
    await stage.until(lambda: set(stage.state().replicas) == expected, f"it is on {expected}", SOON_S, rule="moved")
    await stage.produce()


async def topic_deleted_while_away(stage: StoryStage) -> None:
    """A topic is deleted, and perhaps created again, while a broker with a replica of it is away: when it returns it drops
    the old records (C08)."""
    one, absent = stage.two_others(stage.controller())
    await stage.create(one, absent)
    await stage.until_settled()
    await stage.produce()
    stage.trace.add(f"kill {absent.host}")
    absent.kill()
    await stage.delete()
    await stage.until(lambda: stage.is_gone(one), "the topic is gone")
    again = stage.rng.random() < 0.7
    if again:
        await stage.create(one, absent, await_all=False)
        await stage.produce()
    await stage.start(absent)
    await stage.until_settled()
    if again:
        stage.rules.check_logs(whole=True)
    else:

        def kept() -> list[str]:
            return [path for path in absent.disk.paths("/") if f"/{TOPIC}-0/" in path]

        what = f"{absent.host} has nothing of a topic that is gone"
        await stage.until(lambda: not kept(), what, SOON_S, rule="stray")
        await stage.create(one, absent)
        await stage.produce()
