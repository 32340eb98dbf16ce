"""The schema registry of a command: from ``--registry`` or the client properties."""

import typer

from ottla.cli.connecting.connection_settings import client_properties
from ottla.formats.registry_client import PREFIX, BadRegistrySettings, RegistrySettings


def registry_settings(url: str | None) -> RegistrySettings | None:
    """Return the registry of ``--registry`` or the client properties; else None."""
    properties = client_properties()
    if url is not None:
        properties[f"{PREFIX}url"] = url
    try:
        return RegistrySettings.parse(properties)
    except BadRegistrySettings as error:
        raise typer.BadParameter(str(error), param_hint="--registry") from error
