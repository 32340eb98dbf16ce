"""``ottla mirror``: copy topics from one cluster to another, continuously and exactly once."""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, TypeVar

import typer

from ottla.cli.connecting.connection_settings import BOOTSTRAP, options_of, read_properties
from ottla.cli.connecting.missing_rights import find_missing_right, own_principal
from ottla.cli.connecting.session import client_ports, parse_bootstrap
from ottla.cli.options import OutputOption, answer, chosen, say
from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.output import Output
from ottla.cli.terminal.progress import LiveLine
from ottla.cli.terminal.rendering import Row, render_line
from ottla.client.admin import DEFAULT
from ottla.client.cluster import ClientOptions, Cluster, Refused
from ottla.mirror.appender import ForeignWrite
from ottla.mirror.following import MirrorStatus, read_status
from ottla.mirror.metadata_sync import Clusters
from ottla.mirror.records_of_state import BadState
from ottla.mirror.service import (
    Mirror,
    MirrorOptions,
    MirrorRefused,
    Progress,
    SwitchedOver,
    open_mirror,
)
from ottla.mirror.state_log import TakenOver
from ottla.operations.counting import plural
from ottla.operations.sizes import human
from ottla.protocol.faults import Fault
from ottla.runtime.ports import Address
from ottla.security.sasl.credentials import LoginFailed

app = typer.Typer(
    help="Copy topics from one cluster to another.", no_args_is_help=True, add_completion=False
)
T = TypeVar("T")

_FAILURES: Final = (
    MirrorRefused, TakenOver, ForeignWrite, BadState, Refused, LoginFailed, Fault, OSError,
)  # fmt: skip

FromOption = Annotated[
    str,
    typer.Option("--from", metavar="FILE", help="Client properties of the source cluster."),
]
ToOption = Annotated[
    str, typer.Option("--to", metavar="FILE", help="Client properties of the target cluster.")
]
NameOption = Annotated[
    str, typer.Option("--name", help="The mirror's name; its state topic is ottla-mirror.NAME.")
]
TopicsOption = Annotated[
    str,
    typer.Option("--topics", metavar="REGEX", help="Which topics: matches whole names."),
]
RefreshOption = Annotated[
    float,
    typer.Option("--refresh", help="Seconds between looks for new topics, settings and offsets."),
]
ReplicasOption = Annotated[
    int, typer.Option("--replication-factor", help="Of topics that are created; -1: the default.")
]
FillOption = Annotated[
    int,
    typer.Option(
        "--fill-max",
        help="Preserve offsets of topics that begin at up to this offset, by filling the target.",
    ),
]
ExistingOption = Annotated[
    bool, typer.Option("--into-existing", help="Copy behind records that the target has.")
]
AclsOption = Annotated[bool, typer.Option("--acls/--no-acls", help="Copy ACLs.")]
GroupsOption = Annotated[
    bool, typer.Option("--groups/--no-groups", help="Copy committed offsets of groups.")
]


@app.command("run")
def run(  # noqa: PLR0913 - one per option
    context: typer.Context,
    *,
    source: FromOption,
    target: ToOption,
    topics: TopicsOption = ".*",
    name: NameOption = "mirror",
    refresh: RefreshOption = 10.0,
    replication_factor: ReplicasOption = DEFAULT,
    fill_max: FillOption = 100_000_000,
    into_existing: ExistingOption = False,
    acls: AclsOption = True,
    groups: GroupsOption = True,
    output: OutputOption = None,
) -> None:
    """Copy until interrupted: records, topics, settings, ACLs and committed offsets.

    A mirror that was stopped or killed goes on where it was. Progress is on stderr.
    """
    options = MirrorOptions(
        name=name,
        topics=_pattern(topics),
        refresh_s=refresh,
        replication_factor=replication_factor,
        fill_max=fill_max,
        may_append=into_existing,
        copies_acls=acls,
        copies_groups=groups,
    )
    how = chosen(context, output)

    totals = ["nothing was copied"]

    async def work(clusters: Clusters) -> None:
        mirror = await open_mirror(clusters, options)
        try:
            await mirror.run(lambda each: _report(each, how))
        finally:
            totals[:] = [_progress_text(mirror)]

    try:
        _with_clusters(source, target, work)
    except KeyboardInterrupt:
        say(f"stopped: {totals[0]}; run it again to go on")
        raise typer.Exit(130) from None


@app.command("status")
def status(
    context: typer.Context,
    *,
    source: FromOption,
    target: ToOption,
    name: NameOption = "mirror",
    sample: Annotated[float, typer.Option("--sample", help="Seconds to measure rates over.")] = 1.0,
    output: OutputOption = None,
) -> None:
    """Show how far each partition is copied, its lag and its rate."""
    found = _with_clusters(source, target, lambda each: read_status(each, name, sample))
    answer(context, output, _status_rows(found))
    lag = sum(each.lag for each in found.partitions)
    ended = "; switched over" if found.is_closed else ""
    say(f"{plural(len(found.partitions), 'partition')}, lag {lag}{ended}")


