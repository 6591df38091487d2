"""What a role may do with the records of some topics, beside what the endpoint asks for.

1. Topics in which brokers and Ottla keep their state are written by admins only: a record there is a command, or a change of it.
2. The topic of the audit is read by admins only, as its page is.
3. Records go only to topics in which all is hidden that is hidden where they come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.cli.console.settings import Role
from ottla.cli.failure import Failure

if TYPE_CHECKING:
    from ottla.console.console import Console
    from ottla.console.endpoint import Call

_SCHEMAS: Final = "_schemas"
"""Where registries keep their schemas, unless they were told another topic."""


def may_write(call: Call, topic: str) -> bool:
    return call.session.role >= Role.ADMIN or not topic.startswith(("__", _SCHEMAS))


def check_write(call: Call, topic: str) -> None:
    if not may_write(call, topic):
        raise Failure(
            f"the role {call.session.role.word} may not write topic {topic}", "it takes the role admin", code="FORBIDDEN"
        )


def check_read(console: Console, call: Call, *topics: str) -> None:
    if console.settings.audit_topic in topics and call.session.role < Role.ADMIN:
        raise Failure(f"the role {call.session.role.word} may not read the audit", "it takes the role admin", code="FORBIDDEN")


def check_copy(console: Console, topic: str, to: str) -> None:
    if not console.masks.hide_in(topic, to):
        raise Failure(f"topic {to} would show what is hidden in {topic}", "see --mask of the console", code="FORBIDDEN")
