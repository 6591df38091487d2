"""The one error of this package: what is wrong with an expression, and where."""

from __future__ import annotations

_SHOWN_CHARS = 100


class FilterError(ValueError):
    """An expression that cannot be used. `start` and `end` are the place in its text, in characters."""

    def __init__(self, message: str, text: str, start: int = 0, end: int | None = None, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.text = text
        self.start = min(max(start, 0), len(text))
        self.end = len(text) if end is None else min(max(end, self.start), len(text))
        self.hint = hint

    @property
    def excerpt(self) -> str:
        """The line of the place, with a mark under it."""
        line_start = self.text.rfind("\n", 0, self.start) + 1
        line = self.text[line_start:].partition("\n")[0]
        at = self.start - line_start
        skipped = max(0, at - _SHOWN_CHARS // 2)
        shown = "".join(each if each.isprintable() else " " for each in line[skipped : skipped + _SHOWN_CHARS])
        width = max(1, min(self.end - self.start, len(shown) - (at - skipped)))
        return f"{shown}\n{' ' * (at - skipped)}{'^' * width}"

    def __str__(self) -> str:
        return "\n".join(part for part in (self.message, self.excerpt, self.hint) if part)
