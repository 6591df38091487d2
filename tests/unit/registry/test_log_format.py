"""SR12 to SR14: records byte for byte, and what is skipped."""

from __future__ import annotations

import pytest

from ottla.registry.log_format import (
    CLEAR_SUBJECT,
    CONFIG,
    CONTEXT,
    DELETE_SUBJECT,
    MODE,
    NOOP,
    SCHEMA,
    LogKey,
    SchemaVersion,
    Skipped,
    config_document,
    key_bytes,
    read_record,
    schema_value,
)
from ottla.schemas.model import Reference


@pytest.mark.parametrize(
    ("key", "spelling"),
    [
        (LogKey(SCHEMA, "s", 1), b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'),
        (LogKey(CONFIG, "s"), b'{"keytype":"CONFIG","subject":"s","magic":0}'),
        (LogKey(CONFIG), b'{"keytype":"CONFIG","magic":0}'),
        (LogKey(MODE, "ü"), '{"keytype":"MODE","subject":"ü","magic":0}'.encode()),
        (LogKey(DELETE_SUBJECT, "s"), b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}'),
        (LogKey(CLEAR_SUBJECT, ""), b'{"keytype":"CLEAR_SUBJECT","subject":"","magic":0}'),
        (LogKey(CONTEXT, ".c"), b'{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}'),
        (LogKey(NOOP), b'{"keytype":"NOOP","magic":0}'),
    ],
)
def test_sr12_keys_have_one_spelling_and_are_read_back(key: LogKey, spelling: bytes) -> None:
    assert key_bytes(key) == spelling
    assert read_record(spelling, None) == (key, None)


def test_sr12_values() -> None:
    plain = SchemaVersion("s", 1, 7, "AVRO", '"int"')
    assert schema_value(plain) == b'{"subject":"s","version":1,"id":7,"schema":"\\"int\\"","deleted":false}'
    full = SchemaVersion("s", 2, 8, "JSON", "{}", (Reference("r", "t", 3),), deleted=True, metadata={"properties": {"a": "b"}})
    assert schema_value(full) == (
        b'{"subject":"s","version":2,"id":8,"schemaType":"JSON","references":[{"name":"r","subject":"t","version":3}],'
        b'"metadata":{"properties":{"a":"b"}},"schema":"{}","deleted":true}'
    )
    for version in (plain, full):
        key = LogKey(SCHEMA, version.subject, version.version)
        assert read_record(key_bytes(key), schema_value(version)) == (key, version)


def test_sr12_a_key_is_read_however_its_subject_is_spelled() -> None:
    for name in ("ä/ü", ':.c:a"b', "back\\slash", "line\n", ""):
        key = LogKey(SCHEMA, name, 7)
        assert read_record(key_bytes(key), None) == (key, None)
        assert read_record(key_bytes(key).replace(b":7,", b":7 ,"), None) == (key, None)
    for number in (b"07", b"-1", b"99999999999"):
        assert isinstance(read_record(b'{"keytype":"SCHEMA","subject":"s","version":%s,"magic":1}' % number, None), Skipped)


@pytest.mark.parametrize(
    "spelling",
    [
        b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":0}',
        b'{"magic":1, "subject":"s", "version":1, "keytype":"SCHEMA"}',
        b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1,"more":true}',
    ],
)
def test_sr12_other_spellings_mean_the_same(spelling: bytes) -> None:
    assert read_record(spelling, None) == (LogKey(SCHEMA, "s", 1), None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"no json", None),
        (b"[]", None),
        (b"{}", None),
        (b'{"keytype":"SCHEMA","subject":"s","magic":1}', None),
        (b'{"keytype":"SCHEMA","subject":null,"version":1,"magic":1}', None),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b"no json"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b"[]"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"schema":"x"}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"id":1,"schema":{}}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"id":1,"schema":"x","references":[1]}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', b"{}"),
        (b"\xff\xfe", None),
    ],
)
def test_sr11_what_is_no_record_is_named(key: bytes | None, value: bytes | None) -> None:
    skipped = read_record(key, value)
    assert isinstance(skipped, Skipped)
    assert skipped.why


def test_sr14_unknown_kinds_are_skipped_silently() -> None:
    assert read_record(b'{"keytype":"ASSOC","magic":0}', b"{}") == Skipped(None)


def test_sr13_the_fields_of_a_config_have_confluent_s_order() -> None:
    config = {
        "other": 1,
        "overrideRuleSet": {},
        "compatibilityLevel": "FULL",
        "normalize": True,
        "compatibilityGroup": "g",
        "alias": "a",
    }
    assert list(config_document(config)) == [
        "alias",
        "normalize",
        "compatibilityLevel",
        "compatibilityGroup",
        "overrideRuleSet",
        "other",
    ]
