from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.kit.admin import MetadataBroker, on_broker


def test_sa03_without_a_login_it_is_answered() -> None:
    async def test(broker: MetadataBroker) -> None:
        for version in (0, 1):
            response = await broker.ask("sasl_handshake", version, SaslHandshakeRequest(mechanism="PLAIN"))
            assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])

    on_broker(test)
