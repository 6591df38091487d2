"""Topic ids and cluster ids: 16 bytes, as text 22 characters of URL-safe base64, as in Kafka."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

from ottla.ports import Random
from ottla.types import ZERO_UUID

_RESERVED: Final = (ZERO_UUID, bytes(15) + b"\x01")
"""Kafka uses these for "no id" and for its metadata topic."""


def uuid_text(uuid: bytes) -> str:
    assert len(uuid) == 16, uuid
    return urlsafe_b64encode(uuid).decode("ascii")[:22]


def uuid_bytes(text: str) -> bytes:
    """The id of a text; ValueError if it is none."""
    if len(text) != 22:
        raise ValueError(f"{text!r} is not an id: 22 characters are needed")
    try:
        return urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not an id: {error}") from None


def new_uuid(random: Random) -> bytes:
    """A random id (version 4) whose text does not begin with a dash, which a command line would parse as an option."""
    while True:
        raw = bytearray(random.bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        uuid = bytes(raw)
        if uuid not in _RESERVED and not uuid_text(uuid).startswith("-"):
            return uuid
