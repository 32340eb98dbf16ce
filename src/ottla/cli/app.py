"""The table of all ``ottla`` commands. A command's module is imported when the command is run."""

from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from ottla.cli.connection_options import add_connection_options
from ottla.cli.options import Common, OutputOption

COMMANDS: Final = {
    "up": "ottla.cli.up_command",
    "topic": "ottla.cli.topic_command",
    "produce": "ottla.cli.produce_command",
    "consume": "ottla.cli.consume_command",
    "config": "ottla.cli.config_command",
    "client-metrics": "ottla.cli.client_metrics_command",
    "cluster": "ottla.cli.cluster_command",
    "group": "ottla.cli.group_command",
    "share": "ottla.cli.share_command",
    "txn": "ottla.cli.txn_command",
    "user": "ottla.cli.user_command",
    "acl": "ottla.cli.acl_command",
    "quota": "ottla.cli.quota_command",
    "token": "ottla.cli.token_command",
    "cert": "ottla.cli.cert_command",
    "profile": "ottla.cli.profile_command",
    "pipeline": "ottla.cli.pipeline_command",
    "migrate": "ottla.cli.migrate_command",
    "mirror": "ottla.cli.mirror_command",
    "logdir": "ottla.cli.logdir_command",
    "tier": "ottla.cli.tier_command",
    "log": "ottla.cli.log_command",
    "doctor": "ottla.cli.doctor_command",
    "server": "ottla.cli.server_command",
    "format": "ottla.cli.format_command",
}


class _Table(TyperGroup):
    """Look up a command in the table above and import its module."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - typer brings its own click
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - as above
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        command = typer.main.get_command(import_module(module).app)
        command.name = cmd_name
        add_connection_options(command)
        return command


app = typer.Typer(
    name="ottla",
    cls=_Table,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(is_wanted: bool) -> None:
    """Print the version; `ottla.cli.main` handles the case without other options."""
    if is_wanted:
        typer.echo(f"ottla {version('ottla')}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    *,
    output: OutputOption = None,
    show_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Say which.")
    ] = False,
) -> None:
    """An Apache Kafka-compatible broker and its command-line tools."""
    context.obj = Common(output)
