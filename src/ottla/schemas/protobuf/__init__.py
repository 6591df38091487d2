"""Protobuf schemas: proto2, proto3 and editions, as text or as a FileDescriptorProto in base64.

| module | owns |
|---|---|
| `tokens` | words, numbers and strings of a .proto file |
| `parser` | text to a FileDescriptorProto, names as written |
| `options` | options of the language, and custom ones |
| `printer` | a FileDescriptorProto to the one canonical text |
| `builtin` | imports that need no reference |
| `linking` | names resolved, by protobuf's own library |
| `compatibility` | PB01-PB04 |
| `protobuf_schema` | the schema as the registry handles it |
"""
