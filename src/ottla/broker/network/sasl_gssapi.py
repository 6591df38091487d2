"""The server side of GSSAPI (Kerberos, RFC 4752), through the package `gssapi` (`pip install 'ottla[kerberos]'`).

The client proves with a ticket who it is; `security.kerberos_name` makes a user of its principal. No security layer is offered,
as in Kafka: TLS protects the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ottla.broker.startup_error import StartupError
from ottla.cluster.settings.sasl import KerberosSettings
from ottla.security.kerberos_name import KerberosName, NoUser, user_of
from ottla.security.principal import USER, Principal
from ottla.security.sasl import Challenge, SaslFailure, Success

_NO_LAYER: Final = 1
_OFFER: Final = bytes([_NO_LAYER, 0, 0, 0])


class GssapiServer:
    def __init__(self, context: Any, failure: type[Exception], user_of_principal: Callable[[str], str]) -> None:
        """`context`: a gssapi.SecurityContext that accepts; `failure`: what it raises."""
        self._context = context
        self._failure = failure
        self._user_of = user_of_principal
        self._offered = False

    def step(self, token: bytes, now_ms: int) -> Challenge | Success:
        try:
            return self._finish(token) if self._offered else self._continue(token)
        except self._failure as error:
            raise SaslFailure(f"GSSAPI: {' '.join(str(error).split())[:300]}") from None
        except NoUser as error:
            raise SaslFailure(f"GSSAPI: {error}") from None

    def _continue(self, token: bytes) -> Challenge:
        if not self._context.complete:
            answer = self._context.step(token)
            if answer or not self._context.complete:
                return Challenge(bytes(answer or b""))
        elif token:
            raise SaslFailure("GSSAPI: a token after the context is established")
        self._offered = True
        return Challenge(bytes(self._context.wrap(_OFFER, False).message))

    def _finish(self, token: bytes) -> Success:
        chosen = bytes(self._context.unwrap(token).message)
        if len(chosen) < 4 or chosen[0] != _NO_LAYER:
            raise SaslFailure("GSSAPI: the client wants a security layer")
        principal = str(self._context.initiator_name)
        authorization_id = chosen[4:].decode("utf-8", errors="replace")
        if authorization_id not in ("", principal):
            raise SaslFailure(
                f"GSSAPI: {principal} asked for another authorization id",
                "Authentication failed: the authorization id is not the principal",
            )
        return Success(Principal(USER, self._user_of(principal)), None)


def gssapi_factory(settings: KerberosSettings) -> Callable[[], GssapiServer]:
    """StartupError if the package, or the key of the broker in the keytab, is missing."""
    try:
        import gssapi
    except (ImportError, OSError) as error:
        raise StartupError(f"GSSAPI needs the package gssapi: pip install 'ottla[kerberos]' ({error})") from None
    failure: type[Exception] = gssapi.exceptions.GSSError
    try:
        name = gssapi.Name(settings.principal, gssapi.NameType.kerberos_principal) if settings.principal else None
        store = {"keytab": settings.keytab} if settings.keytab else None
        credentials = gssapi.Credentials(name=name, usage="accept", store=store)
        realm = KerberosName.parse(settings.principal or str(credentials.name)).realm or ""
    except (failure, NoUser) as error:
        raise StartupError(f"cannot use the keytab {settings.keytab or ''} for {settings.principal}: {error}") from None

    def make() -> GssapiServer:
        context = gssapi.SecurityContext(creds=credentials, usage="accept")
        return GssapiServer(context, failure, lambda principal: user_of(principal, settings.rules, realm))

    return make
