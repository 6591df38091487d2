"""What a console was started with. Plain values, which pass between processes as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any

DEFAULT_LISTEN = "127.0.0.1:8080"
DEFAULT_AUDIT_TOPIC = "__ottla_audit"
_LOOPBACK = ("127.", "::1", "localhost")


class Role(IntEnum):
    """What a user may do. Each includes those below it."""

    VIEWER = 1
    """Reads."""
    EDITOR = 2
    """Also produces, copies, replays, and resets groups."""
    ADMIN = 3
    """Also changes topics, configs, ACLs, users and quotas."""

    @property
    def word(self) -> str:
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> Role:
        """ValueError if there is no such role."""
        try:
            return cls[word.strip().upper()]
        except KeyError:
            raise ValueError(f"{word!r} is none of {', '.join(role.word for role in cls)}") from None


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    bootstrap_servers: str
    properties: dict[str, str] = field(default_factory=dict)
    """Client properties, with their secrets."""
    host: str = "127.0.0.1"
    port: int = 8080
    tokens: dict[str, str] = field(default_factory=dict)
    """The name of a role by token."""
    scram_login: bool = False
    """Users log in as users of the cluster."""
    user_roles: dict[str, str] = field(default_factory=dict)
    """The name of a role by user of the cluster."""
    default_role: str = "viewer"
    """Of users that `user_roles` does not name."""
    read_only: bool = False
    export: bool = True
    masks: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Further host names under which browsers may come."""
    tls_certificate: str | None = None
    tls_key: str | None = None
    audit_topic: str | None = DEFAULT_AUDIT_TOPIC
    profile: str | None = None
    pipelines: tuple[str, ...] = ()
    """Files of pipelines that may be run and reset here."""
    registry: dict[str, str] = field(default_factory=dict)
    """Settings of the schema registry, with their secrets: `url`, `basic.auth.user.info`. Empty if there is none."""

    @property
    def login_required(self) -> bool:
        return bool(self.tokens) or self.scram_login

    @property
    def url(self) -> str:
        host = self.host or "127.0.0.1"
        return f"{'https' if self.tls_certificate else 'http'}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ConsoleSettings:
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, **{name: tuple(fields[name]) for name in ("masks", "names", "pipelines")}})


def is_loopback(host: str) -> bool:
    return host.startswith(_LOOPBACK)
