"""What `dispatch` tells about each request as it is answered: to a `Meter` of quotas, or to a `RequestMeasure` of metrics."""

from __future__ import annotations

from typing import Any

from ottla.ports import Part


class RequestObserver:
    """Of one client on one connection and one API. Sees one request after the other."""

    def begin(self, request_bytes: int) -> None:
        """A request begins."""

    def suspend(self) -> None:
        """Its handler waits."""

    def end(self, request: Any, response: Any, error_code: int = 0) -> None:
        """The response is known; None: the request gets none. `error_code`: what failed as a whole."""

    def finish(self, parts: list[Part]) -> list[Part]:
        """The response is encoded as these parts."""
        return parts
