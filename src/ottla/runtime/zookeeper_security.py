"""A secured connection to ZooKeeper: TLS, a login, and the ACLs of the nodes that a broker creates.

The ACLs are Kafka's: whoever creates a node may do everything with it, everybody may read it, except nodes with secrets.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, field
from typing import Any, Final

_SECRET: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens", "/ottla/login_secret")
"""Only their creator may read these nodes, and those below them."""
_OF_EVERYBODY: Final = ("/consumers",)


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    tls: ssl.SSLContext | None = None
    username: str = ""
    """Of a login with SASL (DIGEST-MD5); empty: none."""
    password: str = field(default="", repr=False)
    set_acl: bool = False

    def acl_of(self, path: str) -> list[Any] | None:
        """The ACL of a node to be created; None: open to everybody."""
        if not self.set_acl or path.startswith(_OF_EVERYBODY):
            return None
        from kazoo.security import CREATOR_ALL_ACL, READ_ACL_UNSAFE

        return [*CREATOR_ALL_ACL] if path.startswith(_SECRET) else [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

    def client_options(self) -> dict[str, Any]:
        """For a KazooClient."""
        options: dict[str, Any] = {}
        if self.username:
            options["sasl_options"] = {"mechanism": "DIGEST-MD5", "username": self.username, "password": self.password}
        if self.tls is not None:
            options["handler"] = _tls_handler(self.tls)
            options["use_ssl"] = True
        return options


UNSECURED: Final = ZooKeeperSecurity()


def _tls_handler(context: ssl.SSLContext) -> Any:
    """kazoo makes its own contexts from PEM files; this one takes ours, which may come from any store."""
    from kazoo.handlers.threading import SequentialThreadingHandler

    class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
        def create_connection(
            self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_options: Any
        ) -> socket.socket:
            plain = socket.create_connection(address, timeout)
            try:
                secured = context.wrap_socket(plain, server_hostname=hostname or address[0])
            except BaseException:
                plain.close()
                raise
            secured.setblocking(False)
            return secured

    return TlsHandler()
