"""Amounts as people type them: `10MB`, `1KiB`, `1Gbit`, `5000`. Pure."""

from __future__ import annotations

import re

from ottla.cli.failure import EXIT_USAGE, Failure

_AMOUNT = re.compile(r"(\d[\d_,]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)")
_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50}


def parse_bytes(text: str, option: str) -> float:
    """`1KB` is 1000 bytes, `1KiB` 1024, `1Kbit` 125, and `1` one byte."""
    match = _AMOUNT.fullmatch(text.strip().removesuffix("/s").removesuffix("ps"))
    if match is not None:
        number, unit = float(re.sub("[_,]", "", match[1])), match[2]
        lower = unit.lower()
        per_byte = 1.0
        if lower.endswith("bit"):
            lower, per_byte = lower.removesuffix("bit"), 8.0
        elif unit.endswith("b") and len(unit) == 2:
            # Mb is megabit to network people and megabyte to others.
            raise Failure(
                f"{option} {text!r} is ambiguous", f"write {unit[0]}B for bytes or {unit[0]}bit for bits", exit_code=EXIT_USAGE
            )
        else:
            lower = lower.removesuffix("b")
        factor = _PREFIXES.get(lower) or _BINARY.get(lower)
        if factor is not None:
            return number * factor / per_byte
    raise Failure(f"{option} {text!r} is not an amount of data", "write 500, 10MB, 4KiB or 1Gbit", exit_code=EXIT_USAGE)


def bytes_text(count: float) -> str:
    """`2.31 TB`, in powers of 1000 as disks are sold."""
    return _text(count, ("B", "KB", "MB", "GB", "TB", "PB"))


def bits_text(bytes_per_s: float) -> str:
    """`233 Mbit/s`, of bytes a second."""
    return _text(bytes_per_s * 8, ("bit/s", "Kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"))


def _text(amount: float, units: tuple[str, ...]) -> str:
    for unit in units:
        # Three digits: 999.6 would become 1000.
        if float(f"{amount:.3g}") < 1000 or unit == units[-1]:
            return f"{amount:.3g} {unit}" if amount < 1000 else f"{amount:,.0f} {unit}"
        amount /= 1000
    raise AssertionError
