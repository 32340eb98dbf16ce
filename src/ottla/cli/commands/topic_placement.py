"""``ottla topic reassign`` and ``elect``: move replicas and elect leaders."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import typer

from ottla.cli.commands.move_progress import wait_reassigned
from ottla.cli.commands.reassign_plan import BadPlan, Brokers, Location, plan_onto
from ottla.cli.commands.reassign_throttle import Changed, Move, limits, no_limits, rates
from ottla.cli.connecting.session import permission_hint, with_cluster
from ottla.cli.options import BOOTSTRAP_DEFAULT, BootstrapOption, OutputOption, answer, say
from ottla.cli.terminal.completion import complete_topics
from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.progress import WorkProgress
from ottla.cli.terminal.rendering import Row
from ottla.client.admin import alter_configs, describe_cluster, describe_topics, list_topics
from ottla.client.admin_replicas import (
    Refusals,
    alter_reassignments,
    elect_leaders,
    list_reassignments,
)
from ottla.client.cluster import Cluster, Refused
from ottla.operations.counting import counted
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataResponseTopic
from ottla.protocol.types import TopicPartition

Partitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", help="Only these partitions.")
]
Throttle = Annotated[
    int | None,
    typer.Option(min=1, help="Limit in bytes per second and broker; --verify removes it."),
]
OptionalNames = Annotated[
    list[str] | None, typer.Argument(help="The topics.", autocompletion=complete_topics)
]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait until it is done.")]


def replicas_of(topics: Iterable[MetadataResponseTopic]) -> dict[TopicPartition, list[int]]:
    """Return the replicas of each partition, the preferred leader first."""
    return {
        TopicPartition(topic.name or "", each.partition_index): each.replica_nodes
        for topic in topics
        for each in topic.partitions
    }


def accepted_rows(
    refusals: Refusals,
    rows: Mapping[TopicPartition, Row],
    api: ApiKey = ApiKey.ALTER_PARTITION_REASSIGNMENTS,
) -> tuple[list[Row], list[str]]:
    """Return rows of the accepted changes, and the errors of the others."""
    granted = [rows[name] for name, refused in refusals.items() if refused is None]
    errors = [refused for refused in refusals.values() if refused is not None]
    return granted, [f"{refused}{permission_hint(refused, api)}" for refused in errors]


async def carry_out(
    cluster: Cluster, moves: Mapping[TopicPartition, Move], *, is_waiting: bool
) -> Refusals:
    """Submit a plan, wait until it is done if requested, and print a summary."""
    if not moves:
        say("every partition has these replicas already")
        return {}
    targets = {name: tuple(move.wanted) for name, move in moves.items()}
    refusals = await alter_reassignments(cluster, targets)
    accepted = {name: moves[name] for name, refused in refusals.items() if refused is None}
    if is_waiting and accepted:
        progress = WorkProgress(cluster.ports.clock, "moved", "partitions", len(accepted))
        try:
            await wait_reassigned(cluster, accepted, progress)
        finally:
            text = progress.end()
        say(text)
    elif accepted:
        say(
            f"{counted(len(accepted), 'partition')} being moved; `ottla topic reassign` shows "
            "what is left"
        )
    return refusals


async def hold_back(cluster: Cluster, changed: Sequence[Changed]) -> None:
    """Set or remove throttles, one resource after the other."""
    for each in changed:
        await alter_configs(cluster, each.kind, each.name, each.changes)


async def let_go(cluster: Cluster, topics: Iterable[str]) -> None:
    """Remove the throttles of topics and of all brokers."""
    brokers = [each.broker_id for each in (await describe_cluster(cluster)).brokers]
    await hold_back(cluster, no_limits(topics, brokers))


def moved(changes: Mapping[TopicPartition, Sequence[int]]) -> dict[TopicPartition, Row]:
    """Return a row for each partition of a plan."""
    return {
        name: {"topic": name.topic, "partition": name.partition, "replicas": list(replicas)}
        for name, replicas in changes.items()
    }


def reassign(  # noqa: PLR0913 - one per option
    context: typer.Context,
    names: OptionalNames = None,
    *,
    to: Annotated[str | None, typer.Option("--to", "-t", help="Target brokers: 1,2,3.")] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", help="Number of replicas of each partition."),
    ] = None,
    partition: Partitions = None,
    cancel: Annotated[
        bool,
        typer.Option(
            "--cancel", help="Cancel the reassignment and go back to the previous replicas."
        ),
    ] = False,
    throttle: Throttle = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Remove the throttles once all moves are done.")
    ] = False,
    wait: Wait = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Move replicas to other brokers, or show reassignments in progress."""
    if names and not (to or replication_factor or cancel or verify):
        raise typer.BadParameter("give --to, --replication-factor, --cancel or --verify")
    if not names and (to or replication_factor or partition):
        raise typer.BadParameter("name the topics")
    brokers = None if to is None else _ids(to)

    async def work(cluster: Cluster) -> tuple[list[Row], list[str]]:
        if cancel:
            return await _cancel(cluster, names, partition)
        if verify:
            return await _verify(cluster, names), []
        if not names:
            return await _status(cluster, throttle), []
        current = replicas_of(await describe_topics(cluster, names))
        wanted = {each: now for each, now in current.items() if _is_meant(each, partition)}
        everywhere = replicas_of(await list_topics(cluster))
        changes = plan_onto(
            wanted, await _brokers(cluster, brokers, everywhere), replication_factor
        )
        moves = {name: Move(current[name], then) for name, then in changes.items()}
        if throttle is not None:
            await hold_back(cluster, limits(moves, throttle))
        refusals = await carry_out(cluster, moves, is_waiting=wait)
        if throttle is not None and wait:
            await _verify(cluster, names)
        return accepted_rows(refusals, moved(changes))

    try:
        rows, refusals = with_cluster(bootstrap, work)
    except BadPlan as error:
        fail(str(error))
    answer(context, output, rows)
    if refusals:
        fail("\n".join(refusals))


