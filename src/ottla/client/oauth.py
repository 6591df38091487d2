"""Tokens for OAUTHBEARER: from a file, a command, or a provider (client_credentials over HTTP).

A token of a provider or a command is kept until a fifth of its life is left. Blocks: an event loop calls it in a thread.
"""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import sleep, time
from typing import Any, Final

from ottla.client.login import LoginRefused
from ottla.client.security import TokenOptions

_REPLY_BYTES_MAX: Final = 1 << 20
_LIFE_USED_MAX: Final = 0.8
_TRIES_MAX: Final = 3
_BACKOFF_S: Final = 0.1
_RETRIED: Final = frozenset({408, 425, 429, 500, 502, 503, 504})

_lock = Lock()
_kept: dict[TokenOptions, Token] = {}


@dataclass(frozen=True, slots=True)
class Token:
    value: str
    renew_at_s: float
    expires_at_s: float
    subject: str


def obtain(options: TokenOptions) -> str:
    """A token that is valid for a while. LoginRefused if there is none."""
    return obtain_token(options).value


def obtain_token(options: TokenOptions) -> Token:
    with _lock:
        kept = _kept.get(options)
        if kept is not None and time() < kept.renew_at_s:
            return kept
        token = _described(_fetch(options))
        if not options.url.startswith("file:"):
            _kept[options] = token
        return token


def _fetch(options: TokenOptions) -> str:
    if options.command:
        return _from_command(options)
    if options.url.startswith("file:"):
        return _from_file(urllib.parse.unquote(urllib.parse.urlsplit(options.url).path))
    if options.url:
        return _from_provider(options)
    return _unsecured(options)


def _from_file(path: str) -> str:
    try:
        text = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LoginRefused(f"the token file {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not text:
        raise LoginRefused(f"the token file {path} is empty")
    return text


def _from_command(options: TokenOptions) -> str:
    words = shlex.split(options.command)
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=options.timeout_ms / 1000, check=False)
    except subprocess.TimeoutExpired:
        raise LoginRefused(f"the token command {words[0]} did not end within {options.timeout_ms} ms") from None
    except OSError as error:
        raise LoginRefused(f"the token command {words[0]} cannot be run: {error.strerror}") from None
    if done.returncode or not done.stdout.strip():
        reason = done.stderr.strip().rpartition("\n")[2] or "it printed no token"
        raise LoginRefused(f"the token command {words[0]} failed with exit code {done.returncode}: {reason}")
    return done.stdout.strip()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the client's secret to another server."""

    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        return None


def _from_provider(options: TokenOptions) -> str:
    name, secret = options.client_id, options.client_secret
    if options.urlencode:
        name, secret = urllib.parse.quote_plus(name), urllib.parse.quote_plus(secret)
    form = {"grant_type": "client_credentials"} | ({"scope": options.scope} if options.scope else {})
    request = urllib.request.Request(
        options.url,
        urllib.parse.urlencode(form).encode(),
        {
            "Authorization": "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode(),
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if options.url.startswith("https:"):
        from ottla.client.tls import client_context

        handlers.append(urllib.request.HTTPSHandler(context=client_context(options.tls)))
    opener = urllib.request.build_opener(*handlers)
    where = f"the OAuth provider {options.url}"
    for attempt in range(_TRIES_MAX):
        try:
            with opener.open(request, timeout=options.timeout_ms / 1000) as reply:
                return _access_token(reply.read(_REPLY_BYTES_MAX), where)
        except urllib.error.HTTPError as error:
            with error:
                reason = _error_of(error.read(_REPLY_BYTES_MAX))
            failure = f"{where} answers {error.code}{reason}"
            if error.code not in _RETRIED:
                raise LoginRefused(failure) from None
        except OSError as error:  # URLError too
            failure = f"{where} cannot be reached: {getattr(error, 'reason', error)}"
        if attempt < _TRIES_MAX - 1:
            sleep(_BACKOFF_S * (1 << attempt))
    raise LoginRefused(failure)


def _access_token(reply: bytes, where: str) -> str:
    try:
        token = json.loads(reply)["access_token"]
    except (ValueError, KeyError, TypeError):
        token = None
    if not isinstance(token, str) or not token:
        raise LoginRefused(f"{where} answers without an access_token")
    return token


def _error_of(reply: bytes) -> str:
    try:
        document = json.loads(reply)
        return f": {document.get('error_description') or document['error']}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def _unsecured(options: TokenOptions) -> str:
    now = int(time())
    claims = {"iat": now, "exp": now + options.lifetime_s, **dict(options.claims)}
    return ".".join([_encoded({"alg": "none"}), _encoded(claims), ""])


def _encoded(document: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


def _described(value: str) -> Token:
    """With its times, if it is a JWT. The broker checks it; here it is only read."""
    now = time()
    try:
        payload = value.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        expires, begins = float(claims["exp"]), float(claims.get("iat", now))
        subject = str(claims.get("sub", ""))
    except (IndexError, ValueError, KeyError, TypeError, AttributeError):
        return Token(value, now, now + 3600, "")
    return Token(value, begins + (expires - begins) * _LIFE_USED_MAX, expires, subject)
