"""Shared by the tests of producer state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import TRANSACTIONAL_BIT, BatchInfo


def data_batch(
    producer_id: int, epoch: int, sequence: int, count: int, *, transactional: bool = False, timestamp: int = 0
) -> BatchInfo:
    attributes = TRANSACTIONAL_BIT if transactional else 0
    return BatchInfo(0, 100, 0, 0, 2, 0, attributes, count - 1, timestamp, timestamp, producer_id, epoch, sequence, count)


def refused(call: Callable[..., object], *arguments: object, **options: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        call(*arguments, **options)
    return refusal.value.code