async def _verify(cluster: Cluster, names: Sequence[str] | None) -> list[Row]:
    """Remove throttles once no move is left at all: the brokers' rates apply to every move."""
    ongoing = await _status(cluster)
    if not ongoing:
        topics = names or [topic.name or "" for topic in await list_topics(cluster)]
        await let_go(cluster, topics)
    return ongoing


def _ids(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} must be broker ids: 1,2,3", param_hint="--to"
        ) from error


def _is_meant(name: TopicPartition, numbers: Sequence[int] | None) -> bool:
    return not numbers or name.partition in numbers


async def _brokers(
    cluster: Cluster,
    wanted: Sequence[int] | None,
    everywhere: Mapping[TopicPartition, Sequence[int]],
) -> Brokers:
    """Return the selected brokers, by default all that are not fenced."""
    serving = await serving_brokers(cluster)
    load = dict.fromkeys(serving, 0)
    for replicas in everywhere.values():
        for each in replicas:
            load[each] = load.get(each, 0) + 1
    if wanted is None:
        return Brokers(serving, load)
    return Brokers({each: serving.get(each, Location()) for each in wanted}, load)


async def serving_brokers(cluster: Cluster) -> dict[int, Location]:
    """Return the locations of the brokers that are not fenced, by id.

    The host is the one that a broker advertises on the listener of this connection.
    """
    found = (await describe_cluster(cluster)).brokers
    return {
        each.broker_id: Location(each.rack, each.host.lower().rstrip("."))
        for each in found
        if not each.is_fenced
    }


async def check_broker(cluster: Cluster, broker: int) -> None:
    """Check that a broker is registered. Raises `BadPlan` with those that are."""
    registered = sorted(each.broker_id for each in (await describe_cluster(cluster)).brokers)
    if broker not in registered:
        names = ", ".join(map(str, registered))
        raise BadPlan(f"there is no broker {broker}; the cluster has {names}")


async def _status(cluster: Cluster, throttle: int | None = None) -> list[Row]:
    """Return the reassignments in progress; with ``throttle``, set their rate."""
    ongoing = await list_reassignments(cluster)
    if not ongoing:
        say("no reassignment is in progress")
    if throttle is not None:
        brokers = {broker for row in ongoing.values() for broker in row.replicas}
        await hold_back(cluster, rates(brokers, throttle))
    return [
        {
            "topic": name.topic,
            "partition": name.partition,
            "replicas": row.replicas,
            "adding": row.adding_replicas,
            "removing": row.removing_replicas,
        }
        for name, row in sorted(ongoing.items())
    ]


async def _cancel(
    cluster: Cluster, names: Sequence[str] | None, numbers: Sequence[int] | None
) -> tuple[list[Row], list[str]]:
    ongoing = {
        name: [each for each in row.replicas if each not in row.adding_replicas]
        for name, row in (await list_reassignments(cluster)).items()
        if (not names or name.topic in names) and _is_meant(name, numbers)
    }
    if not ongoing:
        say("no reassignment is in progress")
        return [], []
    return accepted_rows(await alter_reassignments(cluster, dict.fromkeys(ongoing)), moved(ongoing))


def elect(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Topics; default: all.")] = None,
    *,
    partition: Partitions = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean", help="Allow a replica that is not in sync to lead; records are lost."
        ),
    ] = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Elect the preferred replicas as leaders, or any live replica with --unclean."""
    if partition and not names:
        raise typer.BadParameter("name the topic", param_hint="--partition")

    async def work(cluster: Cluster) -> tuple[list[Row], list[str]]:
        wanted = None
        if names:
            found = replicas_of(await describe_topics(cluster, names))
            wanted = [each for each in found if _is_meant(each, partition)]
        refusals = await elect_leaders(cluster, wanted, is_unclean=unclean)
        needed = {name: why for name, why in refusals.items() if not _is_needless(why)}
        rows: dict[TopicPartition, Row] = {
            name: {"topic": name.topic, "partition": name.partition} for name in needed
        }
        return accepted_rows(needed, rows, ApiKey.ELECT_LEADERS)

    rows, refusals = with_cluster(bootstrap, work)
    answer(context, output, rows)
    if refusals:
        fail("\n".join(refusals))
    if not rows:
        say("every partition has its preferred leader already")


def _is_needless(refused: Refused | None) -> bool:
    return refused is not None and refused.code == ErrorCode.ELECTION_NOT_NEEDED
