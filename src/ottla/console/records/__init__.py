"""Records for people: `datum` finds the format of bytes (`msgpack` and `internal` are two of them), `masks` hides fields,
`documents` puts a record together. `plan` is what a request asks for, `search` reads it, `tail` follows the end, `continuing` is
where a search goes on, `histogram` counts without reading, `export` streams all that match, `snippets` writes the same in other
languages, `stream` connects threads that read with streams of events."""
