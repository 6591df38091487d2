"""How a message is declared.

Owns `message`, `wire`, `list_of`, and the `Definition` they attach to a class. Decorators only build definitions; `codec` and
`generate` make code from them.

One class stands for all versions of a message. A field names the versions it exists in; in other versions it has its default.
Every field has a default, so a message is built by keyword from the fields that matter.

    @message(versions="0-13", flexible="9+")
    class ProduceRequest:
        transactional_id: str | None = wire("string", "3+", nullable="3+", default=None)
        acks: int = wire("int16")
        topic_data: list[TopicProduceData] = wire(list_of(TopicProduceData))

Invariants:
1. Parts of a message (the classes of its fields) take version and flexibility from the message that contains them.
2. A missing tagged struct is None. A part equal to its default is not sent, so None and the default mean the same. A nullable
   tagged struct is always sent, null or not.
3. Encoding a value that the version cannot carry is an error, unless the field is `ignorable`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar, cast, dataclass_transform

from ottla.types import ZERO_UUID

T = TypeVar("T")

SCALARS: Final = frozenset(
    {"bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "string", "bytes", "uuid", "records"}
)


class Versions(NamedTuple):
    """An inclusive range of versions; empty if last < first."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


NO_VERSIONS: Final = Versions(0, -1)
_OPEN_END: Final = 32767


def versions_of(text: str) -> Versions:
    """`3+`, `2-5`, `4` or `none`."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), _OPEN_END)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


@dataclass(frozen=True, slots=True)
class ListOf:
    """The type of an array."""

    element: str | type


Type = str | type | ListOf


class Field(NamedTuple):
    """One attribute on the wire."""

    name: str
    type: Type
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    ignorable: bool
    default: Any


@dataclass(frozen=True, slots=True)
class Definition:
    """A class on the wire. `versions` is None for a part, which has the versions of its message."""

    name: str
    versions: Versions | None
    flexible: Versions
    fields: tuple[Field, ...]


_UNSET: Final = object()
"""No default was given: the default of the type is used."""
_DEFAULTS: Final = {"string": "", "bytes": b"", "records": None, "bool": False, "uuid": ZERO_UUID, "float64": 0.0}


def list_of(element: type | str) -> ListOf:
    """An array of parts or of scalars."""
    return ListOf(element)


def wire(
    type_: Type,
    versions: str = "0+",
    *,
    nullable: str = "none",
    tag: int | None = None,
    tagged: str | None = None,
    default: Any = _UNSET,
    ignorable: bool = False,
) -> Any:
    """One field of a message.

    `nullable` names the versions in which None may be sent. `tag` makes the field a tagged one, in `tagged` versions or in all
    that have it. `ignorable` allows it to be left out silently in versions that do not know it.
    """
    if isinstance(type_, str) and type_.startswith("[]"):
        type_ = ListOf(type_[2:])
    element = type_.element if isinstance(type_, ListOf) else type_
    if isinstance(element, str) and element not in SCALARS:
        raise ValueError(f"no type {element!r}")
    known = versions_of(versions)
    in_tags = NO_VERSIONS if tag is None else versions_of(tagged) if tagged else known
    if default is _UNSET:
        default = None if tag is not None and isinstance(type_, type) else _own_default(type_)
    return Field("", type_, known, versions_of(nullable), tag, in_tags, ignorable, default)


@dataclass(frozen=True, slots=True)
class Fresh:
    """A default that is a new, empty part."""

    cls: type


def _own_default(type_: Type) -> Any:
    if isinstance(type_, ListOf):
        return []
    return Fresh(type_) if isinstance(type_, type) else _DEFAULTS.get(type_, 0)


@dataclass_transform(kw_only_default=True, eq_default=True)
def message(*, versions: str | None = None, flexible: str = "none") -> Callable[[type[T]], type[T]]:
    """Make a class a message, or (without `versions`) a part of messages: slotted, built by keyword, compared by value."""
    known = None if versions is None else versions_of(versions)
    flexible_in = versions_of(flexible)

    def decorate(cls: type[T]) -> type[T]:
        # Like `dataclass`, which would compile three functions per class: a broker imports hundreds of these classes at startup,
        # and decoders make most instances without `__init__`. So `__init__` is compiled at first use.
        body = dict(cls.__dict__)
        fields = tuple(body.pop(name)._replace(name=name) for name in cls.__annotations__)
        for name in ("__dict__", "__weakref__"):
            body.pop(name, None)
        body["__slots__"] = tuple(field.name for field in fields)
        body["__wire__"] = Definition(cls.__name__, known, flexible_in, fields)
        body["__init__"] = _first_init
        body["__repr__"] = message_text
        body["__eq__"] = equal_messages
        body["__hash__"] = None
        return cast("type[T]", type(cls.__name__, cls.__bases__, body))

    return decorate


def definition_of(cls: type) -> Definition:
    found = cls.__dict__.get("__wire__")
    if not isinstance(found, Definition):
        raise TypeError(f"{cls.__name__} is not a message")
    return found


def _first_init(self: Any, **values: Any) -> None:
    cls = type(self)
    cls.__init__ = _compiled_init(definition_of(cls))
    cls.__init__(self, **values)


def _compiled_init(definition: Definition) -> Callable[..., None]:
    scope: dict[str, Any] = {"unset": _UNSET}
    parameters = []
    body = []
    for field in definition.fields:
        name = field.name
        if isinstance(field.default, list | Fresh):
            parameters.append(f"{name}=unset")
            fresh = "[]"
            if isinstance(field.default, Fresh):
                scope[f"new_{name}"] = field.default.cls
                fresh = f"new_{name}()"
            body.append(f"    self.{name} = {fresh} if {name} is unset else {name}")
        else:
            parameters.append(f"{name}={field.default!r}")
            body.append(f"    self.{name} = {name}")
    head = f"def __init__(self{', *, ' if parameters else ''}{', '.join(parameters)}):"
    exec(compile("\n".join([head, *body, "    return"]), f"<{definition.name}>", "exec"), scope)
    made: Callable[..., None] = scope["__init__"]
    return made


def message_text(self: Any) -> str:
    inner = ", ".join(f"{spec.name}={getattr(self, spec.name)!r}" for spec in definition_of(type(self)).fields)
    return f"{type(self).__name__}({inner})"


def equal_messages(self: Any, other: object) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return all(getattr(self, spec.name) == getattr(other, spec.name) for spec in definition_of(type(self)).fields)
