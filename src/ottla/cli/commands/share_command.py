"""``ottla share``: share groups (KIP-932), their offsets and lag."""

from typing import Annotated

import typer

from ottla.cli.commands.group_command import Name, Names, planned_row
from ottla.cli.commands.reset_options import (
    AllTopics,
    ByDuration,
    Execute,
    TargetOptions,
    ToDatetime,
    Topics,
    resetting_of,
)
from ottla.cli.connecting.session import permission_hint, with_cluster
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    BootstrapOption,
    OutputOption,
    answer,
    answer_each,
    say,
)
from ottla.cli.terminal.completion import complete_topics
from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.output import Output
from ottla.cli.terminal.rendering import Row
from ottla.client.admin_groups import SHARE, delete_groups, find_group, list_groups
from ottla.client.admin_share import alter_share_offsets, delete_share_offsets, share_offsets
from ottla.client.cluster import Cluster, Refused
from ottla.operations.group_describing import described, listed
from ottla.operations.reset_plan import PlannedOffset, reset_summary
from ottla.operations.resetting import plan_of
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode

app = typer.Typer(
    help="List, describe, reset and delete share groups (queues over topics).",
    no_args_is_help=True,
    add_completion=False,
)


@app.command("list")
def show_list(
    context: typer.Context,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """List share groups."""
    found = with_cluster(bootstrap, lambda cluster: list_groups(cluster, types=[SHARE]))
    answer(context, output, [listed(each) for each in found], empty="no share groups")


@app.command("describe")
def describe(
    context: typer.Context,
    names: Names,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show members, assignments, start offsets and lag."""

    async def work(cluster: Cluster) -> list[Row]:
        for name in names:
            await _check_shared(cluster, name)
        return [await described(cluster, name) for name in names]

    answer_each(context, output, with_cluster(bootstrap, work))


@app.command("offsets")
def offsets(
    context: typer.Context,
    name: Name,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show the start offset of each partition, and the lag from there."""
    found = with_cluster(bootstrap, lambda cluster: share_offsets(cluster, name))
    rows: list[Row] = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "start": each.start,
            "lag": each.lag,
            "leader_epoch": each.leader_epoch,
        }
        for place, each in found.items()
    ]
    answer(context, output, rows, empty=f"{name} has no offsets")


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
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    execute: Execute = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Plan new start offsets for a share group; with --execute, apply them."""
    target = TargetOptions(
        is_earliest=to_earliest,
        is_latest=to_latest,
        datetime=to_datetime,
        duration=by_duration,
    )
    resetting = resetting_of(name, target, topics, all_topics)

    async def work(cluster: Cluster) -> list[PlannedOffset]:
        await _check_shared(cluster, name, is_empty=True)
        found = await share_offsets(cluster, name)
        current = {place: each.start for place, each in found.items() if each.start is not None}
        planned = await plan_of(cluster, resetting, current)
        if execute:
            starts = {each.place: each.new for each in planned}
            for refused in (await alter_share_offsets(cluster, name, starts)).values():
                if refused is not None:
                    raise refused
        return planned

    planned = with_cluster(bootstrap, work)
    answer(context, output, [planned_row(each) for each in planned])
    say(reset_summary(name, planned, is_done=execute))


@app.command("delete-offsets")
def delete_offsets(
    context: typer.Context,
    name: Name,
    topics: Annotated[
        list[str], typer.Argument(help="The topics.", autocompletion=complete_topics)
    ],
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Delete the offsets of a group without members in the given topics."""
    reply = with_cluster(bootstrap, lambda cluster: delete_share_offsets(cluster, name, topics))
    _tell(context, output, reply, ApiKey.DELETE_SHARE_GROUP_OFFSETS)


@app.command("delete")
def delete(
    context: typer.Context,
    names: Names,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Delete share groups without members, and their offsets."""

    async def work(cluster: Cluster) -> dict[str, Refused | None]:
        for name in names:
            await _check_shared(cluster, name)
        return await delete_groups(cluster, names)

    _tell(context, output, with_cluster(bootstrap, work), ApiKey.DELETE_GROUPS)


def _tell(
    context: typer.Context, output: Output | None, reply: dict[str, Refused | None], api: ApiKey
) -> None:
    answer(context, output, [{"deleted": name} for name, refused in reply.items() if not refused])
    refusals = [f"{each}{permission_hint(each, api)}" for each in reply.values() if each]
    if refusals:
        fail("\n".join(refusals))


async def _check_shared(cluster: Cluster, name: str, *, is_empty: bool = False) -> None:
    """Reject a group of another type and, if requested, a group with members."""
    found = await find_group(cluster, name)
    if found.type != SHARE:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, name, f"it is a {found.type} group")
    if is_empty and found.state != "Empty":
        raise Refused(ErrorCode.NON_EMPTY_GROUP, name, f"it is {found.state}; stop its members")
