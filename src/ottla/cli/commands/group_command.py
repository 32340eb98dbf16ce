"""``ottla group``: groups of every type, their offsets, lag and rebalances."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.commands.group_lag import Place, Position, lag_rows, measured
from ottla.cli.commands.reset_options import (
    AllTopics,
    ByDuration,
    Execute,
    FromFileOption,
    ShiftByOption,
    TargetOptions,
    ToDatetime,
    ToOffsetOption,
    Topics,
    resetting_of,
)
from ottla.cli.connecting.session import describe_refusals, first_error, with_cluster
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    BootstrapOption,
    OutputOption,
    answer,
    answer_each,
    chosen,
    say,
)
from ottla.cli.terminal.completion import complete_groups
from ottla.cli.terminal.failures import fail, naming
from ottla.cli.terminal.output import Output
from ottla.cli.terminal.progress import phase
from ottla.cli.terminal.rendering import Row
from ottla.client.admin_groups import (
    SHARE,
    commit_offsets,
    committed_offsets,
    delete_groups,
    find_group,
    list_groups,
)
from ottla.client.cluster import Cluster, Refused
from ottla.operations.counting import plural
from ottla.operations.escaping import escape
from ottla.operations.group_describing import described, listed
from ottla.operations.group_explaining import explained
from ottla.operations.reset_plan import PlannedOffset, reset_summary, written
from ottla.operations.resetting import plan_of
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import TopicPartition

app = typer.Typer(
    help="List, describe, reset and delete groups of every type.",
    no_args_is_help=True,
    add_completion=False,
)

Name = Annotated[str, typer.Argument(help="The group.", autocompletion=complete_groups)]
Names = Annotated[list[str], typer.Argument(help="The groups.", autocompletion=complete_groups)]


@app.command("list")
def show_list(
    context: typer.Context,
    *,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Show only groups in this state: Stable, Empty, ..."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--type", help="Show only groups of this type: classic, consumer, share, streams."
        ),
    ] = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """List groups."""
    found = with_cluster(bootstrap, lambda cluster: list_groups(cluster, state or (), kind or ()))
    is_filtered = bool(state or kind)
    empty = "no groups match" if is_filtered else "no groups"
    answer(context, output, [listed(each) for each in found], empty=empty)


@app.command("describe")
def describe(
    context: typer.Context,
    names: Names,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show members, assignments, committed offsets and lag."""

    async def work(cluster: Cluster) -> list[Row]:
        return [await described(cluster, name) for name in names]

    answer_each(context, output, with_cluster(bootstrap, work))


@app.command("lag")
def lag(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(help="The groups; all groups if none is given.")
    ] = None,
    *,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it again, with rates, until interrupted.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between two refreshes.")
    ] = 2.0,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show the lag of groups by partition; with --watch, rates and the time to catch up."""

    async def work(cluster: Cluster) -> None:
        loop, before, at = asyncio.get_running_loop(), dict[Place, Position](), 0.0
        while True:
            wanted = names or [each.group_id for each in await list_groups(cluster, (), ())]
            now, then = await measured(cluster, wanted), loop.time()
            rows = lag_rows(now, before, then - at)
            answer(context, output, rows, empty="no committed offsets")
            if not watch:
                return
            before, at = now, then
            await asyncio.sleep(interval)

    try:
        with_cluster(bootstrap, work)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command("explain")
def explain(
    context: typer.Context,
    name: Name,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Explain why a group rebalanced last, and which members it waits for and since when."""
    found = with_cluster(bootstrap, lambda cluster: explained(cluster, name, say))
    if chosen(context, output) is not Output.TABLE:
        answer(context, output, found)
        return
    sentences = found["sentences"]
    assert isinstance(sentences, list)
    typer.echo("\n".join(escape(str(each)) for each in sentences))


@app.command("delete")
def delete(
    context: typer.Context,
    names: Names,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Delete groups without members, and their committed offsets."""

    async def work(cluster: Cluster) -> tuple[dict[str, Refused | None], list[str]]:
        reply = await delete_groups(cluster, names)
        return reply, await describe_refusals(cluster, reply.values())

    reply, refusals = with_cluster(bootstrap, work)
    answer(context, output, [{"deleted": name} for name, refused in reply.items() if not refused])
    if refusals:
        fail("\n".join(refusals), first_error(reply.values()))


@app.command("reset-offsets")
def reset_offsets(  # noqa: PLR0913 - one per option
    context: typer.Context,
    name: Name,
    *,
    topics: Topics = None,
    all_topics: AllTopics = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="Move to the first record.")
    ] = False,
    to_latest: Annotated[
        bool,
        typer.Option(
            "--to-latest", help="Move to the end of the partition (the next offset to be written)."
        ),
    ] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="Keep the committed offset, moved into range.")
    ] = False,
    to_offset: ToOffsetOption = None,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    shift_by: ShiftByOption = None,
    from_file: FromFileOption = None,
    export: Annotated[
        Path | None,
        typer.Option("--export", help="Also write the plan to a file, for --from-file."),
    ] = None,
    execute: Execute = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Plan new committed offsets for a group; with --execute, commit them."""
    target = TargetOptions(
        is_earliest=to_earliest,
        is_latest=to_latest,
        is_current=to_current,
        offset=to_offset,
        datetime=to_datetime,
        duration=by_duration,
        shift=shift_by,
        file=from_file,
    )
    resetting = resetting_of(name, target, topics, all_topics)

    async def work(cluster: Cluster) -> list[PlannedOffset]:
        await _check_resettable(cluster, name)
        current = await committed_offsets(cluster, name)
        planned = await plan_of(cluster, resetting, current)
        if execute:
            with phase(cluster.ports.clock, f"committing {plural(len(planned), 'offset')}"):
                offsets = {each.place: each.new for each in planned}
                _check_all(await commit_offsets(cluster, name, offsets))
        return planned

    planned = with_cluster(bootstrap, work)
    answer(context, output, [planned_row(each) for each in planned])
    if export is not None:
        with naming(export):
            export.write_text(written(planned), encoding="utf-8")
    say(reset_summary(name, planned, is_done=execute))


async def _check_resettable(cluster: Cluster, name: str) -> None:
    """Reject a group with members, which would overwrite the offsets. The group may be new."""
    try:
        found = await find_group(cluster, name)
    except Refused as refused:
        if refused.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return
    if found.type == SHARE:
        message = "it is a share group; see `ottla share reset-offsets`"
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, name, message)
    if found.state not in ("Empty", "Dead"):
        raise Refused(ErrorCode.NON_EMPTY_GROUP, name, f"it is {found.state}; stop its members")


def planned_row(planned: PlannedOffset) -> Row:
    """Return one line of a plan."""
    return {
        "topic": planned.place.topic,
        "partition": planned.place.partition,
        "current": planned.current,
        "new": planned.new,
        "note": planned.note,
    }


def _check_all(reply: dict[TopicPartition, Refused | None]) -> None:
    refusals = [refused for refused in reply.values() if refused is not None]
    if refusals:
        raise refusals[0]
