"""The Kafka client properties of a command, merged from all their sources.

Later sources override earlier ones: the profile, the file of ``--command-config``, environment
variables (``OTTLA_SECURITY_PROTOCOL`` is ``security.protocol``), ``-X key=value``, ``--bootstrap``.
"""

import os
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final

import msgspec
import typer

from ottla.cli.connecting.profiles import BadProfiles, read_profiles
from ottla.cli.terminal.suggestions import did_you_mean
from ottla.cli.terminal.text_files import UnreadableFile, read_text
from ottla.client.client_security import PREFIXES, BadClientSecurity, connection_options
from ottla.client.connection import Options
from ottla.config.properties import BadProperties, from_text
from ottla.runtime.clock import SystemClock
from ottla.runtime.randomness import SystemRandom

BOOTSTRAP: Final = "bootstrap.servers"
BOOTSTRAP_FALLBACK: Final = "localhost:9092"
VARIABLE_PREFIX: Final = "OTTLA_"


class Given(msgspec.Struct, frozen=True):
    """The command line: its connection options, except ``--bootstrap``, and its command."""

    profile: str | None = None
    command_config: str | None = None
    settings: Mapping[str, str] = {}
    command: str = ""
    """The command, without ``ottla``."""
    parameters: Mapping[str, object] = {}
    """Its options and arguments; complete once it runs."""

    def __repr__(self) -> str:
        return f"Given(profile={self.profile!r}, {sorted(self.settings)})"


_given: ContextVar[Given] = ContextVar("connection", default=Given())  # noqa: B039 - frozen


def remember(given: Given) -> None:
    """Store the options of the current command."""
    _given.set(given)


def given_now() -> Given:
    """Return the options of the current command."""
    return _given.get()


def client_properties(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the merged properties; a bad profile or file is a usage error."""
    given, variables = _given.get(), os.environ if environment is None else environment
    found: dict[str, str] = {}
    if given.profile is not None:
        found |= _profile(given.profile)
    if given.command_config is not None:
        found |= read_properties(given.command_config, "--command-config")
    return found | properties_of_environment(variables) | dict(given.settings)


def properties_of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the security settings among the ``OTTLA_*`` variables."""
    found = {}
    for name in sorted(environment):
        if name.startswith(VARIABLE_PREFIX):
            key = name.removeprefix(VARIABLE_PREFIX).lower().replace("_", ".")
            if key.startswith(PREFIXES):
                found[key] = environment[name]
    return found


def read_properties(path: str, option: str) -> dict[str, str]:
    """Read a properties file of a client; a file that cannot be read is a usage error."""
    try:
        return {entry.key: entry.value for entry in from_text(read_text(path))}
    except UnreadableFile as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
    except BadProperties as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint=option) from error


def resolve_bootstrap(bootstrap: str | None, properties: Mapping[str, str]) -> str:
    """Return ``--bootstrap`` if given, else ``bootstrap.servers``, else localhost."""
    return bootstrap or properties.get(BOOTSTRAP) or BOOTSTRAP_FALLBACK


def options_of(properties: Mapping[str, str], options: Options | None = None) -> Options:
    """Return the connection security that the properties ask for; bad ones are a usage error."""
    try:
        return connection_options(properties, SystemRandom(), SystemClock(), options)
    except BadClientSecurity as error:
        raise typer.BadParameter(str(error), param_hint="client settings") from error


def _profile(name: str) -> dict[str, str]:
    try:
        profiles = read_profiles()
    except BadProfiles as error:
        raise typer.BadParameter(str(error), param_hint="--profile") from error
    if name not in profiles:
        known = ", ".join(sorted(profiles)) or "none; create one with `ottla profile set`"
        hint = did_you_mean(name, profiles) or f"; known: {known}"
        raise typer.BadParameter(f"there is no profile {name!r}{hint}", param_hint="--profile")
    return dict(profiles[name])
