"""Reports invalid settings: all problems at once, each with the name, the reason and what is allowed."""

from __future__ import annotations

from collections.abc import Iterable


class SettingsError(ValueError):
    """Invalid settings. `problems` has one sentence for each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(self.problems))


def unknown_name(name: str, known: Iterable[str], what: str = "setting") -> str:
    """The problem of an unknown name, with the closest known one."""
    import difflib  # not needed by a broker that starts

    shown = name if len(name) <= 120 else name[:120] + "…"
    near = difflib.get_close_matches(name[:120], list(known), n=1, cutoff=0.6)
    return f"unknown {what} {shown}" + (f"; did you mean {near[0]}?" if near else "")
