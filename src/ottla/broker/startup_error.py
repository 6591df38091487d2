"""The one error of a start that fails."""

from __future__ import annotations


class StartupError(Exception):
    """Why a broker cannot start, in one sentence for the person who started it."""
