"""Avro schemas, with the rules, the text and the verdicts of Avro's own library for Java.

| module | owns |
|---|---|
| `nodes` | the parts of a schema |
| `parser` | JSON to nodes, names and defaults checked |
| `printer` | nodes to JSON, and the normal form |
| `compatibility` | what a reader's schema cannot read |
| `avro_schema` | the schema as the registry handles it |
"""
