"""Places in a log as people type them (F32)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ottla.cli.failure import Failure
from ottla.cli.positions import Position, parse_position, parse_time_ms
from ottla.filters.times import duration_ms

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", Position("beginning")),
        ("Earliest", Position("beginning")),
        ("end", Position("end")),
        ("latest", Position("end")),
        ("0", Position("offset", 0)),
        ("120", Position("offset", 120)),
        ("-5", Position("back", 5)),
        ("10m", Position("time", NOW_MS - 600_000)),
        ("1h30m", Position("time", NOW_MS - 5_400_000)),
        ("500ms", Position("time", NOW_MS - 500)),
        ("1.5s", Position("time", NOW_MS - 1500)),
        ("@1699999999999", Position("time", 1_699_999_999_999)),
        ("2023-11-14T22:13:20Z", Position("time", NOW_MS)),
        ("2023-11-14t22:13:20z", Position("time", NOW_MS)),
        ("2023-11-14T23:13:20+01:00", Position("time", NOW_MS)),
        ("2023-11-14 22:13:20Z", Position("time", NOW_MS)),
        ("20231114T221320Z", Position("time", NOW_MS)),
        ("2023-W46-2T22:13:20z", Position("time", NOW_MS)),
        ("20231114", Position("offset", 20_231_114)),
        ("9999999d", Position("time", 0)),
        ("9" * 400 + "d", Position("time", 0)),
    ],
)
def test_a_place_is_understood(text: str, position: Position) -> None:
    assert parse_position(text, NOW_MS) == position


def test_a_time_without_zone_is_local() -> None:
    expected = int(datetime(2024, 5, 1, 10, 0).astimezone().timestamp() * 1000)
    assert parse_time_ms("2024-05-01T10:00", NOW_MS) == expected


def test_a_date_alone_is_its_midnight() -> None:
    local_midnight = datetime(2024, 5, 1).astimezone()
    assert parse_position("2024-05-01", NOW_MS) == Position("time", int(local_midnight.astimezone(UTC).timestamp() * 1000))


@pytest.mark.parametrize(
    "text", ["", "soon", "10", "m", "10x", "@", "@x", "@²", "@9223372036854775808", "2024-13-01", "--5", "1-2", "9" * 5000]
)
def test_what_is_no_duration_or_place(text: str) -> None:
    assert duration_ms(text) is None
    if text != "10":
        with pytest.raises(Failure, match="not a position") as caught:
            parse_position(text, NOW_MS)
        assert caught.value.exit_code == 2
