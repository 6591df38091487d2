"""Coverage-guided fuzzing of the request header and of every decoder, with atheris.

    python tests/fuzz/fuzz_decoder.py [seconds]

The first byte of an input picks how it is read: as the frame of a request, or (with the next two) as one version of one message.
The seeds are the golden messages. A decoder may return a value, which must then encode and decode again, or raise MalformedInput;
anything else stops the run and leaves the input in a `crash-...` file.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["ottla.wire", "ottla.protocol.headers"]):
    from ottla.protocol.headers import decode_request_header, encode_request
    from ottla.wire.codec import decoder, encode

from ottla.errors import MalformedInput
from ottla.protocol.registry import API_BY_KEY, API_BY_NAME

_GOLDEN = Path(__file__).parents[1] / "golden" / "messages"

_CASES = [
    (getattr(api, kind), version)
    for api in API_BY_KEY.values()
    for kind in ("request", "response")
    for version in range(api.min_version, api.max_version + 1)
]
_INDEX = {case: index for index, case in enumerate(_CASES)}

# Generated functions are instrumented one by one, when first met: all of them at once would take the better part of a minute.
_instrumented: dict[tuple[type, int], Callable[[bytes, int], tuple[Any, int]]] = {}


def _decoder(cls: type, version: int) -> Callable[[bytes, int], tuple[Any, int]]:
    found = _instrumented.get((cls, version))
    if found is None:
        found = _instrumented[cls, version] = atheris.instrument_func(decoder(cls, version))
    return found


def _one_message(cls: type, version: int, data: bytes, start: int) -> None:
    message, position = _decoder(cls, version)(data, start)
    assert start <= position <= len(data)
    written = encode(message, version)
    again, end = _decoder(cls, version)(written, 0)
    assert end == len(written)
    assert encode(again, version) == written


def one_input(data: bytes) -> None:
    try:
        if data[:1] == b"\x00":
            frame = memoryview(data)[1:]
            header, position = decode_request_header(frame)
            api = API_BY_KEY.get(header.api_key)
            if api is not None and api.min_version <= header.api_version <= api.max_version:
                _one_message(api.request, header.api_version, bytes(frame), position)
        elif len(data) >= 3:
            cls, version = _CASES[int.from_bytes(data[1:3], "big") % len(_CASES)]
            _one_message(cls, version, data[3:], 0)
    except MalformedInput:
        pass


def write_seeds(directory: Path) -> None:
    for file in _GOLDEN.glob("*.json"):
        api = API_BY_NAME[file.stem]
        for number, case in enumerate(json.loads(file.read_text())):
            message = bytes.fromhex(case["hex"])
            index = _INDEX[getattr(api, case["kind"]), case["version"]]
            (directory / f"{file.stem}-{number}").write_bytes(b"\x01" + index.to_bytes(2, "big") + message)
        parts = encode_request(api, api.max_version, 1, "fuzz", api.request())
        frame = b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]
        (directory / f"{file.stem}-frame").write_bytes(b"\x00" + frame[4:])


def main(seconds: int = 60) -> None:
    """Fuzz for so long. Ends the process: status 0 if nothing was found."""
    corpus = Path(tempfile.mkdtemp(prefix="ottla-fuzz-"))
    write_seeds(corpus)
    atheris.Setup(
        [sys.argv[0], f"-max_total_time={seconds}", "-max_len=4096", "-rss_limit_mb=1024", "-timeout=5", str(corpus)], one_input
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
