"""`ottla txn`: list, describe, find-hanging, abort."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import Connection
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Commands, Json, Yes
from ottla.cli.output import note, print_document, print_table
from ottla.filters.times import duration_ms

if TYPE_CHECKING:
    from ottla.cli.txn.view import Transactions

app = Commands(help="Transactions: list, describe, find-hanging, abort.", no_args_is_help=True)


@app.add("list")
def list_(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only ids in this state (repeatable): Ongoing, Empty, CompleteCommit, …"),
    ] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="DURATION", help="Only transactions older than this: 30s, 5m, 2h.")
    ] = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """List transactional ids, their coordinator, producer and state."""
    transactions = _transactions(bootstrap_servers, command_config)
    found = transactions.listed(state or [], older_than_ms=_duration_ms(older_than, "--older-than"))
    if json_output:
        print_document([asdict(each) for each in found])
    elif found:
        print_table(
            ["TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE"],
            [list(asdict(each).values()) for each in found],
            right=["COORDINATOR", "PRODUCER-ID"],
        )
    else:
        note(
            "no transactional id matches"
            if state or older_than
            else "no transactional ids yet; a producer with a transactional.id creates one"
        )


@app.add("describe")
def describe(
    names: Annotated[list[str], typer.Argument(metavar="TRANSACTIONAL-ID", show_default=False)],
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Show state, producer, age and partitions of transactional ids."""
    transactions = _transactions(bootstrap_servers, command_config)
    documents: list[dict[str, Any]] = []
    for name in names:
        state, coordinator_id = transactions.described(name)
        began_ms = state.transaction_start_time_ms
        documents.append(
            {
                "transactional_id": name,
                "coordinator_id": coordinator_id,
                "producer_id": state.producer_id,
                "producer_epoch": state.producer_epoch,
                "state": state.transaction_state,
                "timeout_ms": state.transaction_timeout_ms,
                "open_ms": transactions.now_ms() - began_ms if began_ms >= 0 and state.topics else None,
                "partitions": sorted(f"{topic.topic}-{partition}" for topic in state.topics for partition in topic.partitions),
            }
        )
    if json_output:
        print_document(documents)
        return
    print_table(
        ["TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "EPOCH", "STATE", "TIMEOUT-MS", "OPEN-MS", "PARTITIONS"],
        [{**document, "partitions": " ".join(document["partitions"]) or "-"}.values() for document in documents],
        right=["COORDINATOR", "PRODUCER-ID", "EPOCH", "TIMEOUT-MS", "OPEN-MS"],
        none="-",
    )


@app.add("find-hanging")
def find_hanging(
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only in this topic (repeatable).")
    ] = None,
    idle: Annotated[
        str, typer.Option("--idle", metavar="DURATION", help="Only transactions without a write for this long.")
    ] = "15m",
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Find transactions that are open in a partition but unknown to every coordinator: nothing will end them.

    They block all read_committed consumers. `--idle` should be at least transaction.max.timeout.ms of the brokers.
    """
    transactions = _transactions(bootstrap_servers, command_config)
    found = transactions.hanging(transactions.partitions(topic or []), _duration_ms(idle, "--idle"))
    now_ms = transactions.now_ms()
    if json_output:
        print_document([each.document(now_ms) for each in found])
    elif found:
        print_table(
            ["TOPIC", "PARTITION", "PRODUCER-ID", "EPOCH", "COORDINATOR-EPOCH", "START-OFFSET", "IDLE-MS"],
            [[value for key, value in each.document(now_ms).items() if key != "last_timestamp_ms"] for each in found],
            right=["PARTITION", "PRODUCER-ID", "EPOCH", "COORDINATOR-EPOCH", "START-OFFSET", "IDLE-MS"],
        )
    else:
        note("no hanging transactions")


@app.add("abort", changes=True)
def abort(
    partition: Annotated[str, typer.Argument(metavar="TOPIC:PARTITION")],
    start_offset: Annotated[
        int, typer.Option("--start-offset", metavar="OFFSET", help="Its first offset, as find-hanging shows it.")
    ],
    yes: Yes = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Abort a hanging transaction in one partition by writing its abort marker.

    Do not use it for a transaction that its coordinator knows: it would be aborted here and perhaps committed elsewhere.
    """
    topic, colon, index = partition.rpartition(":")
    if not colon or not index.isdecimal():
        raise Failure(f"{partition!r} is not topic:partition", exit_code=EXIT_USAGE)
    transactions = _transactions(bootstrap_servers, command_config)
    found = [each for each in transactions.open_in([(topic, int(index))]) if each.start_offset == start_offset]
    if not found:
        raise Failure(
            f"{topic}-{index} has no open transaction that starts at offset {start_offset}",
            "list them with `ottla txn find-hanging`",
        )
    (transaction,) = found
    if not yes and not typer.confirm(
        f"Abort the transaction of producer {transaction.producer_id} in {topic}-{index} from offset {start_offset}?", err=True
    ):
        raise Failure("nothing was aborted")
    transactions.abort(transaction)
    if json_output:
        print_document(transaction.document(transactions.now_ms()))
    else:
        print(f"aborted the transaction of producer {transaction.producer_id} in {topic}-{index}")


def _transactions(bootstrap_servers: str, command_config: Path | None) -> Transactions:
    # Imported late: `ottla --help` does not need the protocol's messages.
    from ottla.cli.txn.view import Transactions

    return Transactions(Connection(bootstrap_servers, command_config))


def _duration_ms(text: str | None, option: str) -> int:
    if text is None:
        return -1
    found = 0 if text == "0" else duration_ms(text)
    if found is None:
        raise Failure(f"{option} {text!r} is not a duration", "write 30s, 5m or 2h", exit_code=EXIT_USAGE)
    return found
