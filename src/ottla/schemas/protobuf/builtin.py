"""Files that any schema may import without a reference: google/protobuf, google/type and Confluent's own."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from google.protobuf import descriptor_pb2 as pb

from ottla.schemas.protobuf.parser import parse_text

_GOOGLE_PROTOBUF = (
    "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type", "wrappers",
)  # fmt: skip
_GOOGLE_TYPE = (
    "calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction", "interval", "latlng",
    "localized_text", "money", "month", "phone_number", "postal_address", "quaternion", "timeofday",
)  # fmt: skip
_FIELDS = {
    "File": "file", "Message": "message", "Field": "field", "Enum": "enum", "EnumValue": "enum_value",
}  # fmt: skip
_META = """syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
option java_package = "io.confluent.protobuf"; option java_outer_classname = "MetaProto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4; }
message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
""" + "".join(f"extend google.protobuf.{target}Options {{ Meta {name}_meta = 1088; }}\n" for target, name in _FIELDS.items())
_DECIMAL = """syntax = "proto3"; package confluent.type; option java_package = "io.confluent.protobuf.type";
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"""
_TEXTS = {"confluent/meta.proto": _META, "confluent/type/decimal.proto": _DECIMAL}
_MODULES = {f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2" for name in _GOOGLE_PROTOBUF} | {
    f"google/type/{name}.proto": f"google.type.{name}_pb2" for name in _GOOGLE_TYPE
}


@cache
def builtin(path: str) -> pb.FileDescriptorProto | None:
    """The file of this import path, or None."""
    if path in _TEXTS:
        return parse_text(_TEXTS[path], path)
    if path not in _MODULES:
        return None
    try:
        module = import_module(_MODULES[path])
    except ImportError:
        return None
    return pb.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
