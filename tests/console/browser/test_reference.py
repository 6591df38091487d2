"""The same pages on Apache Kafka: the console works with any Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.console.browser.test_pages import (  # noqa: F401
    places,
    test_a_page_opens_with_real_data,
    test_a_record_is_produced_and_produced_again,
    test_a_topic_is_created_changed_and_deleted,
    test_live_records_arrive_and_pause,
    test_offsets_are_reset_after_a_preview,
    test_records_are_searched,
    test_what_a_record_holds_is_text,
)
from tests.console.browser.world import world
from tests.kit.peers import ApacheKafka

pytestmark = [pytest.mark.reference, pytest.mark.slow]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker of Apache Kafka 4.3 with a world on it."""
    with ApacheKafka() as kafka, world(kafka.bootstrap_servers):
        yield kafka.bootstrap_servers
