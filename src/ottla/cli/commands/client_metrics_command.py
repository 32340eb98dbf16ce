"""``ottla client-metrics``: which metrics clients push to the brokers (KIP-714)."""

from typing import Annotated

import typer

from ottla.cli.connecting.session import with_cluster
from ottla.cli.options import BOOTSTRAP_DEFAULT, BootstrapOption, OutputOption, answer
from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.rendering import Row
from ottla.client.admin import (
    Change,
    ConfigChange,
    Resource,
    alter_configs,
    describe_configs,
    list_config_resources,
)
from ottla.client.cluster import Cluster

app = typer.Typer(
    help="Show and change which metrics clients push to the brokers (KIP-714).",
    no_args_is_help=True,
    add_completion=False,
)

Name = Annotated[str, typer.Argument(help="The subscription.")]
KEYS = ("metrics", "interval.ms", "match")


@app.command("list")
def show_list(
    context: typer.Context,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """List subscriptions."""

    async def work(cluster: Cluster) -> list[Row]:
        names = await list_config_resources(cluster, Resource.CLIENT_METRICS)
        return [await _described(cluster, name) for name in sorted(names)]

    answer(context, output, with_cluster(bootstrap, work), empty="no subscriptions to metrics")


@app.command("describe")
def describe(
    context: typer.Context,
    name: Name,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show one subscription; exit 1 if it does not exist."""

    async def work(cluster: Cluster) -> Row | None:
        names = await list_config_resources(cluster, Resource.CLIENT_METRICS)
        return await _described(cluster, name) if name in names else None

    found = with_cluster(bootstrap, work)
    if found is None:
        fail(f"client-metrics {name}: no such subscription; `ottla client-metrics set` creates one")
    answer(context, output, found)


@app.command("set")
def set_subscription(
    context: typer.Context,
    name: Name,
    *,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics", help="Prefixes of metrics, separated by commas; '*' for all metrics."
        ),
    ] = None,
    interval_ms: Annotated[
        int | None, typer.Option("--interval", help="Milliseconds between pushes of a client.")
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option(
            "--match",
            help="selector=regular expression; a client must match all. Selectors: client_id, "
            "client_instance_id, client_software_name, client_software_version, "
            "client_source_address, client_source_port.",
        ),
    ] = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Create or change a subscription, and show it."""
    interval = None if interval_ms is None else str(interval_ms)
    values = {
        "metrics": metrics,
        "interval.ms": interval,
        "match": None if match is None else ",".join(match),
    }
    changes = [Change(key, value) for key, value in values.items() if value is not None]
    if not changes:
        fail(f"client-metrics {name}: nothing to set; give --metrics, --interval or --match")

    async def work(cluster: Cluster) -> Row:
        await alter_configs(cluster, Resource.CLIENT_METRICS, name, changes)
        return {"subscription": name, **{each.name: each.value for each in changes}}

    answer(context, output, with_cluster(bootstrap, work))


@app.command("delete")
def delete(
    context: typer.Context,
    name: Name,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Delete a subscription; clients stop pushing what only it asked for."""
    changes = [Change(key, operation=ConfigChange.DELETE) for key in KEYS]
    with_cluster(
        bootstrap,
        lambda cluster: alter_configs(cluster, Resource.CLIENT_METRICS, name, changes),
    )
    answer(context, output, [{"deleted": name}])


async def _described(cluster: Cluster, name: str) -> Row:
    found = {
        each.name: each.value
        for each in await describe_configs(cluster, Resource.CLIENT_METRICS, name)
    }
    return {"subscription": name, **{key: found.get(key) for key in KEYS}}
