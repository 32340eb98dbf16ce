"""``ottla user``: users with SCRAM passwords."""

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.connecting.session import with_cluster
from ottla.cli.options import BOOTSTRAP_DEFAULT, BootstrapOption, OutputOption, answer
from ottla.cli.terminal.passwords import read_password
from ottla.cli.terminal.rendering import Row
from ottla.client.admin_security import (
    ITERATIONS_DEFAULT,
    ScramUserInfo,
    delete_user,
    list_users,
    set_password,
)
from ottla.client.cluster import Cluster, Refused
from ottla.protocol.errors import ErrorCode
from ottla.security.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism

app = typer.Typer(
    help="Manage users with SCRAM passwords.", no_args_is_help=True, add_completion=False
)

NameArgument = Annotated[str, typer.Argument(help="Name of the user.")]
MechanismOption = Annotated[
    list[str] | None,
    typer.Option("--mechanism", "-m", help="SCRAM-SHA-256 or SCRAM-SHA-512; default: both."),
]
PasswordOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        help="File with the password, '-' for standard input; default: prompt for it.",
    ),
]
IterationsOption = Annotated[
    int,
    typer.Option(
        "--iterations", min=ITERATIONS_MIN, max=ITERATIONS_MAX, help="Iterations of the hash."
    ),
]


@app.command("create")
def create(
    context: typer.Context,
    name: NameArgument,
    *,
    mechanism: MechanismOption = None,
    password_file: PasswordOption = None,
    iterations: IterationsOption = ITERATIONS_DEFAULT,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Create a user; the password is prompted for, or read from a file or standard input."""
    mechanisms = _mechanisms(mechanism)
    password = read_password(name, password_file)

    async def work(cluster: Cluster) -> list[ScramUserInfo]:
        if any(each.name == name for each in await list_users(cluster)):
            raise Refused(
                ErrorCode.DUPLICATE_RESOURCE,
                f"user {name}",
                "exists; change the password with `ottla user set-password`",
            )
        await set_password(cluster, name, password, mechanisms, iterations=iterations)
        return await list_users(cluster, [name])

    answer(context, output, _rows(with_cluster(bootstrap, work)))


@app.command("set-password")
def change(
    context: typer.Context,
    name: NameArgument,
    *,
    mechanism: MechanismOption = None,
    password_file: PasswordOption = None,
    iterations: IterationsOption = ITERATIONS_DEFAULT,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Change a user's password; existing connections stay authenticated."""
    password = read_password(name, password_file)

    async def work(cluster: Cluster) -> list[ScramUserInfo]:
        (user,) = await list_users(cluster, [name])
        mechanisms = _mechanisms(mechanism) if mechanism else list(user.iterations)
        await set_password(cluster, name, password, mechanisms, iterations=iterations)
        return await list_users(cluster, [name])

    answer(context, output, _rows(with_cluster(bootstrap, work)))


@app.command("list")
def show(
    context: typer.Context,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """List users and their mechanisms."""
    rows = _rows(with_cluster(bootstrap, list_users))
    answer(context, output, rows, empty="no users; create one with `ottla user create NAME`")


@app.command("delete")
def delete(
    context: typer.Context,
    name: NameArgument,
    *,
    mechanism: MechanismOption = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Delete a user, or its passwords of some mechanisms."""

    async def work(cluster: Cluster) -> None:
        (user,) = await list_users(cluster, [name])
        mechanisms = _mechanisms(mechanism) if mechanism else list(user.iterations)
        await delete_user(cluster, name, mechanisms)

    with_cluster(bootstrap, work)
    answer(context, output, [{"deleted": name}])


def _mechanisms(names: list[str] | None) -> list[ScramMechanism]:
    known = {str(each): each for each in ScramMechanism}
    for name in names or ():
        if name.upper() not in known:
            raise typer.BadParameter(
                f"{name!r} must be one of {', '.join(known)}", param_hint="--mechanism"
            )
    return [known[name.upper()] for name in names or known]


def _rows(users: list[ScramUserInfo]) -> list[Row]:
    return [
        {
            "user": user.name,
            "mechanisms": [str(each) for each in user.iterations],
            "iterations": list(user.iterations.values()),
        }
        for user in users
    ]
