from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.kit.admin import MetadataBroker, on_broker


def test_sa03_without_a_login_it_is_answered() -> None:
    async def test(broker: MetadataBroker) -> None:
        for version in (0, 1, 2):
            response = await broker.ask("sasl_authenticate", version, SaslAuthenticateRequest(auth_bytes=b"\0ada\0secret"))
            assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert "secret" not in (response.error_message or "")

    on_broker(test)
