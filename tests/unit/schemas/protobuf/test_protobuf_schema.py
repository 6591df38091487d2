"""Text, descriptors, imports and limits of Protobuf schemas. The files of googleapis-common-protos were compiled by protoc."""

from __future__ import annotations

import base64
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import google.api
import pytest
from google.protobuf import descriptor_pb2 as pb

from ottla.schemas.limits import SchemaTooLarge
from ottla.schemas.model import PROTOBUF, InvalidSchema, ParsedSchema, ResolvedReference
from ottla.schemas.parsing import parse

ROOT = Path(next(iter(google.api.__path__))).parent.parent
CORPUS = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("google/**/*.proto"))


def schema(text: str, *references: ResolvedReference) -> ParsedSchema:
    return parse(PROTOBUF, text, references)


@cache
def imports(path: str) -> tuple[ResolvedReference, ...]:
    found: dict[str, ResolvedReference] = {}
    for name in re.findall(r'^import (?:public )?"([^"]+)"', (ROOT / path).read_text(), re.MULTILINE):
        if (ROOT / name).exists():
            found |= {each.name: each for each in imports(name)}
            found[name] = ResolvedReference(name, name, 1, (ROOT / name).read_text())
    return tuple(found.values())


@pytest.mark.parametrize("path", CORPUS)
def test_sr05_text_and_descriptor_of_a_file_are_one_schema(path: str) -> None:
    written = schema((ROOT / path).read_text(), *imports(path))
    module = import_module(path.removesuffix(".proto").replace("/", ".") + "_pb2")
    compiled = schema(base64.b64encode(module.DESCRIPTOR.serialized_pb).decode(), *imports(path))
    assert compiled.normalized().canonical == written.normalized().canonical
    for each in (written, compiled, written.normalized()):
        assert schema(each.canonical, *imports(path)).canonical == each.canonical, "printing is idempotent"
    again = schema(written.formatted("serialized"), *imports(path))
    assert again.normalized().canonical == written.normalized().canonical


EVERYTHING = """syntax = "proto2";
package a.b;

import "google/protobuf/timestamp.proto";
import public "google/type/money.proto";

option java_package = "x.y";
option (my_file) = { name: "n" values: [1, 2] };

message Outer {
  reserved 100 to 110;
  reserved 200 to max;
  reserved "old";

  option deprecated = true;

  required int32 a = 1 [default = -5];
  repeated string b = 2 [json_name = "bee"];
  optional bytes c = 3 [default = "\\000\\377"];
  map<string, Inner> m = 4;
  optional double d = 5 [default = inf];
  optional group Result = 6 {
    optional string url = 7;
  }
  optional .a.b.Color color = 8 [default = RED, deprecated = true];
  repeated int32 packed = 12 [packed = true];

  oneof choice {
    string one = 9;
    google.protobuf.Timestamp two = 10;
  }

  extensions 20 to 29;

  extend Outer {
    optional int32 inner_extension = 21;
  }

  message Inner {}
}
enum Color {
  reserved 5;
  reserved "OLD";
  option allow_alias = true;
  RED = 0;
  ROUGE = 0;
  NEGATIVE = -1;
}

extend Outer {
  optional int32 top = 20;
}

service Search {
  option deprecated = true;

  rpc Find (Outer) returns (stream Outer) {
    option idempotency_level = IDEMPOTENT;
  }
  rpc Send (stream Outer) returns (Outer);
}
"""


def test_sr05_the_text_of_everything_is_kept() -> None:
    assert schema(EVERYTHING).canonical == EVERYTHING
    assert schema(EVERYTHING).name == "a.b.Outer"
    noise = EVERYTHING.replace("message", "/* words */ message", 1).replace(";\n", " ;  // more\n\n")
    assert schema(noise).canonical == EVERYTHING


def test_sr05_proto3_optional_and_editions() -> None:
    three = 'syntax = "proto3";\n\nmessage M {\n  optional int32 a = 1;\n  string b = 2;\n  repeated M c = 3;\n}\n'
    assert schema(three).canonical == three
    file = pb.FileDescriptorProto.FromString(base64.b64decode(schema(three).formatted("serialized")))
    assert file.message_type[0].oneof_decl[0].name == "_a"
    edition = (
        'edition = "2023";\n\noption features.field_presence = IMPLICIT;\n\nmessage M {\n  reserved old;\n\n  int32 a = 1;\n}\n'
    )
    assert schema(edition).canonical == edition


