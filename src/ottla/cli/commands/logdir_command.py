"""``ottla logdir``: the log directories of brokers, and moving partitions between them."""

import asyncio
from typing import Annotated

import typer

from ottla.cli.commands.move_progress import POLL_S, replica_sizes
from ottla.cli.commands.topic_placement import Partitions, Wait, accepted_rows, serving_brokers
from ottla.cli.connecting.session import with_cluster
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    BootstrapOption,
    BytesOption,
    OutputOption,
    answer,
    say,
)
from ottla.cli.terminal.completion import complete_topics
from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.progress import WorkProgress
from ottla.cli.terminal.rendering import Row, exact_bytes
from ottla.client.admin import describe_topics
from ottla.client.admin_replicas import alter_log_dirs, describe_log_dirs
from ottla.client.cluster import Cluster, Refused
from ottla.operations.counting import counted
from ottla.operations.sizes import ByteCount, byte_count
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResult,
)
from ottla.protocol.types import TopicPartition

app = typer.Typer(
    help="Describe log directories and move replicas between them.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command("list")
def show_list(
    context: typer.Context,
    brokers: Annotated[
        list[int] | None,
        typer.Argument(help="Show only this broker; default: all brokers. May be repeated."),
    ] = None,
    *,
    partitions: Annotated[
        bool, typer.Option("--partitions", "-p", help="Show every partition.")
    ] = False,
    in_bytes: BytesOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show the size, free space and contents of log directories."""

    async def work(cluster: Cluster) -> list[Row]:
        rows: list[Row] = []
        for broker in sorted(brokers or await serving_brokers(cluster)):
            for found in await describe_log_dirs(cluster, broker):
                rows += _partitions(broker, found) if partitions else [_summary(broker, found)]
        return rows

    rows = with_cluster(bootstrap, work)
    empty = "no partitions" if partitions else "no log directories"
    answer(context, output, exact_bytes(rows) if in_bytes else rows, empty=empty)


def _summary(broker: int, found: DescribeLogDirsResult) -> Row:
    held = _held(found)
    return {
        "broker": broker,
        "directory": found.log_dir,
        "state": _state(found),
        "partitions": sum(not row.is_future_key for row in held.values()),
        "arriving": sum(row.is_future_key for row in held.values()),
        "size": ByteCount(sum(row.partition_size for row in held.values())),
        "usable": byte_count(found.usable_bytes),
        "total": byte_count(found.total_bytes),
    }


def _state(found: DescribeLogDirsResult) -> str:
    if found.error_code:
        return ErrorCode(found.error_code).name
    return "cordoned" if found.is_cordoned else "online"


def _held(found: DescribeLogDirsResult) -> dict[TopicPartition, DescribeLogDirsPartition]:
    return {
        TopicPartition(topic.name, row.partition_index): row
        for topic in found.topics
        for row in topic.partitions
    }


def _partitions(broker: int, found: DescribeLogDirsResult) -> list[Row]:
    return [
        {
            "broker": broker,
            "directory": found.log_dir,
            "topic": name.topic,
            "partition": name.partition,
            "size": ByteCount(row.partition_size),
            "lag": row.offset_lag if row.offset_lag >= 0 else None,
            "arriving": row.is_future_key,
        }
        for name, row in sorted(_held(found).items())
    ]


@app.command("move")
def move(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="The topic.", autocompletion=complete_topics)],
    *,
    broker: Annotated[int, typer.Option("--broker", help="Whose replicas.")],
    to: Annotated[
        str, typer.Option("--to", "-t", help="Target directory, one of the broker's log.dirs.")
    ],
    partition: Partitions = None,
    wait: Wait = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Move a broker's replicas of a topic to another of its log directories."""

    async def work(cluster: Cluster) -> tuple[list[Row], list[str]]:
        (found,) = await describe_topics(cluster, [topic])
        wanted = [
            TopicPartition(topic, each.partition_index)
            for each in found.partitions
            if broker in each.replica_nodes and (not partition or each.partition_index in partition)
        ]
        refusals = await alter_log_dirs(cluster, broker, to, wanted)
        moving = {name for name, refused in refusals.items() if refused is None}
        if wait and moving:
            progress = WorkProgress(cluster.ports.clock, "moved", "replicas", len(moving))
            try:
                await _wait_moved(cluster, broker, moving, progress)
            finally:
                text = progress.end()
            say(text)
        elif moving:
            say(f"{counted(len(moving), 'replica')} being moved; `ottla logdir list -p` shows them")
        rows: dict[TopicPartition, Row] = {
            name: {
                "topic": name.topic,
                "partition": name.partition,
                "broker": broker,
                "directory": to,
            }
            for name in refusals
        }
        return accepted_rows(refusals, rows, ApiKey.ALTER_REPLICA_LOG_DIRS)

    rows, refusals = with_cluster(bootstrap, work)
    answer(context, output, rows)
    if refusals:
        fail("\n".join(refusals))


async def _wait_moved(
    cluster: Cluster, broker: int, moving: set[TopicPartition], progress: WorkProgress
) -> None:
    """Wait until all replicas are moved.

    Raises:
        Refused: a directory failed during the move.
    """
    while True:
        found = await describe_log_dirs(cluster, broker)
        failed = [each for each in found if each.error_code]
        arriving = replica_sizes(found, is_future=True)
        whole = replica_sizes(found)
        left = arriving.keys() & moving
        progress.done = len(moving) - len(left)
        progress.bytes_total = sum(whole.get(name, 0) for name in moving)
        missing = sum(max(0, whole.get(name, 0) - arriving[name]) for name in left)
        progress.bytes = progress.bytes_total - missing
        if not left:
            return
        if failed:
            raise Refused(failed[0].error_code, failed[0].log_dir)
        progress.show()
        await asyncio.sleep(POLL_S)
