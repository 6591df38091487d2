"""The parts that a broker gives to its handlers are of the classes that the handlers name."""

from __future__ import annotations

import inspect
import re
from typing import Any

from ottla.broker.handlers import served

PROTOCOLS = {"Clock", "ConfigRequests", "Disk", "Mapping"}


def test_every_handler_gets_parts_of_the_classes_it_names(play: Any) -> None:
    async def case(stage: Any) -> None:
        parts = stage.broker._parts()
        for handler in served(in_cluster=False).values():
            for name, parameter in list(inspect.signature(handler.module.handle).parameters.items())[:-2]:
                if parameter.annotation is inspect.Parameter.empty:
                    continue  # compiled
                wanted = re.match(r"\w+", parameter.annotation)
                assert wanted is not None
                if parts[name] is None and parameter.annotation.endswith("| None"):
                    continue  # such as the authorizer's, which this broker does not have
                known = {each.__name__ for each in type(parts[name]).__mro__} | PROTOCOLS
                assert wanted[0] in known, f"{handler.api.name}: {name} is a {type(parts[name]).__name__}"

    play(case)
