"""Every message of every version: comes back as it went, and no bytes whatever get more than a value or MalformedInput."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ottla.errors import MalformedInput
from ottla.protocol.registry import Api
from ottla.wire.codec import decode, decoder, encode
from tests.kit.random_messages import every_message, messages, name_of

_QUICK = settings(
    max_examples=3,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)

_HOSTILE = (
    b"",
    b"\x00",
    b"\xff",
    b"\xff" * 5,
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x00\x00\x00",
    b"\xff\xff\x03",
)


def _mutated(data: bytes, chance: random.Random) -> bytes:
    """Something like `data`: cut, overwritten, grown, or with a hostile length in the middle."""
    damaged = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        position = chance.randint(0, len(damaged))
        match chance.randint(0, 3):
            case 0:
                del damaged[position:]
            case 1:
                damaged[position : position + 1] = bytes([chance.randint(0, 255)])
            case 2:
                damaged[position:position] = chance.choice(_HOSTILE)
            case 3:
                piece = chance.choice(_HOSTILE)
                damaged[position : position + len(piece)] = piece
    return bytes(damaged)


@pytest.mark.parametrize("case", every_message(), ids=name_of)
def test_every_version(case: tuple[Api, str, int]) -> None:
    api, kind, version = case
    cls = getattr(api, kind)
    decode_any = decoder(cls, version)

    @_QUICK
    @given(st.data())
    def check(data: st.DataObject) -> None:
        message = data.draw(messages(cls, version))
        written = encode(message, version)
        assert encode(decode(cls, version, written), version) == written
        chance = random.Random(written)
        for _ in range(20):
            damaged = _mutated(written, chance)
            try:
                decoded, position = decode_any(damaged, 0)
            except MalformedInput:
                continue
            assert 0 <= position <= len(damaged)
            assert type(decoded) is cls
            # What was accepted can be said again: no value outside its type has come in.
            decode(cls, version, encode(decoded, version))
        for end in range(0, len(written), max(1, len(written) // 20)):
            with pytest.raises(MalformedInput):
                decode_any(written[:end], 0)

    check()
