"""Principals, and the session of a connection: who is authenticated on it, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ottla.security.authorizer import Permissions

USER: Final = "User"


class Principal(NamedTuple):
    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")


@dataclass(slots=True, eq=False)
class Session:
    """Who a connection is. A new authentication replaces it; requests in flight keep the one they began with."""

    client_host: str
    """Address of the client as Java prints it: IPv4-mapped IPv6 as IPv4."""
    listener_name: str
    security_protocol: str = "PLAINTEXT"
    principal: Principal = ANONYMOUS
    by_token: bool = False
    """Authenticated with a delegation token."""
    expires_at_ms: int | None = None
    """When the client must have authenticated again; None: never."""
    permissions: Permissions | None = None
    """What the authorizer has told this session; None: nothing yet."""
    client_port: int = 0
    software_name: str = ""
    """As ApiVersions told; empty before."""
    software_version: str = ""

    @property
    def may_use_tokens(self) -> bool:
        """Whether the client is authenticated, and not by a delegation token: a token must not make another one."""
        protocol = self.security_protocol
        return not (self.by_token or protocol == "PLAINTEXT" or (protocol == "SSL" and self.principal == ANONYMOUS))


def java_address(host: str) -> str:
    """An IP address as Java prints it, and so as ACLs name it: IPv6 with eight groups, none abbreviated."""
    if ":" not in host:
        return host
    from ipaddress import IPv6Address  # imported only for IPv6: it slows down the start

    address, percent, zone = host.partition("%")
    groups = IPv6Address(address).exploded.split(":")
    return ":".join(f"{int(group, 16):x}" for group in groups) + percent + zone
