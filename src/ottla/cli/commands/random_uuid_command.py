"""``ottla random-uuid``: print a new id, as ``kafka-storage random-uuid`` does."""

import typer

from ottla.cli.options import OutputOption, answer, chosen
from ottla.cli.terminal.output import Output
from ottla.protocol.uuids import uuid_text
from ottla.runtime.randomness import SystemRandom

app = typer.Typer(add_completion=False)


@app.command("random-uuid")
def random_uuid(context: typer.Context, *, output: OutputOption = None) -> None:
    """Print a new id, for a cluster or a log directory."""
    made = uuid_text(SystemRandom().uuid())
    if chosen(context, output) is Output.TABLE:
        typer.echo(made)
    else:
        answer(context, output, {"uuid": made})
