"""``ottla server`` as the command line's library reads it; see `ottla.cli.server_words`."""

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.options import OutputOption, chosen
from ottla.cli.server_words import ServerWords
from ottla.cli.serving import serve as serve_words

app = typer.Typer(add_completion=False)


@app.command("server")
def serve(
    context: typer.Context,
    config: Annotated[Path, typer.Argument(help="The server.properties.")],
    *,
    override: Annotated[
        list[str] | None, typer.Option("--override", help="A setting of its own: key=value.")
    ] = None,
    stop_at_end_of_input: Annotated[
        bool,
        typer.Option("--stop-at-end-of-input", help="Stop when whoever holds stdin is gone."),
    ] = False,
    output: OutputOption = None,
) -> None:
    """Run a node; SIGTERM and SIGINT stop it in order."""
    form = chosen(context, output)
    serve_words(ServerWords(str(config), tuple(override or ()), stop_at_end_of_input, form))
