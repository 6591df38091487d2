"""The client side of GSSAPI (Kerberos, RFC 4752), through the package `gssapi` (`pip install 'ottla[kerberos]'`).

Without a security layer after the login, as in Kafka.
"""

from __future__ import annotations

from typing import Any, Final

from ottla.client.login import LoginRefused
from ottla.client.security import KerberosOptions

_NO_LAYER: Final = 1


class Kerberos:
    def __init__(self, options: KerberosOptions, host: str) -> None:
        try:
            import gssapi
            from gssapi.raw.misc import GSSError
        except (ImportError, OSError) as error:
            raise LoginRefused(f"GSSAPI needs the package gssapi: pip install 'ottla[kerberos]' ({error})") from None
        self._failure: type[Exception] = GSSError
        try:
            credentials = None
            if options.keytab:
                name = gssapi.Name(options.principal, gssapi.NameType.kerberos_principal) if options.principal else None
                store: dict[bytes | str, bytes | str] = {"client_keytab": options.keytab, "ccache": "MEMORY:ottla"}
                credentials = gssapi.Credentials(name=name, usage="initiate", store=store)
            service = gssapi.Name(f"{options.service}@{host}", gssapi.NameType.hostbased_service)
            flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
            self._context: Any = gssapi.SecurityContext(
                name=service, creds=credentials, mech=gssapi.MechType.kerberos, flags=flags, usage="initiate"
            )
        except self._failure as error:
            raise LoginRefused(f"Kerberos: {error}") from None
        self._wrapped = False

    def step(self, challenge: bytes) -> bytes | None:
        try:
            if not self._context.complete:
                return self._context.step(challenge or None) or b""
            if self._wrapped:
                return None
            offered = self._context.unwrap(challenge).message
            if len(offered) != 4 or not offered[0] & _NO_LAYER:
                raise LoginRefused("the broker requires a Kerberos security layer, which Kafka's protocol does not have")
            self._wrapped = True
            return bytes(self._context.wrap(bytes([_NO_LAYER, 0, 0, 0]), False).message)
        except self._failure as error:
            raise LoginRefused(f"Kerberos: {error}") from None
