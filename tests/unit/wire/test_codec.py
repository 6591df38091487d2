"""The generated encoders and decoders, on messages of our own: types, versions, nulls, tags, parts, and all that is refused."""

from __future__ import annotations

import pytest

from ottla.errors import MalformedInput
from ottla.ports import File, FileRange, Part
from ottla.types import ZERO_UUID, Buffer
from ottla.wire.codec import JOIN_BYTES_MAX, decode, decoder, encode, encoder
from ottla.wire.schema import list_of, message, wire


@message()
class Leaf:
    number: int = wire("int32", default=-1)
    text: str = wire("string", "1+", ignorable=True)


@message(versions="0-3", flexible="2+")
class Tree:
    flag: bool = wire("bool")
    small: int = wire("int8")
    short: int = wire("int16")
    port: int = wire("uint16")
    wide: int = wire("int64", "1+", default=-1)
    ratio: float = wire("float64")
    uid: bytes = wire("uuid")
    name: str | None = wire("string", nullable="1+")
    blob: Buffer | None = wire("bytes", nullable="0+")
    numbers: list[int] = wire("[]int32")
    words: list[str] | None = wire("[]string", nullable="0+")
    leaves: list[Leaf] = wire(list_of(Leaf))
    leaf: Leaf = wire(Leaf)
    maybe: Leaf | None = wire(Leaf, "3+", nullable="3+", default=None)
    tagged_leaf: Leaf | None = wire(Leaf, "2+", tag=1, ignorable=True)
    tagged_text: str = wire("string", "2+", tag=0, default="hm", ignorable=True)
    tagged_numbers: list[int] = wire("[]int64", "2+", tag=5, ignorable=True)


@message(versions="0-1", flexible="1+")
class Answer:
    before: int = wire("int32")
    records: Part | list[Part] | None = wire("records", nullable="0+")
    after: int = wire("int32")


@message(versions="0-1", flexible="1+")
class Names:
    name: str = wire("string")


@message()
class Nothing:
    late: int = wire("int32", "9+")


@message(versions="0-9")
class Bomb:
    items: list[Nothing] = wire(list_of(Nothing))


@message(versions="0", flexible="0+")
class Plain:
    pass


def full() -> Tree:
    return Tree(
        flag=True,
        small=-5,
        short=-300,
        port=50000,
        wide=1 << 40,
        ratio=1.5,
        uid=bytes(range(16)),
        name="žluť",
        blob=b"abc",
        numbers=[1, -2, 3],
        words=["a", "", "c" * 200],
        leaves=[Leaf(number=1, text="x"), Leaf(number=2, text="y")],
        leaf=Leaf(number=9, text="z"),
        maybe=Leaf(number=5, text="?"),
        tagged_leaf=Leaf(number=7, text="t"),
        tagged_text="now",
        tagged_numbers=[1, 2],
    )


def test_every_type_comes_back() -> None:
    assert decode(Tree, 3, encode(full(), 3)) == full()


def test_a_field_absent_in_a_version_has_its_default() -> None:
    tree = full()
    tree.wide = -1
    tree.maybe = None
    back = decode(Tree, 0, encode(tree, 0))
    assert (back.wide, back.maybe, back.tagged_leaf, back.tagged_text, back.tagged_numbers) == (-1, None, None, "hm", [])
    assert [leaf.text for leaf in back.leaves] == ["", ""]


def test_defaults_are_not_shared_between_messages() -> None:
    first, second = decode(Tree, 0, encode(Tree(), 0)), decode(Tree, 0, encode(Tree(), 0))
    first.tagged_numbers.append(1)
    assert second.tagged_numbers == []
    assert Tree().leaf is not Tree().leaf


def test_a_value_the_version_cannot_carry_is_an_error_unless_ignorable() -> None:
    with pytest.raises(ValueError, match="wide"):
        encode(Tree(wide=5), 0)
    with pytest.raises(ValueError, match="maybe"):
        encode(Tree(maybe=Leaf()), 2)
    assert encode(Tree(tagged_text="ignored"), 1) == encode(Tree(), 1)


