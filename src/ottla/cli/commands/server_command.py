"""``ottla server`` in the list of commands; `ottla.cli.commands.server_arguments` parses its
arguments."""

import typer

from ottla.cli.commands.server_arguments import parse_arguments
from ottla.cli.commands.serving import serve as serve_node
from ottla.cli.host.supervisor import serve_host

app = typer.Typer(add_completion=False)


@app.command(
    "server",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def serve(context: typer.Context) -> None:
    """Run a node; SIGTERM and SIGINT stop it cleanly."""
    arguments = parse_arguments(context.args)
    if arguments.nodes is None:
        serve_node(arguments)
    else:
        serve_host(arguments)
