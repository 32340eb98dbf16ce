"""``ottla top``: a live view of throughput, lag, hot partitions and replicas in sync."""

import asyncio
import sys
from typing import Annotated

import typer

from ottla.cli.commands.group_lag import measured
from ottla.cli.commands.top_view import ROWS_DEFAULT, Seen, view
from ottla.cli.connecting.session import with_cluster
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    BootstrapOption,
    OutputOption,
    chosen,
    terminal_width,
)
from ottla.cli.terminal.failures import INTERRUPTED
from ottla.cli.terminal.output import Output
from ottla.cli.terminal.rendering import Row, render, render_line
from ottla.client.admin import describe_cluster, list_topics
from ottla.client.admin_groups import list_groups
from ottla.client.cluster import Cluster, Refused
from ottla.client.offset_spec import LATEST
from ottla.client.offsets import list_offsets
from ottla.operations.internal_topics import is_internal
from ottla.protocol.types import TopicPartition

GROUPS_MAX = 200
"""Groups are asked for one by one; of more, the first ones by name are shown."""

app = typer.Typer(add_completion=False)


@app.command("top")
def top(
    context: typer.Context,
    *,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.1, help="Seconds between two refreshes.")
    ] = 2.0,
    count: Annotated[
        int | None,
        typer.Option("--count", "-c", min=1, help="Stop after this many views with rates."),
    ] = None,
    rows: Annotated[
        int, typer.Option("--rows", "-r", min=1, help="Partitions and groups to show.")
    ] = ROWS_DEFAULT,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show throughput, hot partitions, replicas in sync and lag of groups until interrupted."""
    how = chosen(context, output)

    async def work(cluster: Cluster) -> None:
        before, shown = await _look(cluster, with_internal=internal), 0
        while count is None or shown < count:
            await asyncio.sleep(interval)
            now = await _look(cluster, with_internal=internal)
            _print(view(now, before, rows), how)
            before, shown = now, shown + 1

    try:
        with_cluster(bootstrap, work)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _print(found: Row, output: Output) -> None:
    if output is not Output.TABLE:
        sys.stdout.write(render_line(found, output))
    else:
        # On a terminal a view replaces the last one.
        head = "\x1b[H\x1b[2J" if sys.stdout.isatty() else ""
        sys.stdout.write(f"{head}{render(found, output, terminal_width())}\n")
    sys.stdout.flush()


async def _look(cluster: Cluster, *, with_internal: bool) -> Seen:
    topics = [each for each in await list_topics(cluster) if with_internal or not is_internal(each)]
    partitions = {
        TopicPartition(topic.name or "", each.partition_index): each
        for topic in topics
        for each in topic.partitions
    }
    leaders = {place: each.leader_id for place, each in partitions.items()}
    led = [place for place, leader in leaders.items() if leader >= 0]
    try:
        ends = await list_offsets(cluster, dict.fromkeys(led, LATEST))
    except Refused:
        ends = {}  # a topic was deleted, or a leader moved, since the list was made
    groups = [each.group_id for each in await list_groups(cluster, (), ())][:GROUPS_MAX]
    return Seen(
        asyncio.get_running_loop().time(),
        {place: end for place, end in ends.items() if end is not None},
        leaders,
        {
            place: (len(each.isr_nodes), len(each.replica_nodes))
            for place, each in partitions.items()
        },
        await measured(cluster, groups),
        tuple(
            each.broker_id for each in (await describe_cluster(cluster)).brokers if each.is_fenced
        ),
    )
