"""Bytes to values and back.

Knows types and versions, and no message. `schema` has the words in which a message is declared. `source` writes the straight-line
source of a decoder and an encoder. `codec` executes that source on first use; `generate` writes it at build time for the hot
messages, and mypyc compiles it. `varint` and `native` hold what that code calls.

Whatever the bytes, a decoder returns a value or raises `MalformedInput`. A length from the wire is compared with the bytes that
are there before memory is taken.
"""
