from __future__ import annotations

from ottla.errors import ErrorCode
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.telemetry import TelemetryBroker


def test_without_a_subscription_a_client_is_told_to_push_nothing() -> None:
    async def test(broker: MetadataBroker) -> None:
        answer = await TelemetryBroker(broker).get()
        assert (answer.error_code, answer.requested_metrics, answer.push_interval_ms) == (0, [], 300_000)

    on_broker(test)


def test_a_client_gets_an_instance_id_and_what_it_is_subscribed_to() -> None:
    async def test(broker: MetadataBroker) -> None:
        telemetry = TelemetryBroker(broker)
        await telemetry.subscribe("some", metrics="a.,b.", interval_ms="1000", match="client_id=te.*")
        answer = await telemetry.get()
        assert answer.client_instance_id not in (bytes(16), bytes(15) + b"\x01")
        assert answer.accepted_compression_types == [4, 3, 1, 2]
        assert (answer.push_interval_ms, answer.telemetry_max_bytes, answer.delta_temporality) == (1000, 5000, True)
        assert answer.requested_metrics == ["a.", "b."]
        again = await telemetry.get(answer.client_instance_id)
        assert again.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        telemetry.now_ms = 1000
        later = await telemetry.get(answer.client_instance_id)
        assert (later.client_instance_id, later.subscription_id) == (answer.client_instance_id, answer.subscription_id)

    on_broker(test, {"telemetry.max.bytes": "5000"})
