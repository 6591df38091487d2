"""JSON Schema, drafts 4, 6, 7, 2019-09 and 2020-12.

| module | owns |
|---|---|
| `dialects` | the drafts and how they differ |
| `located` | a schema with what its references mean |
| `json_schema` | the schema as the registry handles it; refuses references to elsewhere |
| `compatibility` | whether all that a writer's schema accepts is accepted by the reader's |
| `keywords` | the same for limits, objects and arrays |
"""
