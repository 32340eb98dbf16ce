"""``ottla quota``: quotas of users, client ids and IP addresses."""

from typing import Annotated, Final

import typer

from ottla.cli.connecting.pairs import parse_pairs
from ottla.cli.connecting.session import with_cluster
from ottla.cli.options import BOOTSTRAP_DEFAULT, BootstrapOption, OutputOption, answer
from ottla.cli.terminal.rendering import Row
from ottla.cli.terminal.suggestions import did_you_mean
from ottla.client.admin_security import Quota, alter_quota, list_quotas
from ottla.client.cluster import Cluster

QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)

app = typer.Typer(
    help="Manage quotas of users, client ids and IP addresses.",
    no_args_is_help=True,
    add_completion=False,
)

UserOption = Annotated[str | None, typer.Option("--user", help="A user.")]
UserDefaultOption = Annotated[
    bool, typer.Option("--user-default", help="Every user without a quota of their own.")
]
ClientOption = Annotated[str | None, typer.Option("--client", help="A client id.")]
ClientDefaultOption = Annotated[
    bool, typer.Option("--client-default", help="Every client id without a quota of its own.")
]
IpOption = Annotated[str | None, typer.Option("--ip", help="An address.")]
IpDefaultOption = Annotated[
    bool, typer.Option("--ip-default", help="Every address without a quota of its own.")
]


@app.command("set")
def change(  # noqa: PLR0913 - one per option
    context: typer.Context,
    limits: Annotated[
        list[str],
        typer.Argument(
            help="producer_byte_rate=N, consumer_byte_rate=N, request_percentage=N, "
            "controller_mutation_rate=N; for an address connection_creation_rate=N."
        ),
    ],
    *,
    user: UserOption = None,
    user_default: UserDefaultOption = False,
    client: ClientOption = None,
    client_default: ClientDefaultOption = False,
    ip: IpOption = None,
    ip_default: IpDefaultOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Set quotas of a user, a client id, a pair of both, or an IP address."""
    entity = _entity(user, user_default, client, client_default, ip, ip_default)
    wanted: dict[str, float | None] = {}
    for key, text in parse_pairs(limits, "LIMITS").items():
        if key not in QUOTAS:
            hint = did_you_mean(key, QUOTAS) or f"; known: {', '.join(QUOTAS)}"
            raise typer.BadParameter(f"there is no quota {key!r}{hint}")
        try:
            wanted[key] = float(text)
        except ValueError:
            raise typer.BadParameter(f"{key}={text} must be a number") from None
    _alter(context, output, bootstrap, entity, wanted)


@app.command("remove")
def remove(  # noqa: PLR0913 - one per option
    context: typer.Context,
    keys: Annotated[
        list[str] | None, typer.Argument(help="Quotas to remove; default: all.")
    ] = None,
    *,
    user: UserOption = None,
    user_default: UserDefaultOption = False,
    client: ClientOption = None,
    client_default: ClientDefaultOption = False,
    ip: IpOption = None,
    ip_default: IpDefaultOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Remove limits."""
    entity = _entity(user, user_default, client, client_default, ip, ip_default)
    _alter(context, output, bootstrap, entity, None if not keys else dict.fromkeys(keys))


@app.command("list")
def show(
    context: typer.Context,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """List all quotas."""
    rows = [_row(each) for each in with_cluster(bootstrap, list_quotas)]
    answer(context, output, rows, empty="no quotas")


def _alter(
    context: typer.Context,
    output: OutputOption,
    bootstrap: str,
    entity: dict[str, str | None],
    limits: dict[str, float | None] | None,
) -> None:
    async def work(cluster: Cluster) -> list[Quota]:
        wanted = limits
        if wanted is None:
            there = [each for each in await list_quotas(cluster) if each.entity == entity]
            wanted = {key: None for each in there for key in each.limits}
        if wanted:
            await alter_quota(cluster, entity, wanted)
        return [each for each in await list_quotas(cluster) if each.entity == entity]

    answer(context, output, [_row(each) for each in with_cluster(bootstrap, work)])


def _entity(
    user: str | None,
    is_user_default: bool,
    client: str | None,
    is_client_default: bool,
    ip: str | None,
    is_ip_default: bool,
) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for kind, option, name, is_default in (
        ("user", "--user", user, is_user_default),
        ("client-id", "--client", client, is_client_default),
        ("ip", "--ip", ip, is_ip_default),
    ):
        if name is not None and is_default:
            raise typer.BadParameter(f"{option} and {option}-default exclude each other")
        if name is not None or is_default:
            found[kind] = name
    if not found:
        raise typer.BadParameter("name an entity: --user, --client, --ip, or a default of these")
    if "ip" in found and len(found) > 1:
        raise typer.BadParameter(
            "--ip cannot be combined: quotas of IP addresses limit connections"
        )
    return found


def _row(quota: Quota) -> Row:
    def shown(kind: str) -> str | None:
        if kind not in quota.entity:
            return None
        name = quota.entity[kind]
        return "(default)" if name is None else name

    return {
        "user": shown("user"),
        "client": shown("client-id"),
        "ip": shown("ip"),
        "limits": {
            key: int(limit) if limit.is_integer() else limit for key, limit in quota.limits.items()
        },
    }
