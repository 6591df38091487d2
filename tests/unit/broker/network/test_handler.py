"""A handler gets the collaborators it names, by name."""

from __future__ import annotations

import pytest

from ottla.broker.network.handler import bind


def test_collaborators_are_bound_by_name_before_request_and_context() -> None:
    def handle(purgatory: str, groups: str, request: str, context: str) -> tuple[str, ...]:
        return purgatory, groups, request, context

    bound = bind(handle, {"groups": "G", "purgatory": "P", "unused": "U"})
    assert bound("R", "C") == ("P", "G", "R", "C")


def test_a_handler_without_collaborators_is_called_as_it_is() -> None:
    def handle(request: str, context: str) -> str:
        return request + context

    assert bind(handle, {}) is handle


def test_a_collaborator_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeyError, match="grups"):
        bind(lambda grups, request, context: None, {"groups": "G"})


def test_a_function_that_is_not_a_handler_is_an_error() -> None:
    with pytest.raises(AssertionError, match="request, context"):
        bind(lambda frame, position: None, {})
