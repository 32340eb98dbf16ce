"""``ottla format``: format a node's log directories before its first start.

The options are those of Kafka's ``kafka-storage format``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from ottla.cli.connecting.settings_file import load_settings
from ottla.cli.host.plan import PORT_STEP, BadHostPlan, plan_host
from ottla.cli.options import OutputOption, answer, chosen, say
from ottla.cli.terminal.failures import fail, reason_of
from ottla.cli.terminal.output import Output
from ottla.cli.terminal.rendering import Plain
from ottla.cli.terminal.text_files import UnreadableFile, read_text
from ottla.config.loading import Loaded
from ottla.node.directories.format_plan import (
    BadFormatOptions,
    FormatOptions,
    Quorum,
    plan_format,
)
from ottla.node.directories.formatting import FormatRefused, described, format_node
from ottla.node.directories.node_directories import all_directories
from ottla.node.directories.restoring import RestoreOptions, RestoreRefused, restore_owner
from ottla.protocol.types import NodeId
from ottla.protocol.uuids import parse_uuid, uuid_text
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import RealDisk
from ottla.runtime.randomness import SystemRandom
from ottla.runtime.system_calls import close_to_others

app = typer.Typer(add_completion=False)


FileArgument = Annotated[
    Path | None, typer.Argument(help="The server.properties, as for `ottla server`.")
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="The server.properties, as in Kafka's tool.")
]
ClusterIdOption = Annotated[
    str | None,
    typer.Option(
        "--cluster-id", "-t", help="The cluster's id, the same on all nodes; default: a new one."
    ),
]
NodesOption = Annotated[
    int | None,
    typer.Option("--nodes", help="Format the directories of `ottla server --nodes` N."),
]
PortStepOption = Annotated[
    int, typer.Option("--port-step", help="Distance of the ports of two nodes (--nodes).")
]
ReleaseOption = Annotated[
    str | None, typer.Option("--release-version", "-r", help="Feature levels of this release.")
]
FeatureOption = Annotated[
    list[str] | None,
    typer.Option("--feature", "-f", help="Feature level: name=level; may be repeated."),
]
ScramOption = Annotated[
    list[str] | None,
    typer.Option(
        "--add-scram",
        "-S",
        metavar="USER",
        help="A user as above, or @FILE with one on each line: other users can see command lines.",
    ),
]
RestoreOption = Annotated[
    bool,
    typer.Option(
        "--restore",
        help="Format nothing: write a lost meta.properties again, with the ids that it had.",
    ),
]
DirectoryIdOption = Annotated[
    str | None,
    typer.Option(
        "--directory-id", help="With --restore: the directory's id, if it cannot be found."
    ),
]


@app.command("format")
def format_directories(  # noqa: PLR0913 - one per option of Kafka's tool
    context: typer.Context,
    file: FileArgument = None,
    *,
    config: ConfigOption = None,
    cluster_id: ClusterIdOption = None,
    standalone: Annotated[
        bool, typer.Option("--standalone", "-s", help="This controller is the only voter.")
    ] = False,
    initial_controllers: Annotated[
        str | None,
        typer.Option(
            "--initial-controllers", "-I", metavar="VOTERS", help="The first voters, as above."
        ),
    ] = None,
    no_initial_controllers: Annotated[
        bool, typer.Option("--no-initial-controllers", "-N", help="Join a quorum later.")
    ] = False,
    feature: FeatureOption = None,
    release_version: ReleaseOption = None,
    add_scram: ScramOption = None,
    ignore_formatted: Annotated[
        bool,
        typer.Option(
            "--ignore-formatted", "-g", help="Skip directories that are already formatted."
        ),
    ] = False,
    restore: RestoreOption = False,
    directory_id: DirectoryIdOption = None,
    nodes: NodesOption = None,
    port_step: PortStepOption = PORT_STEP,
    output: OutputOption = None,
) -> None:
    """Format a node's log directories; required before the first start.

    The first voters are written ID@HOST:PORT:DIRECTORY-ID,... and a SCRAM user
    SCRAM-SHA-256=\\[name=NAME,password=PASSWORD].
    """
    close_to_others()
    source = _source_of(file, config)
    if restore:
        _restore(context, output, load_settings(source, []), cluster_id, directory_id)
        return
    quorum = Quorum(standalone, initial_controllers, no_initial_controllers)
    options = FormatOptions(
        cluster_id=cluster_id or uuid_text(SystemRandom().uuid()),
        quorum=quorum,
        features=tuple(feature or ()),
        release_version=release_version,
        scram=_scram_of(add_scram or ()),
        is_formatted_ignored=ignore_formatted,
    )
    done = [
        found
        for at, loaded in enumerate(_nodes_of(source, nodes, port_step))
        for found in _carry_out(loaded, options if at == 0 else _options_of_others(options))
    ]
    if cluster_id is None:
        say(f"the cluster's id is new; format its other nodes with -t {options.cluster_id}")
    _print(context, output, done)


def _print(context: typer.Context, output: OutputOption, done: list[tuple[str, str]]) -> None:
    if chosen(context, output) is Output.TABLE:
        for name, path in done:
            typer.echo(f"{name}: {path}")
    else:
        answer(context, output, [{"directory": path, "state": name} for name, path in done])


def _restore(
    context: typer.Context,
    output: OutputOption,
    loaded: Loaded,
    cluster_id: str | None,
    directory_id: str | None,
) -> None:
    """Write the lost meta.properties of a directory, and print it."""
    try:
        known = None if directory_id is None else parse_uuid(directory_id)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--directory-id") from error
    directories = all_directories(loaded.broker)
    node_id = NodeId(loaded.broker.node_id)
    try:
        path, meta = restore_owner(
            RealDisk(), RestoreOptions(node_id, directories, cluster_id, known)
        )
    except (RestoreRefused, OSError) as error:
        fail(str(error))
    assert meta.directory_id is not None
    row: dict[str, Plain] = {
        "directory": path,
        "node_id": meta.node_id,
        "cluster_id": meta.cluster_id,
        "directory_id": uuid_text(meta.directory_id),
    }
    answer(context, output, row)


def _source_of(file: Path | None, config: Path | None) -> Path:
    """Return the settings file, given as an argument or as an option."""
    found = file or config
    if found is None or (file and config):
        raise typer.BadParameter("give the server.properties, once", param_hint="--config")
    return found


def _scram_of(users: Sequence[str]) -> tuple[str, ...]:
    """Return the users of ``--add-scram``; ``@FILE`` stands for the lines of a file."""
    found: list[str] = []
    for text in users:
        if not text.startswith("@"):
            found.append(text)
            continue
        try:
            lines = read_text(text[1:]).splitlines()
        except UnreadableFile as error:
            raise typer.BadParameter(str(error), param_hint="--add-scram") from error
        found += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return tuple(found)


def _nodes_of(config: Path, count: int | None, port_step: int) -> list[Loaded]:
    """Return the settings of the node, or of each node of this machine."""
    loaded = load_settings(config, [])
    if count is None:
        return [loaded]
    try:
        nodes = plan_host(loaded, count, port_step)
    except BadHostPlan as error:
        fail(str(error))
    return [load_settings(config, list(node.overrides)) for node in nodes]


def _options_of_others(options: FormatOptions) -> FormatOptions:
    """Return the options of all nodes but the first one, which are only brokers."""
    if not options.quorum.given:
        return options
    return replace(options, quorum=Quorum(has_no_initial_controllers=True))


def _carry_out(loaded: Loaded, options: FormatOptions) -> list[tuple[str, str]]:
    """Format the directories and return the result of each; warnings go to stderr."""
    random = SystemRandom()
    try:
        plan = plan_format(loaded, options, random)
        formatted = format_node(RealDisk(), random, SystemClock().now(), plan)
    except (BadFormatOptions, FormatRefused, OSError) as error:
        fail(reason_of(error))
    if formatted.made:
        say("\n".join(described(plan)))
    assert set(all_directories(loaded.broker)) == {*formatted.ignored, *formatted.made}
    ignored = [("already formatted", path) for path in formatted.ignored]
    return ignored + [("formatted", path) for path in formatted.made]
