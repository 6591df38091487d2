"""F67: server.properties with Kafka's names, types, defaults; unknown and bad ones get a clear error, all at once."""

from __future__ import annotations

import pytest

from ottla.cluster.settings import BROKER_SETTINGS, BrokerSettings, SettingsError
from ottla.cluster.settings.broker import dynamic_problems
from ottla.cluster.settings.describe import describe_broker


def problems_of(properties: dict[str, str]) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        BrokerSettings.parse(properties)
    return caught.value.problems


def test_defaults_are_kafkas() -> None:
    settings = BrokerSettings.parse({})
    assert settings.int("log.segment.bytes") == 1 << 30
    assert settings.int("log.retention.ms") == 168 * 3_600_000
    assert settings.int("log.roll.ms") == 168 * 3_600_000
    assert settings.int("log.flush.interval.ms") == 2**63 - 1
    assert settings.int("message.max.bytes") == 1048588
    assert settings.int("num.partitions") == 1
    assert settings.bool("auto.create.topics.enable") is True
    assert settings.list("log.cleanup.policy") == ("delete",)
    assert settings.str("compression.type") == "producer"
    assert settings.float("log.cleaner.min.cleanable.ratio") == 0.5
    assert settings.optional_str("broker.rack") is None
    assert settings.log_dirs() == ("/tmp/kafka-logs",)
    assert settings.broker_id() == -1
    assert settings.warnings == []


def test_every_default_is_allowed_by_its_own_rule() -> None:
    for setting in BROKER_SETTINGS.values():
        text = setting.render(setting.default)
        if text is not None:
            assert setting.parse(text) == setting.default, setting.name


def test_every_setting_has_a_line_of_documentation_of_its_own() -> None:
    for setting in BROKER_SETTINGS.values():
        assert setting.doc.endswith("."), setting.name
        assert len(setting.doc) > 10, setting.name


@pytest.mark.parametrize(
    ("given", "expected_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1", "log.retention.hours": "5"}, -1),
        ({"log.retention.ms": "-1", "log.retention.hours": "5"}, -1),
    ],
)
def test_retention_synonyms_in_kafkas_order(given: dict[str, str], expected_ms: int) -> None:
    assert BrokerSettings.parse(given).int("log.retention.ms") == expected_ms


def test_other_synonyms_in_kafkas_order() -> None:
    assert BrokerSettings.parse({"log.roll.hours": "1"}).int("log.roll.ms") == 3_600_000
    assert BrokerSettings.parse({"log.roll.hours": "1", "log.roll.ms": "5"}).int("log.roll.ms") == 5
    assert BrokerSettings.parse({"log.roll.jitter.hours": "1"}).int("log.roll.jitter.ms") == 3_600_000
    assert BrokerSettings.parse({"log.flush.scheduler.interval.ms": "9"}).int("log.flush.interval.ms") == 9
    assert BrokerSettings.parse({"log.dir": "/a"}).log_dirs() == ("/a",)
    assert BrokerSettings.parse({"log.dir": "/a", "log.dirs": "/b, /c"}).log_dirs() == ("/b", "/c")
    assert BrokerSettings.parse({"node.id": "7"}).broker_id() == 7
    assert BrokerSettings.parse({"broker.id": "7"}).int("node.id") == 7


