"""The state as a function of the log, and the writes that it decides (SR04 to SR10, SR13 to SR15)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.registry import changes, subjects
from ottla.registry.changes import Change
from ottla.registry.errors import RegistryError
from ottla.registry.log_format import CONFIG, SCHEMA, LogKey, LogRecord, SchemaVersion, json_bytes, key_bytes, schema_value
from ottla.registry.references import resolve
from ottla.registry.state import State
from ottla.schemas.model import Reference


class Log:
    """A state and the log it comes from."""

    def __init__(self) -> None:
        self.state = State()
        self.records: list[LogRecord] = []

    def append(self, *records: LogRecord) -> list[str | None]:
        self.records += records
        return [self.state.apply(key, value) for key, value in records]

    def do(self, change: Change[Any]) -> Any:
        assert self.append(*change.records) == [None] * len(change.records)
        return change.answer

    def register(self, subject: str, text: str, **fields: Any) -> SchemaVersion:
        version = SchemaVersion(subject, fields.pop("version", 0), fields.pop("id", -1), "AVRO", text, **fields)
        found: SchemaVersion = self.do(changes.register(self.state, version))
        return found

    def compacted(self) -> Log:
        """The log after compaction, read by another registry."""
        latest = {key: number for number, (key, _) in enumerate(self.records)}
        log = Log()
        log.append(*(record for number, record in enumerate(self.records) if latest[record[0]] == number))
        return log

    def shown(self) -> object:
        names = self.state.subjects(deleted=True)
        return [(each, self.state.versions(each, deleted=True)) for each in names], self.state._configs, self.state._modes


def schema_record(version: SchemaVersion) -> LogRecord:
    return key_bytes(LogKey(SCHEMA, version.subject, version.version)), schema_value(version)


def refused(code: int) -> Any:
    return pytest.raises(RegistryError, check=lambda error: error.code == code)


def test_sr04_versions_and_ids() -> None:
    log = Log()
    assert (log.register("s", "a").version, log.register("s", "a").id) == (1, 1)
    assert (log.register("s", "b").version, log.register("t", "b").id) == (2, 2)
    assert log.register("t", "c").id == 3
    log.do(changes.delete_subject(log.state, "s", permanent=False))
    log.do(changes.delete_subject(log.state, "s", permanent=True))
    # Ids are not reused, and the versions of a subject that is no more begin again.
    assert (log.register("s", "d").id, log.register("s", "d").version) == (4, 1)


def test_sr06_deleted_versions_count_for_the_next_version() -> None:
    log = Log()
    log.register("s", "a")
    log.register("s", "b")
    log.do(changes.delete_version(log.state, "s", 2, permanent=False))
    assert log.register("s", "c").version == 3


def test_sr06_registered_again_removes_the_deleted_version_unless_referenced() -> None:
    log = Log()
    log.register("s", "a")
    log.do(changes.delete_subject(log.state, "s", permanent=False))
    again = log.register("s", "a")
    assert (again.version, again.id) == (2, 1)
    assert log.records[-2] == (key_bytes(LogKey(SCHEMA, "s", 1)), None)
    log.register("t", "uses", references=(Reference("n", "s", 2),))
    log.append(schema_record(SchemaVersion("s", 2, 1, "AVRO", "a", deleted=True)))
    assert log.register("s", "a").version == 3
    assert [each.version for each in log.state.versions("s", deleted=True)] == [2, 3]


def test_sr07_references_are_followed_and_cycles_refused() -> None:
    log = Log()
    log.register("a", "A")
    log.register("b", "B", references=(Reference("na", "a", 1),))
    found = resolve(log.state, "c", [Reference("nb", "b", -1), Reference("na", "a", 1)])
    assert [(each.name, each.text, each.direct) for each in found] == [("na", "A", True), ("nb", "B", True)]
    assert [each.direct for each in resolve(log.state, "c", [Reference("nb", "b", 1)])] == [False, True]
    with refused(42201):
        resolve(log.state, "c", [Reference("x", "none", 1)])
    log.append(schema_record(SchemaVersion("x", 1, 8, "AVRO", "X", (Reference("ny", "y", 1),))))
    log.append(schema_record(SchemaVersion("y", 1, 9, "AVRO", "Y", (Reference("nx", "x", 1),))))
    with refused(42201):
        resolve(log.state, "c", [Reference("nx", "x", 1)])


def test_sr07_references_are_of_the_own_context() -> None:
    log = Log()
    log.register(":.c:a", "A")
    assert resolve(log.state, ":.c:b", [Reference("n", "a", 1)])[0].subject == ":.c:a"
    with refused(42201):
        resolve(log.state, "b", [Reference("n", "a", 1)])
    assert resolve(log.state, "b", [Reference("n", ":.c:a", 1)])[0].text == "A"


def test_sr08_modes() -> None:
    log = Log()
    for mode, with_id, refusal in (
        ("READONLY", False, 42205),
        ("READONLY_OVERRIDE", False, 42205),
        ("IMPORT", False, 42205),
        ("IMPORT", True, None),
        ("READWRITE", True, 42205),
        ("READWRITE", False, None),
    ):
        log.do(changes.set_mode(log.state, "s", mode, force=True))
        if refusal is None:
            changes.check_may_register(log.state, "s", with_id=with_id)
        else:
            with refused(refusal):
                changes.check_may_register(log.state, "s", with_id=with_id)


def test_sr08_readonly_override_covers_everything() -> None:
    log = Log()
    log.do(changes.set_mode(log.state, "s", "READWRITE", force=False))
    log.do(changes.set_mode(log.state, None, "READONLY_OVERRIDE", force=False))
    assert log.state.mode_in_scope("s") == "READONLY_OVERRIDE"


def test_sr09_scopes() -> None:
    log = Log()
    assert log.state.level("s") == "BACKWARD"
    log.do(changes.set_config(log.state, None, {"compatibilityLevel": "FULL"}))
    assert (log.state.level("s"), log.state.level(":.c:s")) == ("FULL", "BACKWARD")
    log.do(changes.set_config(log.state, ":.c:", {"compatibilityLevel": "NONE"}))
    assert log.state.level(":.c:s") == "NONE"
    log.do(changes.set_config(log.state, "s", {"normalize": True}))
    assert (log.state.level("s"), log.state.config_in_scope("s")["normalize"]) == ("FULL", True)
    log.do(changes.set_config(log.state, ":.__GLOBAL:", {"compatibilityLevel": "FORWARD"}))
    assert log.state.level(":.d:s") == "FORWARD"


def test_sr13_the_spelling_found_in_the_log_is_kept() -> None:
    log = Log()
    old = b'{"keytype":"CONFIG","subject":null,"magic":0}'
    log.append((old, json_bytes({"compatibilityLevel": "NONE"})))
    assert log.state.level("s") == "NONE"
    [(key, _)] = changes.set_config(log.state, None, {"compatibilityLevel": "FULL"}).records
    assert key == old
    log.do(changes.set_config(log.state, None, {"compatibilityLevel": "FULL"}))
    removal = changes.delete_config(log.state, None)
    assert set(removal.records) == {(old, None), (key_bytes(LogKey(CONFIG)), None)}
    log.do(removal)
    assert log.compacted().state.level("s") == "BACKWARD"


def test_sr14_delete_subject_survives_compaction() -> None:
    log = Log()
    log.register("s", "a")
    log.register("s", "b")
    log.do(changes.delete_subject(log.state, "s", permanent=False))
    log.register("s", "c")
    assert [(each.version, each.deleted) for each in log.compacted().state.versions("s", deleted=True)] == [
        (1, True),
        (2, True),
        (3, False),
    ]


def test_sr15_two_schemas_with_one_id_the_first_stays() -> None:
    log = Log()
    log.register("s", "a")
    [why] = log.append(schema_record(SchemaVersion("t", 1, 1, "AVRO", "other")))
    assert why is not None
    assert "id 1" in why
    assert not log.state.has_subject("t")
    assert log.register("t", "b").id == 2


names = st.sampled_from(["s", "t", ":.c:s"])
texts = st.sampled_from(["a", "b", "c"])
steps = st.one_of(
    st.tuples(st.just("register"), names, texts),
    st.tuples(st.just("delete_subject"), names, st.booleans()),
    st.tuples(st.just("delete_version"), names, st.integers(1, 4), st.booleans()),
    st.tuples(st.just("config"), st.none() | names, st.sampled_from(["FULL", "NONE"])),
    st.tuples(st.just("no config"), names),
    st.tuples(st.just("mode"), names, st.sampled_from(["READONLY", "READWRITE"])),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=25))
def test_compaction_never_changes_what_a_registry_shows(script: list[tuple[Any, ...]]) -> None:
    log = Log()
    given_ids: dict[tuple[str, int], str] = {}
    for step in script:
        try:
            match step:
                case ("register", subject, text):
                    changes.check_may_register(log.state, subject, with_id=False)
                    new = log.register(subject, text)
                    context = subjects.context_of(subject)
                    assert given_ids.setdefault((context, new.id), text) == text
                case ("delete_subject", subject, permanent):
                    log.do(changes.delete_subject(log.state, subject, permanent=permanent))
                case ("delete_version", subject, number, permanent):
                    log.do(changes.delete_version(log.state, subject, number, permanent=permanent))
                case ("config", subject, level):
                    log.do(changes.set_config(log.state, subject, {"compatibilityLevel": level}))
                case ("no config", subject):
                    log.do(changes.delete_config(log.state, subject))
                case ("mode", subject, mode):
                    log.do(changes.set_mode(log.state, subject, mode, force=False))
        except RegistryError:
            pass
    assert log.compacted().shown() == log.shown()


@settings(max_examples=200, deadline=None)
@given(st.none() | st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_sr11_no_record_stops_the_reader(key: bytes | None, value: bytes | None) -> None:
    State().apply(key, value)
