"""`ottla elect`: has partitions led by their preferred replica, or by any replica that is alive."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import Connection
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Commands, Json, Yes, confirm
from ottla.cli.output import counted, note, print_document, print_table
from ottla.cli.positions import TopicIndex
from ottla.cli.scope import parse_scope, scoped_partitions

if TYPE_CHECKING:
    from ottla.cli.cluster.view import ClusterView

_PREFERRED, _UNCLEAN = 0, 1

app = Commands(help="Elect leaders of partitions: preferred, unclean.", no_args_is_help=True)

Partitions = Annotated[list[str] | None, typer.Argument(metavar="TOPIC[:0,1,…]", show_default=False)]
AllTopics = Annotated[bool, typer.Option("--all-topics", help="All topics, including internal ones.")]


@dataclass(frozen=True, slots=True)
class Election:
    """The outcome in one partition."""

    topic: str
    partition: int
    leader_before: int
    leader: int
    error: str | None


@app.add("preferred", changes=True)
def preferred(
    partitions: Partitions = None,
    all_topics: AllTopics = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Have partitions led by their preferred leader, the first of their replicas, if it is in sync."""
    view, keys = _chosen(partitions, all_topics, bootstrap_servers, command_config)
    wanted = [key for key in keys if view.partitions[key].leader != view.partitions[key].replicas[0]]
    _elect(view, _PREFERRED, wanted, keys, json_output=json_output)


@app.add("unclean", changes=True)
def unclean(
    partitions: Partitions = None,
    all_topics: AllTopics = False,
    yes: Yes = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Have partitions without a leader led by any replica that is alive, also by one that lacks committed records.

    Records that only the missing replicas hold are lost, also after these come back.
    """
    view, keys = _chosen(partitions, all_topics, bootstrap_servers, command_config)
    wanted = [key for key in keys if view.partitions[key].is_offline]
    if wanted:
        named = ", ".join(f"{topic}-{index}" for topic, index in wanted[:5]) + (", …" if len(wanted) > 5 else "")
        confirm(f"Elect leaders of {named}? Committed records that only the missing replicas hold are lost.", yes)
    _elect(view, _UNCLEAN, wanted, keys, json_output=json_output)


def _chosen(
    words: list[str] | None, all_topics: bool, bootstrap_servers: str, command_config: Any
) -> tuple[ClusterView, list[TopicIndex]]:
    from ottla.cli.cluster.view import ClusterView  # imported late: `ottla --help` does not need the protocol's messages

    if bool(words) == all_topics:
        raise Failure("pass either topics or --all-topics", exit_code=EXIT_USAGE)
    scope = parse_scope(words or [])
    connection = Connection(bootstrap_servers, command_config)
    view = ClusterView(connection)
    return view, sorted(view.partitions) if all_topics else scoped_partitions(connection, scope)


def _elect(view: ClusterView, kind: int, wanted: list[TopicIndex], keys: list[TopicIndex], *, json_output: bool) -> None:
    before = {key: view.partitions[key].leader for key in wanted}
    errors = _asked(view, kind, wanted) if wanted else {}
    if wanted:
        view.refresh()
    elections = [
        Election(*key, before[key], view.partitions[key].leader if key in view.partitions else -1, errors.get(key))
        for key in wanted
    ]
    if json_output:
        print_document({"elections": [asdict(each) for each in elections], "not_needed": len(keys) - len(wanted)})
    else:
        _print(elections)
        if len(keys) > len(wanted):
            reason = "led by the preferred leader already" if kind == _PREFERRED else "with a leader"
            note(f"{counted(len(keys) - len(wanted), 'partition')} {reason}")
    failed = [each for each in elections if each.error is not None]
    if failed:
        named = ", ".join(f"{each.topic}-{each.partition}" for each in failed[:3])
        more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
        raise Failure(
            f"no leader was elected for {named}{more}",
            "see which replicas are alive and in sync with `ottla cluster status --problems`",
            code=str(failed[0].error).partition(":")[0],
        )


def _print(elections: list[Election]) -> None:
    if elections:
        print_table(
            ["TOPIC", "PARTITION", "BEFORE", "LEADER", "RESULT"],
            [
                (
                    each.topic,
                    each.partition,
                    each.leader_before if each.leader_before >= 0 else "none",
                    each.leader if each.leader >= 0 else "none",
                    each.error or "elected",
                )
                for each in elections
            ],
            right=["PARTITION", "BEFORE", "LEADER"],
        )


def _asked(view: ClusterView, kind: int, keys: list[TopicIndex]) -> dict[TopicIndex, str]:
    """Ask the controller. The error of each partition that has one."""
    from ottla.cli.plain_request import raise_if_error
    from ottla.errors import ErrorCode, error_name
    from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

    topics: dict[str, TopicPartitions] = {}
    for topic, index in keys:
        topics.setdefault(topic, TopicPartitions(topic=topic)).partitions.append(index)
    request = ElectLeadersRequest(election_type=kind, topic_partitions=list(topics.values()))
    answer = view.ask_controller("elect_leaders", 2, request, ElectLeadersResponse)
    # The response has no text for it.
    why = view.why_changes_fail() if answer.error_code == ErrorCode.REQUEST_TIMED_OUT else None
    raise_if_error(answer.error_code, "the election", why)
    return {
        (result.topic, each.partition_id): f"{error_name(each.error_code)}: {each.error_message}"
        if each.error_message
        else error_name(each.error_code)
        for result in answer.replica_election_results
        for each in result.partition_result
        # The leader may have changed since the metadata was read.
        if each.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    }
