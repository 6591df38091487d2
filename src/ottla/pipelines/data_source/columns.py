"""The columns of a topic as Spark types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.client.options import InvalidOption
from ottla.pipelines.data_source.options import SourceOptions

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_TYPES: dict[str, tuple[DataType, ...]] = {
    "key": (BinaryType(), StringType()),
    "value": (BinaryType(), StringType()),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "offset": (LongType(),),
    "timestamp": (TimestampType(),),
    "timestampType": (IntegerType(),),
    "headers": (_HEADERS,),
}
"""The types a column may have, the default first."""


def default_schema(*, include_headers: bool) -> StructType:
    return schema_of(name for name in _TYPES if name != "headers" or include_headers)


def schema_of(names: Iterable[str]) -> StructType:
    """A schema of these columns, for `.schema(…)`. The source decodes only the columns of its schema."""
    wanted = set(names)
    return StructType([StructField(name, types[0]) for name, types in _TYPES.items() if name in wanted])


def decoded_schema(kinds: Mapping[str, str], *, include_headers: bool) -> str:
    """The columns as DDL, some of which have these types."""
    default = default_schema(include_headers=include_headers)
    return ", ".join(f"{field.name} {kinds.get(field.name, field.dataType.simpleString())}" for field in default.fields)


def checked(schema: StructType, options: SourceOptions, decoded: Iterable[str] = ()) -> StructType:
    """The user's schema. InvalidOption if a topic has no such column, or not with that type. `decoded` may have others."""
    for field in schema.fields:
        if field.name in decoded and isinstance(field.dataType, StructType | StringType):
            continue
        if field.name not in _TYPES or field.dataType not in _TYPES[field.name]:
            known = ", ".join(f"{name} {types[0].simpleString()}" for name, types in _TYPES.items())
            raise InvalidOption("schema", f"{field.name} {field.dataType.simpleString()}", f"the columns of a topic are {known}")
        if field.name == "headers" and not options.include_headers:
            raise InvalidOption("includeHeaders", "false", "set it to true to read the column headers")
    return schema
