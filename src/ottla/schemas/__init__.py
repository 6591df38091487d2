"""Schemas of records: Avro, JSON Schema and Protobuf, parsed, printed and compared. A core without I/O, clock or sockets.

| module | owns |
|---|---|
| `model` | references, `ParsedSchema`, `InvalidSchema`, `Incompatibility` |
| `parsing` | `parse`: a schema of any type from its text |
| `compatibility` | levels: which versions are compared, in which direction |
| `work` | the same as functions of plain values, for a worker process with a time limit |
| `framing` | the bytes and headers that name a record's schema |

The rules have numbers in docs/cases.md: SR for all types, AV, JS and PB for one of them, CO for what a verdict promises.
"""
