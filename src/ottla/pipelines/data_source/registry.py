"""Keys and values of `format("ottla")` that a schema registry decodes: `registry.url` and the other options `registry.*`.

A decoded column is a struct of the reader's fields, or the text of JSON. The driver asks for the reader's schema once; tasks ask
for the schemas of the ids that they meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.client.options import InvalidOption
from ottla.pipelines.data_source.options import RegistrySource
from ottla.schemas.framing import KEY_HEADER, VALUE_HEADER, NotFramed, read_id
from ottla.schemas.model import JSON

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.schema_registry import RegistryOptions
    from ottla.schemas.work import SchemaText

_REASON = "_ottla_reason"


class DoesNotDecode(Exception):
    """A key or value cannot be read with its schema."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How one column is read."""

    options: RegistryOptions
    reader: SchemaText
    ddl: str
    """The type of the column."""
    header: str
    fails: bool


NO_DECODINGS: Final[Mapping[str, Decoding]] = {}


def decodings(source: RegistrySource | None) -> dict[str, Decoding]:
    """By the column that is decoded. Asks the registry. InvalidOption."""
    if source is None:
        return {}
    from ottla.client.schema_registry import RegistryFailed, RegistryOptions
    from ottla.pipelines import registry_columns
    from ottla.pipelines.failure import PipelineError, Place
    from ottla.pipelines.values import Framed

    place = Place("format(ottla)", 0)
    found = {}
    try:
        options = RegistryOptions.of(dict(source.settings))
        registry_columns.connected(options)
    except ValueError as error:
        raise InvalidOption("registry.url", "…", str(error)) from None
    for column, subject, header in (("key", source.key_subject, KEY_HEADER), ("value", source.subject, VALUE_HEADER)):
        if subject is None:
            continue
        try:
            version = source.version if column == "value" else "latest"
            reader = registry_columns.reader_schema(Framed("", subject, version, None, source.settings), place)
            kind = "string" if reader.schema_type == JSON else f"struct<{registry_columns.ddl(reader.parse(), place)}>"
        except (RegistryFailed, PipelineError, ImportError) as error:
            name = "registry.subject" if column == "value" else "registry.key.subject"
            raise InvalidOption(name, subject, str(error)) from None
        found[column] = Decoding(options, reader, kind, header, source.fails)
    return found


def decoded(
    values: pa.Array, headers: list[bytes | None] | None, decoding: Decoding, kind: pa.DataType, place_of: Callable[[int], str]
) -> pa.Array:
    """The column of these values. A bad one is null, or DoesNotDecode names its place, which `place_of` knows by the row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from ottla.pipelines.registry_columns import decode_batch

    if decoding.reader.schema_type == JSON:
        found, reasons = _texts(values, headers, kind)
    else:
        named = None if headers is None else pa.array(headers, pa.binary())
        fields = pa.struct([*kind, pa.field(_REASON, pa.string())])
        rows = decode_batch(values, decoding.options, decoding.reader, fields, _REASON, named)
        *parts, reasons = (rows.field(index) for index in range(len(fields)))
        absent = pc.or_(pc.is_null(values), pc.is_valid(reasons))
        found = pa.StructArray.from_arrays(parts, fields=list(kind), mask=absent)
    if decoding.fails and reasons.null_count < len(reasons):
        row = pc.index(pc.is_valid(reasons), True).as_py()
        raise DoesNotDecode(f"{place_of(row)}: {reasons[row].as_py()}; with registry.mode=PERMISSIVE it is null")
    return found


def _texts(values: pa.Array, headers: list[bytes | None] | None, kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """The JSON texts, and why one is none."""
    import pyarrow as pa

    texts: list[str | None] = []
    reasons: list[str | None] = []
    for row, value in enumerate(values.to_pylist()):
        text = reason = None
        if value is not None:
            whole = (headers[row] or b"" if headers is not None else b"") + value
            try:
                text = whole[read_id(whole).payload_start :].decode()
            except NotFramed as error:
                reason = f"no value of a schema registry: {error}"
            except UnicodeDecodeError:
                reason = "the value is no UTF-8"
        texts.append(text)
        reasons.append(reason)
    return pa.array(texts, kind), pa.array(reasons, pa.string())


def schema_headers(headers: pa.Array, name: str) -> list[bytes | None]:
    """For each row the last header of this name."""
    return [
        next((each["value"] for each in reversed(row or ()) if each["key"] == name and each["value"]), None)
        for row in headers.to_pylist()
    ]
