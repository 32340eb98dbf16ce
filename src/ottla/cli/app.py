"""The table of all ``ottla`` commands. A command's module is imported when the command is run."""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any, Final, Protocol, runtime_checkable

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from ottla.cli.connecting.connection_options import add_connection_options, moved_after_command
from ottla.cli.examples import add_examples
from ottla.cli.options import Common, OutputOption
from ottla.cli.terminal.failures import USAGE, error_text, report_errors_in, requested_output
from ottla.cli.terminal.output import Output
from ottla.cli.terminal.standard_streams import fail_with

PANELS: Final = {
    "Start": {
        "up": "ottla.cli.commands.up_command",
        "doctor": "ottla.cli.commands.doctor_command",
        "profile": "ottla.cli.commands.profile_command",
    },
    "Data": {
        "topic": "ottla.cli.commands.topic_command",
        "produce": "ottla.cli.commands.produce_command",
        "consume": "ottla.cli.commands.consume_command",
        "sql": "ottla.cli.commands.sql_command",
        "schema": "ottla.cli.commands.schema_command",
        "pipeline": "ottla.cli.commands.pipeline_command",
    },
    "Groups and transactions": {
        "group": "ottla.cli.commands.group_command",
        "share": "ottla.cli.commands.share_command",
        "txn": "ottla.cli.commands.txn_command",
        "dlq": "ottla.cli.commands.dlq_command",
    },
    "Security": {
        "user": "ottla.cli.commands.user_command",
        "acl": "ottla.cli.commands.acl_command",
        "quota": "ottla.cli.commands.quota_command",
        "token": "ottla.cli.commands.token_command",
        "cert": "ottla.cli.commands.cert_command",
    },
    "Operate": {
        "cluster": "ottla.cli.commands.cluster_command",
        "top": "ottla.cli.commands.top_command",
        "console": "ottla.cli.commands.console_command",
        "mcp": "ottla.cli.commands.mcp_command",
        "config": "ottla.cli.commands.config_command",
        "client-metrics": "ottla.cli.commands.client_metrics_command",
        "logdir": "ottla.cli.commands.logdir_command",
        "tier": "ottla.cli.commands.tier_command",
        "server": "ottla.cli.commands.server_command",
        "format": "ottla.cli.commands.format_command",
    },
    "Move": {
        "migrate": "ottla.cli.commands.migrate_command",
        "mirror": "ottla.cli.commands.mirror_command",
    },
    "Files": {
        "log": "ottla.cli.commands.log_command",
        "random-uuid": "ottla.cli.commands.random_uuid_command",
    },
}
"""The panels of ``ottla --help``: the modules of their commands."""
COMMANDS: Final = {name: module for panel in PANELS.values() for name, module in panel.items()}


@runtime_checkable
class _UsageError(Protocol):
    """An error of a command line. typer exports no common class of them."""

    def format_message(self) -> str:
        """Return the error without the usage."""


class _Table(TyperGroup):
    """Look up a command in the table above and import its module."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - typer brings its own click
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - as above
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        command: Any = typer.main.get_command(import_module(module).app)
        command.name = cmd_name
        command.rich_help_panel = next(
            panel for panel, names in PANELS.items() if cmd_name in names
        )
        add_connection_options(command)
        add_examples(command, cmd_name)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - as above
        """Find the command to run, or fail with the names that are most like the given one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = get_close_matches(args[0], COMMANDS)
            names = " or ".join(repr(each) for each in close)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {names}?" if close else ""))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as above
        """Run a command. A file, a disk or an output that fails is reported in one line."""
        try:
            found = super().invoke(ctx)
            sys.stdout.flush()
        except OSError as error:
            fail_with(error)
        return found

    def main(self, args: Sequence[str] | None = None, *more: Any, **extra: Any) -> Any:  # noqa: ANN401
        """Run a command line. Errors in it are printed in the output format that it asks for."""
        given = moved_after_command(sys.argv[1:] if args is None else args)
        output = requested_output(given)
        report_errors_in(output)
        if output is Output.TABLE or extra.get("standalone_mode") is False:
            return super().main(given, *more, **extra)
        try:
            code = super().main(given, *more, **{**extra, "standalone_mode": False})
        except TyperException as error:
            if not isinstance(error, _UsageError):
                raise
            sys.stderr.write(error_text(error.format_message(), output, USAGE))
            sys.exit(USAGE)
        sys.exit(code if isinstance(code, int) else 0)


app = typer.Typer(
    name="ottla",
    cls=_Table,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(is_wanted: bool) -> None:
    """Print the version; `ottla.cli.main` handles the case without other options."""
    if is_wanted:
        from importlib.metadata import version

        typer.echo(f"ottla {version('ottla')}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    *,
    output: OutputOption = None,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """An Apache Kafka-compatible broker and its command-line tools."""
    context.obj = Common(output)
