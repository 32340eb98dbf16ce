"""The commands of ``ottla``, as one table."""

import typer

from ottla.cli.format_command import format_directories
from ottla.cli.server_command import serve

app = typer.Typer(
    name="ottla",
    help="An Apache Kafka-compatible broker.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("format")(format_directories)
app.command("server")(serve)


@app.callback()
def _options() -> None:
    """An Apache Kafka-compatible broker."""
