"""Where tokens come from."""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ottla.client import oauth
from ottla.client.login import LoginRefused
from ottla.client.oauth import obtain
from ottla.client.security import TokenOptions


class Provider:
    """An OAuth provider: `answers` in turn, the last stays."""

    def __init__(self) -> None:
        provider = self
        self.asked: list[tuple[str, str]] = []
        self.answers: list[tuple[int, Any, dict[str, str]]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                provider.asked.append((self.headers["Authorization"], body))
                status, document, headers = provider.answers.pop(0) if len(provider.answers) > 1 else provider.answers[0]
                content = json.dumps(document).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST

            def log_message(self, *arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/token"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def provider() -> Iterator[Provider]:
    oauth._kept.clear()
    provider = Provider()
    yield provider
    provider.server.shutdown()
    provider.server.server_close()


def jwt(**claims: Any) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b'=').decode()}.x"


def test_client_credentials_are_sent_as_the_rfc_says_and_the_token_is_kept(provider: Provider) -> None:
    token = jwt(sub="me", iat=0, exp=4e9)
    provider.answers = [(200, {"access_token": token}, {})]
    options = TokenOptions(url=provider.url, client_id="me", client_secret="s:1", scope="kafka all")
    assert obtain(options) == obtain(options) == token
    ((authorization, body),) = provider.asked
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"me:s:1"
    assert body == "grant_type=client_credentials&scope=kafka+all"


def test_a_token_whose_life_is_nearly_over_is_replaced(provider: Provider) -> None:
    old, new = jwt(iat=0, exp=1), jwt(iat=0, exp=4e9)
    provider.answers = [(200, {"access_token": old}, {}), (200, {"access_token": new}, {})]
    options = TokenOptions(url=provider.url, client_id="me", client_secret="x")
    assert [obtain(options), obtain(options)] == [old, new]


def test_a_refusal_is_not_repeated_and_an_overload_is(provider: Provider) -> None:
    options = TokenOptions(url=provider.url, client_id="me", client_secret="hush")
    provider.answers = [(401, {"error": "invalid_client"}, {})]
    with pytest.raises(LoginRefused, match="401: invalid_client") as refused:
        obtain(options)
    assert len(provider.asked) == 1
    assert "hush" not in str(refused.value)
    provider.answers = [(503, {}, {}), (200, {"access_token": "opaque"}, {})]
    assert obtain(options) == "opaque"


def test_a_redirect_does_not_carry_the_secret_away(provider: Provider) -> None:
    provider.answers = [(302, {}, {"Location": provider.url}), (200, {"access_token": "stolen"}, {})]
    with pytest.raises(LoginRefused, match="302"):
        obtain(TokenOptions(url=provider.url, client_id="me", client_secret="x"))
    assert len(provider.asked) == 1


def test_an_answer_without_a_token_is_refused(provider: Provider) -> None:
    provider.answers = [(200, ["no"], {})]
    with pytest.raises(LoginRefused, match="without an access_token"):
        obtain(TokenOptions(url=provider.url, client_id="me", client_secret="x"))


def test_a_file_is_read_for_every_login(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    options = TokenOptions(url=file.as_uri())
    with pytest.raises(LoginRefused, match="cannot be read"):
        obtain(options)
    file.write_text("first\n")
    assert obtain(options) == "first"
    file.write_text("second\n")
    assert obtain(options) == "second"


def test_a_command_prints_the_token(tmp_path: Path) -> None:
    assert obtain(TokenOptions(command=f"{sys.executable} -c \"print('to' + 'ken')\"")) == "token"
    with pytest.raises(LoginRefused, match="exit code 3: no ticket"):
        obtain(TokenOptions(command=f"{sys.executable} -c \"import sys; sys.exit(print('no ticket', file=sys.stderr) or 3)\""))
    with pytest.raises(LoginRefused, match="cannot be run"):
        obtain(TokenOptions(command=str(tmp_path / "none")))


def test_claims_without_a_signature() -> None:
    header, payload, signature = obtain(TokenOptions(claims=(("sub", "alice"),), lifetime_s=60)).split(".")
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["sub"] == "alice"
    assert claims["exp"] - claims["iat"] == 60
    assert signature == ""
