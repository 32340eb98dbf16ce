"""The schema registry of a command: of ``--registry``, the client properties, or the brokers."""

from typing import Final

import typer

from ottla.cli.connecting.connection_settings import client_properties, resolve_bootstrap
from ottla.cli.connecting.session import parse_bootstrap
from ottla.cli.options import say
from ottla.client.blocking.broker_client import ClientSettings, client_for
from ottla.client.client_security import BadClientSecurity, is_security_key
from ottla.client.failures import NoBroker
from ottla.formats.record_values import BadFormatOption
from ottla.formats.registry_client import PREFIX, BadRegistrySettings, RegistrySettings
from ottla.formats.registry_discovery import RegistryNotFound, find_registry
from ottla.security.sasl.credentials import LoginFailed

AUTO: Final = "auto"
"""The value of ``--registry`` that asks the brokers."""
_API_TIMEOUT_MS: Final = "10000"


def registry_settings(url: str | None) -> RegistrySettings | None:
    """Return the registry of ``--registry`` or the client properties; else None."""
    properties = client_properties()
    if url is not None and url != AUTO:
        properties[f"{PREFIX}url"] = url
    try:
        return RegistrySettings.parse(properties)
    except BadRegistrySettings as error:
        raise typer.BadParameter(str(error), param_hint="--registry") from error


def require_registry(url: str | None, bootstrap: str | None) -> RegistrySettings:
    """Return the registry of the options, or the one that the brokers publish.

    An address that the brokers publish is printed to stderr unless they are on this machine.

    Raises:
        BadFormatOption: there is none, or the brokers cannot be asked.
    """
    settings = registry_settings(url)
    if settings is not None:
        return settings
    properties = client_properties()
    addresses = parse_bootstrap(resolve_bootstrap(bootstrap, properties))
    kept = {key: value for key, value in properties.items() if is_security_key(key)}
    kept["default.api.timeout.ms"] = _API_TIMEOUT_MS
    servers = tuple(
        f"[{a.host}]:{a.port}" if ":" in a.host else f"{a.host}:{a.port}" for a in addresses
    )
    client = client_for(ClientSettings(servers, "ottla-cli", kept))
    try:
        registry = find_registry(client)
    except (RegistryNotFound, NoBroker, LoginFailed, BadClientSecurity) as error:
        raise BadFormatOption(f"{error} (or give --registry URL)") from error
    if not registry.is_local:
        say(
            f"note: using the schema registry {', '.join(registry.urls)}, which the brokers publish"
        )
    return RegistrySettings(registry.urls)
