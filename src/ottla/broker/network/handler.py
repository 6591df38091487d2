"""What the dispatcher knows of a handler: the API, its versions, and the function with its collaborators bound."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from ottla.protocol.registry import Api


@dataclass(frozen=True, slots=True)
class Handler:
    """One row of the table of handlers."""

    api: Api
    min_version: int
    max_version: int
    module_name: str
    between_brokers: bool = False
    """Served and advertised only by brokers of a cluster."""

    @property
    def module(self) -> ModuleType:
        return import_module(self.module_name)


def bind(handle: Callable[..., Any], parts: Mapping[str, object]) -> Callable[[Any, Any], Any]:
    """Bind the collaborators that `handle` names before (request, context), positionally, from `parts`.

    A coroutine function compiled by mypyc does not tell its parameters: a compiled handler is a plain function.
    """
    names = list(inspect.signature(handle).parameters)
    assert names[-2:] == ["request", "context"], f"{handle} must end with the parameters (request, context)"
    return partial(handle, *(parts[name] for name in names[:-2])) if len(names) > 2 else handle
