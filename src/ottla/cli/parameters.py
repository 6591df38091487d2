"""What typer sees as the parameters of a command: those of a wrapper, and options that commands share as a dataclass."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any

from ottla.cli.failure import C

Added = Mapping[str, tuple[Any, Any]]
"""Name -> annotation and default."""


def own_parameters(command: Any) -> dict[str, inspect.Parameter]:
    """The parameters of a function or dataclass by name, passed by keyword, with types instead of their names."""
    parameters = inspect.signature(command, eval_str=True).parameters
    return {name: each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, each in parameters.items()}


def declare(run: Any, own: Iterable[inspect.Parameter], added: Added | None = None) -> None:
    """Make these the parameters that typer sees of `run`."""
    parameters = [
        *own,
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in (added or {}).items()
        ),
    ]
    run.__signature__ = inspect.Signature(parameters)
    run.__annotations__ = {each.name: each.annotation for each in parameters}


def with_option_groups(command: C) -> C:
    """Decorator: a parameter that is a dataclass stands for options, one for each field."""
    own = own_parameters(command)
    groups = {name: own_parameters(each.annotation) for name, each in own.items() if is_dataclass(each.annotation)}

    @functools.wraps(command)
    def run(**options: Any) -> Any:
        for name, fields in groups.items():
            options[name] = own[name].annotation(**{field: options.pop(field) for field in fields})
        return command(**options)

    declare(run, [part for name, each in own.items() for part in (groups[name].values() if name in groups else (each,))])
    return run  # type: ignore[return-value]
