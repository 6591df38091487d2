"""`ottla pipeline status`, from what a group holds: needs a broker, no Spark (F80)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from ottla.client.blocking import Client
from ottla.client.offsets import commit_offsets
from ottla.client.options import plain_options
from ottla.client.transactions import CommittedOffset, add_offsets, end_txn, init_producer_id, txn_offset_commit
from ottla.errors import KafkaError
from ottla.pipelines import PipelineError, graph, loading, project, switching
from ottla.pipelines.reset import reset
from ottla.pipelines.running import PipelineRun
from ottla.pipelines.status import status
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.testing import Broker

TWO_STEPS = """
from ottla import pipelines as p

orders = p.source("standing.in", name="orders")
first = p.sql(orders, to=p.sink("standing.middle"), name="first", query="SELECT * FROM orders")
p.sql(first, to=p.sink("standing.out"), name="second", query="SELECT * FROM first")
"""


def test_status_counts_what_a_flow_reads_now(tmp_path: Path, ottla_broker: Broker) -> None:
    """A group also keeps offsets of topics that its flow read once, and of the one it writes."""
    topics = [f"standing.{name}" for name in ("in", "middle", "out", "before")]
    for name in topics:
        ottla_broker.create_topic(name, 1)
    with Client(plain_options(ottla_broker.bootstrap_servers)) as client:
        for group, read in (("standing.first", "standing.in"), ("standing.second", "standing.middle")):
            offsets = {TopicPartition(name, 0): CommittedOffset(5 if name == read else 100) for name in topics}
            commit_offsets(client, group, offsets, timeout_s=60)
    file = tmp_path / "standing.py"
    file.write_text(TWO_STEPS)
    settings = project.override(project.read(file), bootstrap_servers=ottla_broker.bootstrap_servers)
    found = status(settings, graph.plan(loading.load(file)))
    # The topics are empty: offsets beyond their ends are no lag.
    assert [(each.flow, each.committed, each.lag) for each in found] == [("first", 5, 0), ("second", 5, 0)]


def test_a_damaged_checkpoint_is_named_and_can_be_reset(tmp_path: Path, ottla_broker: Broker) -> None:
    file = tmp_path / "damaged.py"
    file.write_text(TWO_STEPS)
    settings = project.override(project.read(file), bootstrap_servers=ottla_broker.bootstrap_servers)
    plan = graph.plan(loading.load(file))
    folder = Path(settings.checkpoint("first"))
    folder.mkdir(parents=True)
    (folder / "metadata").write_text("")
    (folder / "ottla.json").write_text('{"pipeline": ')
    with pytest.raises(PipelineError, match=r"first/metadata is damaged") as caught:
        status(settings, plan)
    assert caught.value.hint == "remove the checkpoint with `ottla pipeline reset`"
    reset(settings, plan, ["first"])
    assert not folder.exists()


def test_a_driver_killed_in_the_midst_of_a_commit_is_succeeded_at_once(tmp_path: Path, ottla_broker: Broker) -> None:
    """Its transaction holds the offsets of the group open for as long as a transaction may take, which is minutes."""
    ottla_broker.create_topic("held.in", 1)
    file = tmp_path / "held.py"
    file.write_text(TWO_STEPS.replace("standing", "held"))
    file.with_suffix(".toml").write_text('[kafka]\n"default.api.timeout.ms" = 3000\n')
    settings = project.override(project.read(file), bootstrap_servers=ottla_broker.bootstrap_servers)
    plan = graph.plan(loading.load(file))
    with Client(plain_options(ottla_broker.bootstrap_servers)) as client:
        place = TopicPartition("held.in", 0)
        commit_offsets(client, "held.first", {place: CommittedOffset(5)}, timeout_s=60)
        producer = init_producer_id(client, "held.first", 600_000)
        add_offsets(client, "held.first", producer, "held.first")
        marker = "ottla/1 0-0 4 0 version=3-x generation=1"
        txn_offset_commit(client, "held.first", producer, "held.first", {place: CommittedOffset(7, marker)})
        # To look at it ends nothing.
        assert [each.committed for each in status(settings, plan)] == [5, 0]
        run = PipelineRun(cast(Any, None), settings, plan)
        assert run.project.version == "1"
        with pytest.raises(KafkaError):
            end_txn(client, "held.first", producer, commit=True)


def test_the_first_run_waits_for_the_coordinator_of_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster makes the topic of committed offsets when the first group asks: that takes longer than a commit."""
    from ottla.testing import Broker

    monkeypatch.setattr(switching, "_COMMIT_S", 0.001)
    file = tmp_path / "first.py"
    file.write_text(TWO_STEPS)
    with Broker() as broker:
        settings = project.override(project.read(file), bootstrap_servers=broker.bootstrap_servers)
        assert PipelineRun(cast(Any, None), settings, graph.plan(loading.load(file))).project.version == "1"
