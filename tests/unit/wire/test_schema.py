"""Definitions: ranges of versions, defaults, and mistakes noticed where they are made."""

from __future__ import annotations

import pytest

from ottla.wire.schema import NO_VERSIONS, Versions, definition_of, message, versions_of, wire


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3+", [3, 400], [2, -1]), ("2-5", [2, 5], [1, 6]), ("4", [4], [3, 5]), ("none", [], [0, 1, -1])],
)
def test_ranges_of_versions(text: str, inside: list[int], outside: list[int]) -> None:
    versions = versions_of(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


def test_a_definition_keeps_what_was_said() -> None:
    @message(versions="1-4", flexible="3+")
    class Said:
        text: str | None = wire("string", "2+", nullable="3+", tag=4, tagged="3+", default=None, ignorable=True)

    definition = definition_of(Said)
    assert definition.versions == Versions(1, 4)
    (field,) = definition.fields
    assert (field.name, field.tag, field.ignorable, field.default) == ("text", 4, True, None)
    assert 2 in field.versions
    assert 2 not in field.tagged
    assert 2 not in field.nullable


def test_a_field_without_tag_is_tagged_in_no_version() -> None:
    @message(versions="0")
    class Untagged:
        number: int = wire("int32")

    assert definition_of(Untagged).fields[0].tagged == NO_VERSIONS


def test_an_unknown_type_is_an_error() -> None:
    with pytest.raises(ValueError, match="int31"):
        wire("int31")
    with pytest.raises(ValueError, match="strings"):
        wire("[]strings")


def test_only_messages_have_definitions() -> None:
    with pytest.raises(TypeError):
        definition_of(int)
