"""``ottla console``: the web console beside any Kafka cluster."""

import asyncio
import signal
from typing import Annotated

import typer

from ottla.cli.commands.registry_option import registry_settings
from ottla.cli.connecting.connection_settings import (
    client_properties,
    options_of,
    resolve_bootstrap,
)
from ottla.cli.connecting.session import client_options, client_ports, parse_bootstrap
from ottla.cli.options import BOOTSTRAP_DEFAULT, BootstrapOption, RegistryOption, say
from ottla.cli.terminal.failures import fail
from ottla.client.client_security import BadClientSecurity, protocol_of
from ottla.client.cluster import ClientOptions
from ottla.runtime import system_calls
from ottla.runtime.ports import Address
from ottla.runtime.supervisor import Service

app = typer.Typer(add_completion=False)


@app.command("console")
def console(
    *,
    listen: Annotated[
        str, typer.Option("--listen", help="Address to serve: http://host:port.")
    ] = "http://127.0.0.1:9080",
    advertised: Annotated[
        str | None,
        typer.Option("--advertised", help="Address for browsers, such as that of a proxy."),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Show the cluster, and change nothing.")
    ] = False,
    registry: RegistryOption = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
) -> None:
    """Serve the web console of a cluster, Apache Kafka's included; Ctrl-C or SIGTERM stops it.

    Where the settings have security.protocol=SASL_* and no credentials, each user logs in. With
    credentials of a profile, everybody who can reach the console has these: it serves this machine
    only then.
    """
    try:
        from ottla.console.service import (
            BadConsole,
            ConsoleService,
            ConsoleSettings,
            bind_console,
        )
        from ottla.console.sessions import Upstream
    except ImportError:
        fail("the console needs `pip install 'ottla[console]'`")
    addresses, options, needs_login = _connection(bootstrap)
    settings = ConsoleSettings(listen, advertised, read_only)
    try:
        bound = bind_console(settings, needs_login=needs_login)
    except (BadConsole, OSError) as error:
        fail(str(error))
    upstream = Upstream(
        client_ports(), addresses, options, needs_login, registry_settings(registry)
    )
    service = ConsoleService(bound, upstream)
    say(f"console: {service.url}" + ("" if needs_login else " (without login: this machine only)"))
    asyncio.run(_serve(service))


def _connection(bootstrap: str) -> tuple[list[Address], ClientOptions, bool]:
    """Return the brokers, how to connect, and whether each user has to log in."""
    properties = client_properties()
    try:
        protocol = protocol_of(properties)
    except BadClientSecurity as error:
        raise typer.BadParameter(str(error), param_hint="client settings") from error
    has_credentials = any(key in properties for key in ("sasl.username", "sasl.jaas.config"))
    if not protocol.uses_sasl or has_credentials:
        return (*client_options(bootstrap), False)
    without_login = {key: value for key, value in properties.items() if not key.startswith("sasl.")}
    without_login["security.protocol"] = "SSL" if protocol.uses_tls else "PLAINTEXT"
    addresses = parse_bootstrap(resolve_bootstrap(bootstrap, properties))
    options = ClientOptions(client_id="ottla-console", connection=options_of(without_login))
    return addresses, options, True


async def _serve(service: Service) -> None:
    """Serve until a signal arrives."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        system_calls.on_signal(number, stop.set)
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(service.run(lambda: None))
        await stop.wait()
        serving.cancel()