def test_sr05_what_clients_send_and_ask_for() -> None:
    """confluent-kafka-python registers a descriptor in base64, looks it up, and asks for `format=serialized`."""
    file = pb.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=pb.FieldDescriptorProto.TYPE_INT64, label=pb.FieldDescriptorProto.LABEL_OPTIONAL)
    sent = base64.b64encode(file.SerializeToString()).decode()
    registered = schema(sent)
    assert registered.canonical == 'syntax = "proto3";\npackage shop;\n\nmessage Order {\n  int64 id = 1;\n}\n'
    assert registered.same_as(schema(sent))
    assert registered.same_as(schema(registered.canonical))
    assert registered.same_as(schema(registered.formatted("serialized")))


def test_sr05_normalized_is_one_for_names_written_in_two_ways() -> None:
    one = 'syntax = "proto3"; package p; message B { A a = 2; int32 x = 1; } message A {}'
    other = 'syntax = "proto3"; package p; message B { int32 x = 1; .p.A a = 2; } message A {}'
    assert schema(one).canonical != schema(other).canonical
    assert schema(one).normalized().canonical == schema(other).normalized().canonical
    assert ".p.A a = 2;" in schema(one).normalized().canonical


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "defines nothing"),
        ("message M {", "found 'the end'"),
        ('syntax = "proto4";', "neither proto2 nor proto3"),
        ('syntax = "proto3"; message M { int32 a = 0; }', "0 is not between"),
        ('syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }', "(?i)number 1|already|duplicate"),
        ('syntax = "proto3"; message M { Unknown a = 1; }', "Unknown"),
        ('syntax = "proto3"; message M {} message M {}', "(?i)M|duplicate"),
        ('syntax = "proto3"; import "gone.proto";', "neither a reference"),
        ('syntax = "proto3"; message M { int32 a = 1', "found 'the end'"),
        ('syntax = "proto3"; option unknown = 1;', "no option of a file"),
        ("syntax = proto3;", "expected a string"),
        ("message M { int32 a = 1; }", "expected optional, required or repeated"),
        ("@", "no Protobuf"),
    ],
)
def test_an_invalid_schema_says_why(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        schema(text)


def test_sr07_imports_are_references_or_built_in() -> None:
    paths = ("confluent/meta.proto", "confluent/type/decimal.proto", "google/type/date.proto")
    known = 'syntax = "proto3"; ' + " ".join(f'import "{each}";' for each in paths)
    text = (
        known
        + ' message M { string a = 1 [(confluent.field_meta).doc = "d"]; confluent.type.Decimal d = 2; google.type.Date e = 3; }'
    )
    assert '[(confluent.field_meta).doc = "d"]' in schema(text).canonical
    inner = ResolvedReference("inner.proto", "inner", 1, 'syntax = "proto3"; package i; message I {}', direct=False)
    outer = ResolvedReference("outer.proto", "outer", 1, 'syntax = "proto3"; import public "inner.proto";')
    used = schema('syntax = "proto3"; import "outer.proto"; message M { i.I i = 1; }', inner, outer)
    assert [each.name for each in used.references] == ["outer.proto"]


def test_sr07_imports_that_go_round_are_refused() -> None:
    one = ResolvedReference("one.proto", "one", 1, 'syntax = "proto3"; import "two.proto";')
    two = ResolvedReference("two.proto", "two", 1, 'syntax = "proto3"; import "one.proto";')
    with pytest.raises(InvalidSchema, match="go round"):
        schema('syntax = "proto3"; import "one.proto";', one, two)


def test_sr11_limits() -> None:
    with pytest.raises(SchemaTooLarge):
        schema("//" + "x" * (1 << 20))
    for deep in ("message M {" * 150 + "}" * 150, "option (a) = " + "{ a: " * 200, "message M {" * 20_000):
        with pytest.raises(InvalidSchema, match="deeper"):
            schema('syntax = "proto3";' + deep)
    file = pb.FileDescriptorProto(name="deep", syntax="proto3")
    message = file.message_type.add(name="M")
    for _ in range(50):
        message = message.nested_type.add(name="M")
    schema(base64.b64encode(file.SerializeToString()).decode())
