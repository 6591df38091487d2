"""The registry of planted bugs, and how one is planted.

Owns: what a bug is, the table of all of them, and `planted`, which puts one into the product and takes it out again.
Never part of the product: there is no switch in it, and outside of `planted` everything is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from ottla.records import batch

Patch = tuple[Any, str, Any]
"""(class or module, attribute, replacement)"""


@dataclass(frozen=True, slots=True)
class Bug:
    summary: str
    world: str
    """The world in which it is looked for: a key of `run.WORLDS`."""
    seeds: range
    """It must be caught by one of these."""
    patches: Callable[[], list[Patch]]


BUGS: Final[dict[str, Bug]] = {}

IS_COMPILED: Final = not str(batch.__file__).endswith(".py")
"""Nothing can be planted in a compiled tree: a compiled class keeps the methods it has. `make bugs` runs the sources."""


def bug(
    summary: str, *, world: str, seeds_max: int, first: int = 1
) -> Callable[[Callable[[], list[Patch]]], Callable[[], list[Patch]]]:
    """Register a function that returns patches as a bug of the same name.

    `first`: the first seed to try, where earlier ones take long and catch nothing sooner.
    """

    def add(patches: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
        BUGS[patches.__name__.replace("_", "-")] = Bug(summary, world, range(first, seeds_max + 1), patches)
        return patches

    return add


def _owner(owner: Any, attribute: str) -> Any:
    """The class that defines an attribute: the given one, or one that it inherits from."""
    return next((each for each in getattr(owner, "__mro__", ()) if attribute in each.__dict__), owner)


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The product has this bug inside the block."""
    patches = [(_owner(owner, attribute), attribute, instead) for owner, attribute, instead in BUGS[name].patches()]
    before = [(owner, attribute, owner.__dict__[attribute]) for owner, attribute, _ in patches]
    try:
        for owner, attribute, instead in patches:
            setattr(owner, attribute, instead)
        yield
    finally:
        for owner, attribute, original in before:
            setattr(owner, attribute, original)
