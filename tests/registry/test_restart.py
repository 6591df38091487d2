"""What a registry has acknowledged is there after its end, however it ended."""

from __future__ import annotations

import pytest

from ottla.testing import Broker, Registry
from tests.registry.conftest import Client


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_schema_survives_the_end_of_the_registry(broker: Broker, end: str, subject: str) -> None:
    with Registry(broker, options=["--topic", f"_schemas-{end}", "--group", f"registry-{end}"]) as registry:
        client = Client(registry.url)
        assert client.register(subject, {"type": "string"}) == 1
        getattr(registry, end)()
        registry.start()
        assert client.get("/schemas/ids/1") == {"schema": '"string"'}
        assert client.register(subject, '"string"') == 1
        assert client.register(f"{subject}-2", {"type": "int"}) == 2
        assert client.get("/subjects") == [subject, f"{subject}-2"]
        client.http.close()