def test_all_problems_are_told_at_once() -> None:
    problems = problems_of(
        {
            "log.segmnt.bytes": "1",
            "log.segment.bytes": "ten",
            "num.partitions": "0",
            "auto.create.topics.enable": "yes",
            "compression.type": "rar",
            "listeners": "PLAINTEXT://:1,PLAINTEXT://:2",
        }
    )
    assert problems == [
        "unknown setting log.segmnt.bytes; did you mean log.segment.bytes?",
        "log.segment.bytes=ten is not a whole number; allowed: 14 or more",
        "num.partitions=0 is not allowed; allowed: 1 or more",
        "auto.create.topics.enable=yes is not a boolean; allowed: true, false",
        "compression.type=rar is not allowed; allowed: uncompressed, zstd, lz4, snappy, gzip, producer",
        "listeners: listener PLAINTEXT appears twice; listener names must be unique",
    ]


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("log.segment.bytes", "2147483648", "does not fit"),
        ("log.segment.bytes", "1_000", "not a whole number"),
        ("log.segment.bytes", "1e3", "not a whole number"),
        ("log.segment.bytes", "٣", "not a whole number"),
        ("log.segment.bytes", "", "not a whole number"),
        ("log.retention.ms", "9" * 400_000, "does not fit"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "0 to 1"),
        ("log.cleaner.min.cleanable.ratio", "nan", "not a number"),
        ("log.cleanup.policy", "delete,shred", "compact, delete"),
        ("compression.gzip.level", "0", "1 to 9, or -1"),
        ("log.retention.ms", "0", "-1 for ever"),
        ("log.retention.minutes", "-2", "-1 for ever"),
        ("log.dirs", "", "at least one directory"),
        ("log.dirs", "/a,,/b", "at least one directory"),
        ("log.dirs", "/a,/a", "twice"),
        ("log.dirs", "/a/b,/a/./b/", "twice"),
        ("broker.id", "-2", "-1 or more"),
        ("broker.id", "5000", "reserved.broker.max.id"),
        ("max.connections.per.ip.overrides", "here", "host:count"),
        ("security.inter.broker.protocol", "SSL", "no listener has this protocol"),
        ("replica.selector.class", "com.example.Mine", "RackAwareReplicaSelector"),
        ("replica.socket.timeout.ms", "499", "replica.fetch.wait.max.ms=500"),
        ("replica.lag.time.max.ms", "499", "replica.fetch.wait.max.ms=500"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(name: str, text: str, word: str) -> None:
    (problem,) = problems_of({name: text})
    assert name in problem
    assert word in problem
    assert len(problem) < 300


def test_values_are_trimmed_and_booleans_take_any_case() -> None:
    settings = BrokerSettings.parse(
        {"num.partitions": " 3 ", "delete.topic.enable": "FALSE", "log.cleanup.policy": "compact , delete"}
    )
    assert settings.int("num.partitions") == 3
    assert settings.bool("delete.topic.enable") is False
    assert settings.list("log.cleanup.policy") == ("compact", "delete")


def test_broker_id_and_node_id_must_agree() -> None:
    assert "must be equal" in problems_of({"broker.id": "1", "node.id": "2"})[0]
    assert BrokerSettings.parse({"broker.id": "2", "node.id": "2"}).broker_id() == 2
    assert BrokerSettings.parse({"node.id": "5000"}).broker_id() == 5000
    assert "broker.id must be set" in problems_of({"broker.id.generation.enable": "false"})[0]


def test_known_but_unused_settings_are_accepted_with_a_warning() -> None:
    settings = BrokerSettings.parse({"num.io.threads": "9", "listener.name.internal.ssl.keystore.type": "PEM"})
    assert len(settings.warnings) == 2
    assert settings.warnings[0].startswith("num.io.threads has no effect")
    assert settings.warnings[1].startswith("listener.name.internal.ssl.keystore.type has no effect")
    # Their values are checked all the same.
    assert "not a whole number" in problems_of({"num.io.threads": "many"})[0]
    assert "unknown setting listener.name.internal.nonsense" in problems_of({"listener.name.internal.nonsense": "1"})[0]


def test_names_that_kafka_s_brokers_ignore_are_accepted_with_a_warning() -> None:
    of_an_image = {"ssl.truststore.filename": "trust.jks", "ssl.truststore.location": "/secrets/trust.jks", "jmx.port": "9999"}
    settings = BrokerSettings.parse({"max.request.size": "1048576", "kafka.rest.enable": "false"} | of_an_image)
    assert settings.warnings == [
        "max.request.size has no effect: it is a setting of clients",
        "kafka.rest.enable has no effect: it is a setting of Confluent's REST server",
        "ssl.truststore.filename has no effect: ssl.truststore.location counts",
        "jmx.port has no effect: it is a variable of the Java process",
    ]
    # Nobody is told that the broker is protected when it is not.
    assert "unknown setting ssl.truststore.filename" in problems_of({"ssl.truststore.filename": "trust.jks"})[0]
    assert "unknown setting security.protocol" in problems_of({"security.protocol": "SASL_SSL"})[0]


ACLS = {"super.users": "User:CN=a,O=b;User:ops", "allow.everyone.if.no.acl.found": "true"}


def test_settings_of_an_authorizer_warn_without_one() -> None:
    settings = BrokerSettings.parse(ACLS)
    assert settings.new_authorizer() is None
    assert all("authorizer.class.name is not set" in warning for warning in settings.warnings)
    assert len(settings.warnings) == 2


@pytest.mark.parametrize(
    "name", ["kafka.security.authorizer.AclAuthorizer", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"]
)
def test_both_names_of_kafkas_authorizer_are_accepted(name: str) -> None:
    settings = BrokerSettings.parse({"authorizer.class.name": name, **ACLS})
    authorizer = settings.new_authorizer()
    assert settings.warnings == []
    assert authorizer is not None
    assert authorizer.super_users == {"User:CN=a,O=b", "User:ops"}
    assert authorizer.index.allow_if_no_acl


def test_another_authorizer_is_refused_by_name() -> None:
    assert "authorizer.class.name=com.example.Mine" in problems_of({"authorizer.class.name": "com.example.Mine"})[0]
    assert "'admin' is no principal" in problems_of({"super.users": "admin"})[0]


def test_a_password_is_never_shown() -> None:
    settings = BrokerSettings.parse({"ssl.key.password": "hunter2"})
    assert "hunter2" not in str(settings.warnings)
    assert BROKER_SETTINGS["ssl.key.password"].render("hunter2") is None


def test_dynamic_settings_go_before_the_file_and_broker_before_cluster() -> None:
    static = BrokerSettings.parse({"message.max.bytes": "1000", "log.retention.hours": "1"})
    assert static.with_dynamic({}, {}) is static
    cluster = static.with_dynamic({}, {"message.max.bytes": "2000"})
    assert cluster.int("message.max.bytes") == 2000
    both = static.with_dynamic({"message.max.bytes": "3000"}, {"message.max.bytes": "2000"})
    assert both.int("message.max.bytes") == 3000
    assert static.int("message.max.bytes") == 1000
    assert static.with_dynamic({"log.retention.ms": "5"}).int("log.retention.ms") == 5


def test_a_bad_stored_dynamic_value_is_skipped_with_a_warning() -> None:
    settings = BrokerSettings.parse({}).with_dynamic({"message.max.bytes": "lots", "num.partitions": "9", "nonsense": "1"})
    assert settings.int("message.max.bytes") == 1048588
    assert settings.int("num.partitions") == 1, "num.partitions cannot be changed while the broker runs"
    assert len(settings.warnings) == 1


def test_a_dynamic_setting_without_effect_is_told_too() -> None:
    (warning,) = BrokerSettings.parse({}).with_dynamic({"num.io.threads": "9"}).warnings
    assert warning.startswith("num.io.threads has no effect")


def test_which_dynamic_values_are_refused() -> None:
    assert dynamic_problems({"message.max.bytes": "5"}, per_broker=False) == []
    assert "cannot be changed while the broker runs" in dynamic_problems({"broker.id": "5"}, per_broker=True)[0]
    assert "-1 for ever" in dynamic_problems({"log.retention.ms": "0"}, per_broker=True)[0]
    assert "name a broker" in dynamic_problems({"listener.name.a.ssl.keystore.type": "JKS"}, per_broker=False)[0]
    assert "did you mean message.max.bytes" in dynamic_problems({"message.max.byte": "5"}, per_broker=True)[0]


def test_two_names_for_the_listener_between_brokers_exclude_each_other() -> None:
    problems = problems_of({"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"})
    assert "cannot both be set" in problems[0]


def test_the_configuration_files_people_have_are_accepted() -> None:
    """The settings of Kafka 3's and Kafka 4's own server.properties, as they come."""
    zookeeper = {
        "broker.id": "0",
        "num.network.threads": "3",
        "num.io.threads": "8",
        "socket.send.buffer.bytes": "102400",
        "socket.receive.buffer.bytes": "102400",
        "socket.request.max.bytes": "104857600",
        "log.dirs": "/tmp/kafka-logs",
        "num.partitions": "1",
        "num.recovery.threads.per.data.dir": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "log.retention.hours": "168",
        "log.retention.check.interval.ms": "300000",
        "zookeeper.connect": "localhost:2181",
        "zookeeper.connection.timeout.ms": "18000",
        "group.initial.rebalance.delay.ms": "0",
    }
    settings = BrokerSettings.parse(zookeeper)
    assert settings.broker_id() == 0
    assert not any(warning.startswith("zookeeper.connect ") for warning in settings.warnings), "it makes a cluster"
    kraft = {name: value for name, value in zookeeper.items() if not name.startswith(("zookeeper.", "broker."))} | {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
        ),
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    settings = BrokerSettings.parse(kraft)
    assert settings.broker_id() == 1
    assert any("joins no KRaft quorum. This broker is alone" in warning for warning in settings.warnings)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"group.consumer.heartbeat.interval.ms": "500"}, "allowed: 5000 (group.consumer.min.heartbeat.interval.ms) to 15000"),
        ({"group.consumer.session.timeout.ms": "70000"}, "to 60000 (group.consumer.max.session.timeout.ms)"),
        ({"group.consumer.assignment.interval.ms": "20000"}, "to 15000 (group.consumer.max.assignment.interval.ms)"),
        ({"group.consumer.min.session.timeout.ms": "70000"}, "is above group.consumer.max.session.timeout.ms=60000"),
        (
            {"group.consumer.min.session.timeout.ms": "4000", "group.consumer.session.timeout.ms": "5000"},
            "group.consumer.heartbeat.interval.ms=5000 must be less than group.consumer.session.timeout.ms=5000",
        ),
    ],
)
def test_the_times_of_consumer_groups_stay_within_their_limits(given: dict[str, str], word: str) -> None:
    with pytest.raises(SettingsError) as refused:
        BrokerSettings.parse(given)
    assert any(word in problem for problem in refused.value.problems)
    lower = {"group.consumer.heartbeat.interval.ms": "500", "group.consumer.min.heartbeat.interval.ms": "100"}
    assert BrokerSettings.parse(lower).int("group.consumer.heartbeat.interval.ms") == 500


