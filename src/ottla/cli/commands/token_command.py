"""``ottla token``: delegation tokens."""

import base64
import binascii
from typing import Annotated

import typer

from ottla.cli.connecting.session import with_cluster
from ottla.cli.options import BOOTSTRAP_DEFAULT, BootstrapOption, OutputOption, answer
from ottla.cli.terminal.rendering import Row
from ottla.client.admin_security import (
    NO_LIMIT,
    create_token,
    expire_token,
    list_tokens,
    renew_token,
)
from ottla.client.cluster import Cluster

app = typer.Typer(
    help="Manage delegation tokens, which are short-lived credentials of a user.",
    no_args_is_help=True,
    add_completion=False,
)

HmacArgument = Annotated[str, typer.Argument(help="HMAC of the token, as printed by `create`.")]


@app.command("create")
def create(
    context: typer.Context,
    *,
    owner: Annotated[
        str | None,
        typer.Option(
            "--owner", help="Owner of the token, User:NAME; default: the authenticated user."
        ),
    ] = None,
    renewer: Annotated[
        list[str] | None,
        typer.Option("--renewer", help="Principal that may renew it: User:NAME; may be repeated."),
    ] = None,
    max_lifetime_ms: Annotated[
        int,
        typer.Option("--max-lifetime-ms", help="Maximum lifetime; default: the broker's limit."),
    ] = NO_LIMIT,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Create a token; its HMAC is the password of a SCRAM login, and is printed only here."""
    whom = None if owner is None else _principal(owner)
    renewers = [_principal(each) for each in renewer or ()]
    made = with_cluster(
        bootstrap,
        lambda cluster: create_token(
            cluster, owner=whom, renewers=renewers, lifetime_ms_max=max_lifetime_ms
        ),
    )
    row: Row = {
        "token_id": made.token_id,
        "hmac": base64.b64encode(made.hmac).decode(),
        "owner": f"{made.principal_type}:{made.principal_name}",
        "issued_ms": made.issue_timestamp_ms,
        "expires_ms": made.expiry_timestamp_ms,
        "max_ms": made.max_timestamp_ms,
    }
    answer(context, output, row)


@app.command("renew")
def renew(
    context: typer.Context,
    hmac: HmacArgument,
    *,
    period_ms: Annotated[
        int, typer.Option("--period-ms", help="Time from now; default: the broker's.")
    ] = NO_LIMIT,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Renew a token."""
    key = _hmac(hmac)
    expires = with_cluster(bootstrap, lambda cluster: renew_token(cluster, key, period_ms))
    answer(context, output, {"expires_ms": expires})


@app.command("expire")
def expire(
    context: typer.Context,
    hmac: HmacArgument,
    *,
    period_ms: Annotated[
        int, typer.Option("--period-ms", help="Time from now; default: at once.")
    ] = NO_LIMIT,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Expire a token."""
    key = _hmac(hmac)
    expires = with_cluster(bootstrap, lambda cluster: expire_token(cluster, key, period_ms))
    answer(context, output, {"expires_ms": expires})


@app.command("list")
def show(
    context: typer.Context,
    *,
    owner: Annotated[
        list[str] | None, typer.Option("--owner", help="Show only tokens of this owner: User:NAME.")
    ] = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """List tokens, without their HMACs."""
    owners = [_principal(each) for each in owner] if owner else None

    async def work(cluster: Cluster) -> list[Row]:
        return [
            {
                "token_id": each.token_id,
                "owner": f"{each.principal_type}:{each.principal_name}",
                "renewers": [f"{one.principal_type}:{one.principal_name}" for one in each.renewers],
                "issued_ms": each.issue_timestamp,
                "expires_ms": each.expiry_timestamp,
                "max_ms": each.max_timestamp,
            }
            for each in await list_tokens(cluster, owners)
        ]

    answer(context, output, with_cluster(bootstrap, work), empty="no delegation tokens")


def _principal(text: str) -> tuple[str, str]:
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise typer.BadParameter(f"{text!r} must be a principal such as User:alice")
    return kind, name


def _hmac(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise typer.BadParameter("must be base64, as `ottla token create` prints it") from None
