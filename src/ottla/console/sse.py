"""Server-sent events: the form of an event, and responses that end their work when the client goes away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Final

from starlette.responses import StreamingResponse

KEEP_OPEN_S: Final = 10.0
EVENT_S: Final = 0.25
"""Between two events of one stream."""

Event = tuple[str, Any]
"""Its name and document."""


def event_text(event: Event) -> str:
    name, document = event
    return f"event: {name}\ndata: {json.dumps(document, ensure_ascii=True, separators=(',', ':'))}\n\n"


async def _texts(events: AsyncIterator[Event]) -> AsyncIterator[str]:
    """The events, with comments while there are none: a proxy would close a silent connection."""
    following: asyncio.Future[Event] | None = None
    try:
        while True:
            if following is None:
                following = asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait([following], timeout=KEEP_OPEN_S)
            if not done:
                yield ": here\n\n"
                continue
            ready, following = following, None
            try:
                yield event_text(ready.result())
            except StopAsyncIteration:
                return
    finally:
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


def event_stream(events: AsyncIterator[Event]) -> StreamingResponse:
    # `no-transform`: a proxy that compresses would hold events back.
    headers = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}
    return StreamingResponse(_texts(events), media_type="text/event-stream", headers=headers)
