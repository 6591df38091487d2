"""A plugin for kafka-python's suite: topics it makes on a broker that runs already get as many replicas as TEST_REPLICAS says.

The suite has such a number for brokers it starts itself, and one for all others.
"""

from __future__ import annotations

import os
from typing import Any


def pytest_configure(config: Any) -> None:
    from test.integration.fixtures import KafkaFixture

    prepare = KafkaFixture.__init__

    def prepare_replicated(self: Any, *args: Any, **kwargs: Any) -> None:
        prepare(self, *args, **kwargs)
        self.replicas = int(os.environ["TEST_REPLICAS"])

    KafkaFixture.__init__ = prepare_replicated
