"""`ottla.connect()` and what notebooks show of it. No value of a record or of a cluster becomes HTML."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from ottla.cli.failure import Failure
from ottla.cli.formats import Incoming
from ottla.notebook import html
from ottla.notebook.cluster import Cluster, Listing, connect
from ottla.notebook.records import Record, Records
from ottla.testing import Broker

EVIL = '<script>alert(1)</script><img src=x onerror="alert(2)">\'"&'
ALLOWED_TAGS = {"div", "b", "table", "thead", "tbody", "tr", "th", "td"}
START_MS = 1_714_557_600_000


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str | None]] = set()
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= set(attrs)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def shown(thing: Any) -> list[str]:
    """The texts of its HTML, which has no tags and attributes but ours."""
    page = Tags(thing._repr_html_())
    assert page.tags <= ALLOWED_TAGS
    assert page.attributes <= {("style", "text-align:left")}
    return page.texts


@pytest.fixture(scope="module")
def orders(ottla_broker: Broker) -> str:
    admin = AdminClient({"bootstrap.servers": ottla_broker.bootstrap_servers})
    admin.create_topics([NewTopic("orders-nb", 3, 1)])["orders-nb"].result(30)
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap_servers, "partitioner": "murmur2_random"})
    for n in range(30):
        value = json.dumps({"n": n, "amount": n * 10, "customer": {"name": f"Ada {n}"}})
        producer.produce("orders-nb", value, f"c-{n % 5}", timestamp=START_MS + n, headers={"x": str(n % 2)})
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": ottla_broker.bootstrap_servers, "group.id": "billing-nb"})
    consumer.commit(offsets=[TopicPartition("orders-nb", partition, 2) for partition in range(3)], asynchronous=False)
    consumer.close()
    return "orders-nb"


@pytest.fixture
def cluster(ottla_broker: Broker, orders: str) -> Cluster:
    found: Any = ottla.connect
    made: Cluster = found(ottla_broker.bootstrap_servers)
    return made


def numbers(records: Records) -> list[int]:
    return [record.value["n"] for record in records]


def test_topics(cluster: Cluster, orders: str) -> None:
    topics = cluster.topics()
    assert orders in [topic.name for topic in topics]
    assert all(not topic.name.startswith("__") for topic in topics)
    assert "__consumer_offsets" in [topic.name for topic in cluster.topics(internal=True)]
    assert {"partitions", orders, "3"} <= set(shown(topics))
    assert topics.to_pandas().set_index("topic").loc[orders, "partitions"] == 3


def test_a_topic_shows_its_partitions(cluster: Cluster, orders: str) -> None:
    texts = shown(cluster.topic(orders))
    assert texts[0] == "topic orders-nb: 3 partitions, 30 offsets"
    assert "leader" in texts
    with pytest.raises(Failure, match="topic order-nb does not exist") as caught:
        cluster.topic("order-nb")
    assert "did you mean orders-nb?" in "".join(caught.value.__notes__)


def test_head_and_tail_are_in_order_of_time(cluster: Cluster, orders: str) -> None:
    topic = cluster.topic(orders)
    assert numbers(topic.head(3)) == [0, 1, 2]
    assert numbers(topic.tail(3)) == [27, 28, 29]
    assert numbers(topic.read(f"@{START_MS + 5}", f"@{START_MS + 8}")) == [5, 6, 7]
    assert topic.head(3).summary.endswith("stopped at the limit")
    assert topic.head(3)[0].time is not None


def test_search(cluster: Cluster, orders: str) -> None:
    topic = cluster.topic(orders)
    assert numbers(topic.search("Ada 7")) == [7]
    assert numbers(topic.search(where='value.amount >= 270 and headers["x"] == "0"')) == [28]
    assert numbers(topic.search(where="value.amount >= 270", newest_first=False)) == [27, 28, 29]
    assert numbers(topic.search('ADA [12]"', regex=True, ignore_case=True)) == [2, 1]
    by_key = topic.search(key="c-3", limit=2)
    assert numbers(by_key) == [28, 23]
    assert len(by_key.scanned["partitions"]) <= 2
    everything = topic.search("Ada")
    assert everything.scanned["complete"]
    assert everything.summary.startswith("orders-nb: 30 of 30 records")
    with pytest.raises(Failure, match="foo is not the name of a part") as caught:
        topic.search(where="foo > 1")
    assert "^^^" in "".join(caught.value.__notes__)


def test_records(cluster: Cluster, orders: str) -> None:
    (record,) = cluster.topic(orders).search("Ada 7")
    assert (record.key, record.headers, record.timestamp_ms) == ("c-2", {"x": "1"}, START_MS + 7)
    assert record.value["customer"] == {"name": "Ada 7"}
    assert str(record.time) == "2024-05-01 10:00:00.007000+00:00"
    assert '{"n": 7, "amount": 70, "customer": {"name": "Ada 7"}}' in shown(record)
    records = cluster.topic(orders).head(5)
    assert isinstance(records[1:3], Records)
    assert numbers(records[1:3]) == [1, 2]


def test_arrow(cluster: Cluster, orders: str) -> None:
    table = cluster.topic(orders).to_arrow()
    assert table.num_rows == 30
    assert [str(field.type) for field in table.schema][:6] == [
        "string",
        "int32",
        "int64",
        "timestamp[ms, tz=UTC]",
        "string",
        "string",
    ]
    assert table.column("headers")[1].as_py() == [{"name": "x", "value": b"1"}]
    binary = Records([Record("t", 0, 0, None, None, b"\xff", ())], "").to_arrow()
    assert (str(binary.schema.field("value").type), binary.column("value")[0].as_py()) == ("binary", b"\xff")
    assert Records([], "").to_arrow().num_rows == 0


def test_pandas(cluster: Cluster, orders: str) -> None:
    frame = cluster.topic(orders).to_pandas(limit=10)
    assert list(frame["offset"])[:1] == [0]
    assert frame["value"][3]["amount"] == 30
    wide = cluster.topic(orders).head(4).to_pandas(fields=True)
    assert list(wide["value.amount"]) == [0, 10, 20, 30]
    assert wide["value.customer.name"][2] == "Ada 2"
    assert list(Records([], "").to_pandas(fields=True).columns)[:2] == ["topic", "partition"]
    assert cluster.group("billing-nb").to_pandas()["committed"].sum() == 6


def test_groups(cluster: Cluster) -> None:
    assert "billing-nb" in [group.name for group in cluster.groups()]
    assert "billing-nb" in shown(cluster.groups())
    group = cluster.group("billing-nb")
    assert group.lag == 24
    assert shown(group)[0] == "group billing-nb: classic, Empty, 0 members, lag 24"
    with pytest.raises(Failure, match="group no-such does not exist"):
        cluster.group("no-such")


def test_pipelines(cluster: Cluster) -> None:
    assert len(cluster.pipelines()) == 0
    assert shown(cluster.pipelines()) == ["0 pipelines"]


def test_properties_and_profiles(ottla_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "ottla").mkdir()
    file = tmp_path / "ottla/config.toml"
    file.write_text(f'[profiles.stage]\nbootstrap_servers = "{ottla_broker.bootstrap_servers}"\n')
    file.chmod(0o600)
    assert repr(connect(profile="stage")) == f"<cluster at {ottla_broker.bootstrap_servers}>"
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", ottla_broker.bootstrap_servers)
    assert connect(client_id="me", enable_auto_commit=False).topics()
    with pytest.raises(Failure, match="invalid client property"):
        connect(no_such_property=1).topics()
    with pytest.raises(Failure, match="none"):
        connect(profile="none")


@pytest.mark.parametrize("evil", [EVIL, EVIL.encode(), {EVIL: [EVIL]}, "</td></table><script>"])
def test_values_keys_headers_and_names_are_escaped(evil: Any) -> None:
    data = evil if isinstance(evil, bytes) else evil.encode() if isinstance(evil, str) else json.dumps(evil).encode()
    read = Incoming(EVIL, 0, 1, START_MS, "CreateTime", data, data, [(EVIL, data)])
    records = Records([Record.of(read), Record.of(Incoming("other", 0, 1, None, "none", None, None, []))], EVIL)
    texts = shown(records)
    assert EVIL in texts
    assert "<script>" not in records._repr_html_()
    assert any("script" in text for text in texts[3:])
    listing = Listing(EVIL, [{EVIL: EVIL, "nested": {EVIL: [EVIL]}}], lambda document: document)
    assert texts[0] == EVIL == shown(listing)[0]
    assert "<script>" not in listing._repr_html_()


def test_long_lists_and_values_are_cut() -> None:
    records = Records([Record("t", 0, n, None, None, b"x" * 10_000, ()) for n in range(1000)], "many")
    texts = shown(records)
    assert texts[-1] == "… and 900 more"
    assert len(records._repr_html_()) < html.ROWS_MAX * (html.CELL_CHARS_MAX + 500)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"to_pandas\(\) needs pandas: install it with `pip install 'ottla\[notebook\]'`"):
        Records([], "").to_pandas()


def test_import_ottla_stays_light() -> None:
    code = "import sys, ottla; ottla.connect; print({'pandas', 'pyarrow', 'confluent_kafka', 'pyspark'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "set()\n", done.stderr
