"""Encodes UpdateMetadata for many brokers: the requests differ only in the broker epoch.

Each content is encoded once for each version: a thousand brokers cost little more than one.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import Final

from ottla.protocol.headers import EncodedRequest
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.wire.codec import encode

_BROKER_EPOCH_FROM: Final = 5
_KRAFT_FROM: Final = 8
"""The version that has `is_kraft_controller` and `type`."""
_CONTENTS_KEPT: Final = 2
"""New brokers are sent everything, the others what changed."""


class UpdateMetadataEncodings:
    def __init__(self) -> None:
        self._recent: deque[tuple[UpdateMetadataRequest, int, bytes]] = deque(maxlen=_CONTENTS_KEPT)

    def encoded(self, request: UpdateMetadataRequest, version: int) -> EncodedRequest:
        body = self._body(request, version)
        if version < _BROKER_EPOCH_FROM:
            return EncodedRequest(body)
        # The broker epoch follows the controller id, `is_kraft_controller` (from version 8 on) and the controller epoch.
        at = 9 if version >= _KRAFT_FROM else 8
        return EncodedRequest(body[:at] + request.broker_epoch.to_bytes(8, "big", signed=True) + body[at + 8 :])

    def _body(self, request: UpdateMetadataRequest, version: int) -> bytes:
        """Encoded with the broker epoch of any broker."""
        for known, known_version, body in self._recent:
            # `control_requests_between` gives all brokers the same lists.
            if (
                known.topic_states is request.topic_states
                and known.live_brokers is request.live_brokers
                and known_version == version
                and (known.controller_id, known.controller_epoch) == (request.controller_id, request.controller_epoch)
            ):
                return body
        sent = request
        if version < _KRAFT_FROM and request.type:
            sent = copy(request)
            sent.type = 0
        body = encode(sent, version)
        self._recent.append((request, version, body))
        return body
