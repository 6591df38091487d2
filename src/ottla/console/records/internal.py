"""Records of internal topics as JSON: `__consumer_offsets` and `__transaction_state`. Pure."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from ottla.console.records.datum import Decoder, DoesNotFit, Shown
from ottla.errors import MalformedInput
from ottla.protocol.internal import group_records, txn_records
from ottla.wire.schema import definition_of

Special = tuple[str, Decoder]
_NAME: Final = "internal"
TOPICS: Final = ("__consumer_offsets", "__transaction_state")


def decoded(topic: str, key: bytes | None, value: bytes | None) -> tuple[Special, Special] | None:
    """How key and value of a record are shown; None if the topic is not one of brokers."""
    if key is None or topic not in TOPICS:
        return None
    try:
        found = _group(key, value) if topic == "__consumer_offsets" else _transaction(key, value)
        why = "its type is unknown"
    except (MalformedInput, UnicodeDecodeError, ValueError) as error:
        found, why = None, str(error)
    if found is None:
        return (_NAME, _failing(why)), (_NAME, _failing(why))
    return (_NAME, _showing(found[0])), (_NAME, _showing(found[1]))


def _group(key: bytes, value: bytes | None) -> tuple[Any, Any] | None:
    found = group_records.decode_record(key, value)
    if found is None:
        return None
    _, read_key, read_value = found
    return {"type": type(read_key).__name__.removesuffix("Key"), **plain(read_key)}, plain(read_value)


def _transaction(key: bytes, value: bytes | None) -> tuple[Any, Any] | None:
    found = txn_records.decode_record(key, value)
    if found is None:
        return None
    return {"type": "TransactionLog", "transactional_id": found[0]}, plain(found[1])


def plain(value: Any) -> Any:
    """Messages as objects, bytes as base64."""
    if hasattr(type(value), "__wire__"):
        return {field.name: plain(getattr(value, field.name)) for field in definition_of(type(value)).fields}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    return value


def _showing(found: Any) -> Decoder:
    return lambda data: Shown(json.dumps(found, ensure_ascii=False))


def _failing(why: str) -> Decoder:
    def fail(data: bytes) -> Shown:
        raise DoesNotFit(why)

    return fail
