"""``ottla server`` as the command line's library reads it; see `ottla.cli.server_words`."""

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.options import OutputOption, chosen
from ottla.cli.server_words import ServerWords
from ottla.cli.serving import serve as serve_words
from ottla.cli.settings_file import fail

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
    rejoin_quorum: Annotated[
        bool,
        typer.Option(
            "--rejoin-quorum",
            help="Set damaged metadata aside and fetch it again from the other voters.",
        ),
    ] = False,
    truncate_metadata_at: Annotated[
        int | None,
        typer.Option(
            "--truncate-metadata-at",
            min=0,
            help="Give up all metadata from this offset on, where the log is damaged there.",
        ),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Run a node; SIGTERM and SIGINT stop it in order."""
    if rejoin_quorum and truncate_metadata_at is not None:
        fail("--rejoin-quorum and --truncate-metadata-at exclude each other.")
    serve_words(
        ServerWords(
            str(config),
            tuple(override or ()),
            stop_at_end_of_input,
            chosen(context, output),
            rejoin_quorum,
            truncate_metadata_at,
        )
    )
