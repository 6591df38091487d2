"""Bytes to values and back.

This room knows types and versions, and no message: `schema` has the words in which a message is written down, `codec` makes an
encoder and a decoder out of them, `varint` holds the numbers of variable length, `big_endian` those of a fixed one.

Whatever the bytes, a decoder returns a value or raises `MalformedInput`; no length read from the wire takes memory before it has
been held against the bytes that are there.
"""