def test_a_version_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="no version 4"):
        encoder(Tree, 4)
    with pytest.raises(TypeError):
        decoder(Leaf, 0)


def test_known_bytes_plain_and_flexible() -> None:
    assert encode(Names(name="ab"), 0).hex() == "00026162"
    assert encode(Names(name="ab"), 1).hex() == "03616200"
    assert encode(Names(name="a" * 127), 1)[:2].hex() == "8001"
    assert encode(Plain(), 0) == b"\x00"


def test_bytes_come_back_as_slices_of_the_buffer() -> None:
    data = bytearray(encode(Tree(blob=b"abc"), 0))
    blob = decode(Tree, 0, data).blob
    assert isinstance(blob, memoryview)
    data[data.index(b"abc")] = ord("x")
    assert blob == b"xbc"


def test_a_message_may_stand_in_the_middle_of_a_buffer() -> None:
    data = b"??" + encode(Names(name="ab"), 0) + b"!!"
    assert decoder(Names, 0)(data, 2) == (Names(name="ab"), 6)


class _Pretended(File):
    path = "pretended"

    def read(self, position: int, count: int) -> bytes:
        return bytes([position]) * count


@pytest.mark.parametrize("version", [0, 1])
def test_file_ranges_and_lists_of_parts_pass_as_they_are(version: int) -> None:
    in_file = FileRange(_Pretended(), 7, 3)  # type: ignore[abstract]
    big = b"B" * (JOIN_BYTES_MAX + 1)
    parts: list[Part] = []
    encoder(Answer, version)(Answer(before=1, records=[in_file, b"small", big], after=2), parts)
    assert [type(part) for part in parts] == [bytearray, FileRange, bytearray, bytes, bytearray]
    assert parts[1] is in_file
    assert parts[3] is big
    answer = Answer(before=1, records=[in_file, b"small", big], after=2)
    expected = Answer(before=1, records=b"\x07\x07\x07small" + big, after=2)
    assert encode(answer, version) == encode(expected, version)
    assert decode(Answer, version, encode(answer, version)) == expected


def test_small_records_stay_in_one_part() -> None:
    for records in (None, b"", b"some", FileRange(_Pretended(), 0, 0), [], [b"so", b"me"]):  # type: ignore[abstract]
        parts: list[Part] = []
        encoder(Answer, 1)(Answer(records=records), parts)  # type: ignore[arg-type]
        assert len(parts) == 1, records


def test_a_tagged_part_equal_to_its_default_is_not_sent() -> None:
    assert encode(Tree(tagged_leaf=Leaf()), 2) == encode(Tree(), 2)


