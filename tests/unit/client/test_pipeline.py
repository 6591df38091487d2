"""Correlation without a socket."""

from __future__ import annotations

import pytest

from ottla.client.pipeline import Pipeline
from ottla.errors import ErrorCode, MalformedInput
from ottla.ports import FileRange, Part
from ottla.protocol.headers import encode_response
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.registry import API_BY_NAME

API_VERSIONS, LIST_OFFSETS = API_BY_NAME["api_versions"], API_BY_NAME["list_offsets"]


def joined(parts: list[Part]) -> bytes:
    return b"".join(part for part in parts if not isinstance(part, FileRange))


def test_responses_find_their_requests_however_the_bytes_are_cut() -> None:
    pipeline = Pipeline("me")
    first, _ = pipeline.request(LIST_OFFSETS, 5, ListOffsetsRequest())
    second, _ = pipeline.request(API_VERSIONS, 3, ApiVersionsRequest())
    stream = joined(encode_response(LIST_OFFSETS, 5, first, ListOffsetsResponse(throttle_time_ms=7)))
    stream += joined(encode_response(API_VERSIONS, 3, second, ApiVersionsResponse(throttle_time_ms=8)))
    found: list[tuple[int, object]] = []
    for position in range(len(stream)):
        found += pipeline.receive(stream[position : position + 1])
    assert found == [(first, ListOffsetsResponse(throttle_time_ms=7)), (second, ApiVersionsResponse(throttle_time_ms=8))]
    assert len(pipeline) == 0


def test_a_request_without_reply_is_not_waited_for() -> None:
    pipeline = Pipeline("me")
    pipeline.request(LIST_OFFSETS, 5, ListOffsetsRequest(), expect_reply=False)
    assert len(pipeline) == 0


def test_w02_the_refusal_of_an_api_versions_request_is_read_in_version_0() -> None:
    pipeline = Pipeline("me")
    correlation_id, _ = pipeline.request(API_VERSIONS, 4, ApiVersionsRequest())
    refusal = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=3)]
    )
    [(_, response)] = pipeline.receive(joined(encode_response(API_VERSIONS, 0, correlation_id, refusal)))
    assert response == refusal


@pytest.mark.parametrize("prefix", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff"])
def test_an_impossible_length_is_malformed(prefix: bytes) -> None:
    pipeline = Pipeline("me")
    pipeline.request(LIST_OFFSETS, 5, ListOffsetsRequest())
    with pytest.raises(MalformedInput):
        pipeline.receive(prefix)


def test_a_response_out_of_order_or_unasked_is_malformed() -> None:
    pipeline = Pipeline("me")
    answer = joined(encode_response(LIST_OFFSETS, 5, 99, ListOffsetsResponse()))
    with pytest.raises(MalformedInput, match="without a request"):
        pipeline.receive(answer)
    pipeline = Pipeline("me")
    pipeline.request(LIST_OFFSETS, 5, ListOffsetsRequest())
    with pytest.raises(MalformedInput, match="request 99"):
        pipeline.receive(answer)
