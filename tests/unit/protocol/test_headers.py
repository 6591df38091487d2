"""Headers and frames, the broker's side and a client's (W02: ApiVersions of an unknown version; hostile headers)."""

from __future__ import annotations

import pytest

from ottla.errors import MalformedInput
from ottla.ports import File, FileRange
from ottla.protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.registry import API_BY_NAME


def _header(data: str) -> tuple[RequestHeader, int]:
    return decode_request_header(memoryview(bytes.fromhex(data)))


def test_header_version_1() -> None:
    assert _header("0003 0001 0000002a 0002 6d65 ffff") == (RequestHeader(3, 1, 42, "me"), 12)


def test_header_version_2_has_tagged_fields_after_a_plain_client_id() -> None:
    assert _header("0003 0009 0000002a 0002 6d65 00 ffff") == (RequestHeader(3, 9, 42, "me"), 13)
    assert _header("0003 0009 0000002a 0002 6d65 01 07 01 aa ffff") == (RequestHeader(3, 9, 42, "me"), 16)


def test_a_client_id_may_be_null() -> None:
    assert _header("0003 0001 0000002a ffff") == (RequestHeader(3, 1, 42, None), 10)


def test_an_unknown_api_is_read_with_header_version_1() -> None:
    assert _header("7fff 0009 0000002a 0002 6d65") == (RequestHeader(0x7FFF, 9, 42, "me"), 12)


def test_api_versions_of_an_unknown_version_is_still_read() -> None:
    assert _header("0012 0063 0000002a 0002 6d65 00 03 61 62") == (RequestHeader(18, 99, 42, "me"), 13)


def test_controlled_shutdown_0_has_no_client_id() -> None:
    assert _header("0007 0000 0000002a") == (RequestHeader(7, 0, 42, None), 8)
    assert _header("0007 0000 0000002a 00000001") == (RequestHeader(7, 0, 42, None), 8)


@pytest.mark.parametrize(
    "data",
    [
        "",
        "0003",
        "0003 0001 0000002a",
        "0003 0001 0000002a 00",
        "0003 0001 0000002a 7fff 6d65",
        "0003 0001 0000002a 0002 c328",
        "0003 0009 0000002a 0002 6d65",
        "0003 0009 0000002a 0002 6d65 01",
        "0003 0009 0000002a 0002 6d65 ffffffff0f",
        "0003 0009 0000002a 0002 6d65 02 0100 0000",
    ],
)
def test_hostile_headers_are_refused(data: str) -> None:
    with pytest.raises(MalformedInput):
        _header(data)


def test_a_request_is_read_as_it_was_written() -> None:
    api = API_BY_NAME["metadata"]
    for version in range(api.min_version, api.max_version + 1):
        for client_id in (None, "", "ž"):
            (frame,) = encode_request(api, version, -5, client_id, MetadataRequest())
            assert not isinstance(frame, FileRange)
            assert int.from_bytes(frame[:4], "big") == len(frame) - 4
            header, _ = decode_request_header(memoryview(frame)[4:])
            assert header == RequestHeader(3, version, -5, client_id)


def test_the_answer_to_api_versions_has_header_version_0_in_all_versions() -> None:
    api = API_BY_NAME["api_versions"]
    response = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])
    for version in range(api.max_version + 1):
        (frame,) = encode_response(api, version, 9, response)
        assert not isinstance(frame, FileRange)
        assert frame[:8] == (len(frame) - 4).to_bytes(4, "big") + (9).to_bytes(4, "big")
        assert frame[8:10] == b"\x00\x23"
        assert decode_response(api, version, memoryview(frame)[4:]) == (9, response)


class _Pretended(File):
    path = "pretended"


def test_a_fetch_response_keeps_its_file_ranges() -> None:
    api = API_BY_NAME["fetch"]
    ranges = [FileRange(_Pretended(), 0, 1000), FileRange(_Pretended(), 5, 70)]  # type: ignore[abstract]
    partitions = [PartitionData(partition_index=index, records=part) for index, part in enumerate(ranges)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    parts = encode_response(api, 12, 3, response)
    assert [part for part in parts if isinstance(part, FileRange)] == ranges
    assert len(parts) == 5
    first = parts[0]
    assert not isinstance(first, FileRange)
    size = sum(part.size if isinstance(part, FileRange) else len(part) for part in parts)
    assert int.from_bytes(first[:4], "big") == size - 4


def test_a_response_with_bytes_left_over_is_refused() -> None:
    api = API_BY_NAME["api_versions"]
    (frame,) = encode_response(api, 0, 9, ApiVersionsResponse())
    assert not isinstance(frame, FileRange)
    with pytest.raises(MalformedInput):
        decode_response(api, 0, memoryview(bytes(frame) + b"\0")[4:])
    for end in range(4, len(frame)):
        with pytest.raises(MalformedInput):
            decode_response(api, 0, memoryview(frame)[4:end])


def test_a_request_of_defaults_is_small() -> None:
    (frame,) = encode_request(API_BY_NAME["api_versions"], 3, 1, None, ApiVersionsRequest())
    assert bytes(frame).hex() == "0000000e" + "00120003" + "00000001" + "ffff" + "00" + "0101" + "00"  # type: ignore[arg-type]
