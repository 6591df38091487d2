"""The error codes in a response, of its own and of each topic, partition or group it lists."""

from __future__ import annotations

from typing import Any

from ottla.wire.schema import ListOf, definition_of


class ErrorCodes:
    """Where a message of one class has error codes."""

    def __init__(self, has_code: bool, lists: list[tuple[str, ErrorCodes]]) -> None:
        self._has_code = has_code
        self._lists = lists

    @property
    def any(self) -> bool:
        return self._has_code or bool(self._lists)

    def count(self, message: Any, failures: dict[int, int]) -> int:
        """Returns how many codes are 0, and adds the others to `failures`."""
        good = 0
        if self._has_code:
            code: int = message.error_code
            if code == 0:
                good = 1
            else:
                failures[code] = failures.get(code, 0) + 1
        for name, codes in self._lists:
            for element in getattr(message, name) or ():
                good += codes.count(element, failures)
        return good


def error_codes_of(message: type) -> ErrorCodes:
    has_code = False
    lists: list[tuple[str, ErrorCodes]] = []
    for field in definition_of(message).fields:
        if field.name == "error_code":
            has_code = True
        elif isinstance(field.type, ListOf) and isinstance(field.type.element, type):
            codes = error_codes_of(field.type.element)
            if codes.any:
                lists.append((field.name, codes))
    return ErrorCodes(has_code, lists)
