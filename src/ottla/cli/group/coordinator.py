"""Why a group has no coordinator."""

from __future__ import annotations

from ottla.cli.connection import Connection
from ottla.cli.failure import Failure
from ottla.cli.plain_request import call
from ottla.errors import error_name
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

OFFSETS_TOPIC = "__consumer_offsets"


def lacking_coordinator(connection: Connection, group: str) -> Failure | None:
    """What is missing, None if the group has a coordinator or no broker answers.

    Kafka's brokers only say that there is none; whether the offsets topic exists, and how many brokers run, is in the metadata.
    """
    try:
        found = call(connection, "find_coordinator", 3, FindCoordinatorRequest(key=group), FindCoordinatorResponse)
        if not found.error_code:
            return None
        metadata = connection.metadata()
    except Failure:
        return None
    name = error_name(found.error_code)
    hint = "see `ottla cluster status --problems`"
    if OFFSETS_TOPIC not in metadata.topics:
        count = len(metadata.brokers)
        hint = (
            f"{OFFSETS_TOPIC} does not exist: brokers create it once as many run as offsets.topic.replication.factor says "
            f"(3 unless it is set); {count} {'runs' if count == 1 else 'run'} now"
        )
    return Failure(f"group {group} has no coordinator: {found.error_message or name}", hint, code=name)