def test_unknown_tagged_fields_are_stepped_over() -> None:
    assert decode(Names, 1, bytes.fromhex("026102" + "0003aabbcc" + "0a00")) == Names(name="a")
    data = encode(Tree(), 2)
    assert data[-1] == 0
    newer = data[:-1] + bytes.fromhex("03") + bytes.fromhex("0003036f6b") + bytes.fromhex("0400") + bytes.fromhex("c80102ffff")
    assert decode(Tree, 2, newer).tagged_text == "ok"


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        pytest.param(Names, 0, "", id="nothing"),
        pytest.param(Names, 0, "00", id="half a length"),
        pytest.param(Names, 0, "000261", id="a string cut short"),
        pytest.param(Names, 0, "7fff61", id="a string longer than all"),
        pytest.param(Names, 0, "ffff", id="null where none may be"),
        pytest.param(Names, 0, "0002c328", id="not UTF-8"),
        pytest.param(Names, 0, "0003eda080", id="a lone surrogate"),
        pytest.param(Names, 1, "00", id="compact null where none may be"),
        pytest.param(Names, 1, "0361", id="a compact string cut short"),
        pytest.param(Names, 1, "0261", id="no tagged fields at all"),
        pytest.param(Names, 1, "818002" + "61" * 32768 + "00", id="a compact string longer than strings may be"),
        pytest.param(Names, 1, "ffffffff0f", id="a length of 4 GB"),
        pytest.param(Names, 1, "ffffffff1f", id="a length of 33 bits"),
        pytest.param(Names, 1, "808080808001", id="a length of six bytes"),
        pytest.param(Names, 1, "0261" + "ffffffff0f", id="4 billion tagged fields"),
        pytest.param(
            Names, 1, "0261" + "8108" + "".join(f"{128 | n & 127:02x}{n >> 7:02x}00" for n in range(1025)), id="1025 tags"
        ),
        pytest.param(Names, 1, "0261" + "01" + "0005aa", id="a tagged field cut short"),
        pytest.param(Names, 1, "0261" + "02" + "0100" + "0000", id="tags out of order"),
        pytest.param(Names, 1, "0261" + "02" + "0000" + "0000", id="a tag twice"),
        pytest.param(Bomb, 0, "7fffffff", id="2 billion elements without a size"),
        pytest.param(Bomb, 0, "00000005" + "0000", id="more elements than bytes"),
        pytest.param(Bomb, 0, "ffffffff", id="a null array where none may be"),
        pytest.param(Answer, 0, "00000000" + "7fffffff", id="records longer than all"),
        pytest.param(Answer, 1, "00000000" + "ffffffff0f", id="compact records longer than all"),
    ],
)
def test_refused(cls: type, version: int, data: str) -> None:
    # Not by `decode`, whose own look at the end of the buffer would hide a missing check.
    with pytest.raises(MalformedInput):
        decoder(cls, version)(bytes.fromhex(data), 0)


def test_f87_a_bound_counts_the_elements_of_all_arrays_together() -> None:
    data = encode(full(), 3)
    assert decoder(Tree, 3, 10)(data, 0) == (full(), len(data))
    with pytest.raises(MalformedInput, match="tagged_numbers: more than 9 elements"):
        decoder(Tree, 3, 9)(data, 0)


def test_a_byte_too_many_is_refused() -> None:
    with pytest.raises(MalformedInput, match="1 bytes too many"):
        decode(Names, 0, bytes.fromhex("00016100"))


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param("01" + "0004" + "036f6b", id="size larger than the field"),
        pytest.param("01" + "0002" + "036f6b", id="size smaller than the field"),
        pytest.param("02" + "0003036f6b" + "0003036f6b", id="a known tag twice"),
        pytest.param("02" + "0105000000" + "0100" + "0003036f6b", id="known tags out of order"),
        pytest.param("01" + "050a" + "7f" + "00" * 9, id="an array larger than its field"),
        pytest.param("01" + "000100", id="null where none may be"),
    ],
)
def test_refused_tagged_fields(tags: str) -> None:
    with pytest.raises(MalformedInput):
        decoder(Tree, 2)(encode(Tree(), 2)[:-1] + bytes.fromhex(tags), 0)


def test_every_cut_of_a_message_is_refused() -> None:
    for version in range(4):
        tree = full()
        if version < 1:
            tree.wide = -1
        if version < 3:
            tree.maybe = None
        data = encode(tree, version)
        for end in range(len(data)):
            with pytest.raises(MalformedInput):
                decoder(Tree, version)(data[:end], 0)


def test_a_string_too_long_is_not_sent() -> None:
    for version in (0, 1):
        assert len(encode(Names(name="a" * 32767), version)) > 32767
        with pytest.raises(ValueError):
            encode(Names(name="a" * 32768), version)


def test_messages_compare_and_show_their_fields() -> None:
    assert Leaf(number=1) == Leaf(number=1)
    assert Leaf(number=1) != Leaf(number=2)
    assert Leaf(number=1) != Names(name="1")
    assert repr(Leaf(number=1)) == "Leaf(number=1, text='')"
    assert Tree().uid == ZERO_UUID


def test_a_message_takes_no_unknown_field() -> None:
    with pytest.raises(TypeError):
        Leaf(nubmer=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Leaf().nubmer = 1  # type: ignore[attr-defined]