@app.command("switch-over")
def switch_over(  # noqa: PLR0913 - one per option
    context: typer.Context,
    *,
    source: FromOption,
    target: ToOption,
    topics: TopicsOption = ".*",
    name: NameOption = "mirror",
    replication_factor: ReplicasOption = DEFAULT,
    quiet: Annotated[
        float, typer.Option("--quiet", help="Seconds that the source must not have grown.")
    ] = 5.0,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait.")] = 600.0,
    output: OutputOption = None,
) -> None:
    """Copy the rest, commit the groups' offsets a last time, and end the mirror.

    Stop the producers of the source first. Takes over from a running `ottla mirror run`, which
    stops. Exit code 1: not caught up in time; nothing was ended, run it again. A mirror that was
    switched over already stays as it is.
    """
    options = MirrorOptions(
        name=name,
        topics=_pattern(topics),
        refresh_s=1.0,
        replication_factor=replication_factor,
    )

    async def work(clusters: Clusters) -> tuple[list[str], Mirror] | MirrorStatus:
        try:
            mirror = await open_mirror(clusters, options)
        except SwitchedOver:
            return await read_status(clusters, name, sample_s=0)
        line = LiveLine(clusters.source.ports.clock)

        def report(each: Mirror) -> None:
            if line.is_due():
                line.show(_progress_text(each))

        try:
            behind = await mirror.switch_over(report, quiet_s=quiet, timeout_s=timeout)
        finally:
            line.clear()
        return behind, mirror

    done = _with_clusters(source, target, work)
    if isinstance(done, MirrorStatus):
        _confirm(context, output, done)
        return
    behind, mirror = done
    if behind:
        reasons = "; ".join([*behind[:5], *(f"{k}: {v}" for k, v in mirror.problems.items())])
        fail(f"not caught up after {timeout:.0f} s: {reasons}")
    answer(context, output, [_progress_row(each) for each in mirror.progress()])
    say(
        f"switched over: {plural(len(mirror.copier.links), 'partition')} copied, offsets of "
        f"{plural(mirror.groups, 'group')} committed. Now start consumers and "
        "producers with the target's bootstrap.servers; do not write to the source any more."
    )
    for subject, problem in mirror.problems.items():
        say(f"warning: {subject}: {problem}")


def _confirm(context: typer.Context, output: OutputOption, found: MirrorStatus) -> None:
    """Say that a mirror was switched over before; exit 1 if the source has grown since."""
    answer(context, output, _status_rows(found))
    late = [f"{each.partition}: {each.lag}" for each in found.partitions if each.lag > 0]
    if late:
        fail(
            "switched over before, but the source has records that were written since and are not "
            f"copied ({'; '.join(late[:5])}): stop its producers, and write those records to the "
            "target by other means"
        )
    say("switched over already; nothing was changed")


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise typer.BadParameter(str(error), param_hint="--topics") from error


def _with_clusters(source: str, target: str, work: Callable[[Clusters], Awaitable[T]]) -> T:
    """Do ``work`` with both clusters; exit 1 where that fails."""
    ends = [_client_of(source, "--from"), _client_of(target, "--to")]

    async def main() -> T:
        opened = [Cluster.open(client_ports(), *each) for each in ends]
        async with await opened[0] as one, await opened[1] as other:
            try:
                return await work(Clusters(one, other))
            except Refused as refused:
                sides = (("--from", source, one), ("--to", target, other))
                hint = next(filter(None, (_hint(refused, *side) for side in sides)), "")
                raise MirrorRefused(f"{refused}{hint}") from refused

    try:
        return asyncio.run(main())
    except BrokenPipeError:
        raise
    except _FAILURES as error:
        fail(str(error) or type(error).__name__)


def _hint(refused: Refused, option: str, path: str, cluster: Cluster) -> str:
    """Return the right that was missing, if it was, and the last request to a cluster needs it."""
    right = find_missing_right(refused, cluster.last_api)
    if right is None:
        return ""
    return f"{right.text(own_principal(read_properties(path, option)))}, in the cluster of {option}"


def _client_of(path: str, option: str) -> tuple[list[Address], ClientOptions]:
    properties = read_properties(path, option)
    if not properties.get(BOOTSTRAP):
        raise typer.BadParameter(f"{path}: {BOOTSTRAP} is not set", param_hint=option)
    client_id = properties.get("client.id") or "ottla-mirror"
    options = ClientOptions(client_id=client_id, connection=options_of(properties))
    return parse_bootstrap(properties[BOOTSTRAP]), options


def _report(mirror: Mirror, output: Output) -> None:
    """Print a line about the progress; as JSON or YAML on stdout, for people on stderr."""
    if output is not Output.TABLE:
        progress, copied = mirror.progress(), mirror.copier.copied
        lag = sum(each.lag for each in progress)
        row: Row = {
            "partitions": len(progress),
            "lag": lag,
            "records": copied.records,
            "bytes": copied.bytes,
            "groups": mirror.groups,
            "problems": dict(mirror.problems),
        }
        sys.stdout.write(render_line(row, output))
        sys.stdout.flush()
        return
    say(_progress_text(mirror))
    for subject, problem in mirror.problems.items():
        say(f"warning: {subject}: {problem}")


def _progress_text(mirror: Mirror) -> str:
    progress, copied = mirror.progress(), mirror.copier.copied
    lag = sum(each.lag for each in progress)
    return (
        f"{plural(len(progress), 'partition')}, lag {lag}, {plural(copied.records, 'record')} "
        f"({human(copied.bytes)}) copied, offsets of {plural(mirror.groups, 'group')}"
    )


def _status_rows(found: MirrorStatus) -> list[Row]:
    return [
        {
            "partition": str(each.partition),
            "position": each.position,
            "lag": each.lag,
            "rate": round(each.rate, 1),
            "target_end": each.target_end,
            "offsets": "preserved" if each.is_identity else "translated",
            "problem": each.problem,
        }
        for each in found.partitions
    ]


def _progress_row(each: Progress) -> Row:
    return {
        "partition": str(each.partition),
        "position": each.position,
        "lag": each.lag,
        "offsets": "preserved" if each.is_identity else "translated",
    }
