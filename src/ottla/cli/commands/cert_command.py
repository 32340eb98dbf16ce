"""``ottla cert``: certificates for development."""

import re
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.options import OutputOption, answer
from ottla.cli.terminal.failures import fail
from ottla.runtime.clock import SystemClock
from ottla.security.certificate_authority import CERTIFICATE_DAYS, BadAuthority
from ottla.security.certificate_files import create_certificate

app = typer.Typer(help="Certificates for development.", no_args_is_help=True, add_completion=False)


@app.callback()
def certificates() -> None:
    """Certificates for development."""


@app.command("create")
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Common name; also the base name of the files.")],
    *,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="DNS name or IP address of the server; omit for a client."),
    ] = None,
    directory: Annotated[
        Path, typer.Option("--dir", "-d", help="Directory of the CA and the certificates.")
    ] = Path("certs"),
    days: Annotated[int, typer.Option("--days", min=1, help="Days of validity.")] = (
        CERTIFICATE_DAYS
    ),
    output: OutputOption = None,
) -> None:
    """Create a key and a certificate, signed by a local CA that is created if missing."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name) or name.startswith(".") or name == "ca":
        raise typer.BadParameter("must be letters, digits, '.', '_' or '-', and not 'ca'")
    try:
        made = create_certificate(directory, name, host or [], SystemClock().now(), days=days)
    except BadAuthority as error:
        fail(f"{directory}: {error}")
    except OSError as error:
        fail(f"{error.filename or directory}: {error.strerror}")
    answer(context, output, {"ca": made.ca, "certificate": made.certificate, **made.others})