def test_a_listener_has_a_limit_of_connections_of_its_own() -> None:
    name = "listener.name.inside.max.connections"
    properties = {
        "listeners": "INSIDE://127.0.0.1:1,OUTSIDE://127.0.0.1:2",
        "advertised.listeners": "INSIDE://127.0.0.1:1,OUTSIDE://127.0.0.1:2",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        name: "7",
    }
    settings = BrokerSettings.parse(properties)
    assert settings.of_listeners("max.connections") == {"INSIDE": 7}
    assert settings.warnings == []
    changed = settings.with_dynamic({name: "8"})
    assert changed.of_listeners("max.connections") == {"INSIDE": 8}
    (shown,) = describe_broker(changed, [name])
    assert (shown.value, shown.source, [synonym.value for synonym in shown.synonyms][:2]) == ("8", 2, ["8", "7"])
    assert problems_of({**properties, name: "-1"}) == [f"{name}=-1 is not allowed; allowed: 0 or more"]
    assert dynamic_problems({name: "x"}, per_broker=True) != []
    assert dynamic_problems({name: "9"}, per_broker=True) == []
    assert dynamic_problems({name: "9"}, per_broker=False) == [f"{name} cannot be set for the whole cluster; name a broker"]
    (warning,) = BrokerSettings.parse({**properties, "listener.name.INSIDE.max.connections": "7"}).warnings
    assert "lower case" in warning


@pytest.mark.parametrize("base", ["max.connections", "max.connection.creation.rate"])
@pytest.mark.parametrize("prefix", ["", "listener.name.inside."])
def test_nobody_is_locked_out_while_the_broker_runs(prefix: str, base: str) -> None:
    name = prefix + base
    assert BrokerSettings.parse({name: "0"}).value(name) == 0
    (problem,) = dynamic_problems({name: "0"}, per_broker=True)
    assert problem.startswith(f"{name}=0 is not allowed while the broker runs")
    assert dynamic_problems({name: "1"}, per_broker=True) == []


def test_a_quota_callback_in_java_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"client\.quota\.callback\.class=a\.B is not allowed"):
        BrokerSettings.parse({"client.quota.callback.class": "a.B"})
