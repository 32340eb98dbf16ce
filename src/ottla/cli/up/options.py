"""The options of ``ottla up``: given ones, those kept from the last start, and defaults. Pure.

A cluster keeps its options in DATA/up.json, so that the next start needs none of them.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ottla.cli.up.plan import HOST, PORT_DEFAULT, BadPlan
from ottla.client.client_security import is_secret
from ottla.config.key_definition import Scope
from ottla.config.key_table import KEYS, base_of_listener_key
from ottla.config.loading import unknown_key

ANY_HOSTS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to
_PLANNED: Final = frozenset(
    {
        "process.roles",
        "node.id",
        "listeners",
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "log.dir",
        "log.dirs",
        "ottla.metrics.listener",
    }
)


class GivenOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the command line; None or empty: not given."""

    nodes: int | None = None
    port: int | None = None
    host: str | None = None
    advertised_host: str | None = None
    is_secure: bool = False
    settings: Mapping[str, str] = {}


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a cluster. ``settings`` are server properties of all its nodes."""

    nodes: int = 1
    port: int = PORT_DEFAULT
    host: str = HOST
    advertised_host: str = HOST
    is_secure: bool = False
    settings: dict[str, str] = {}


def merge_options(
    given: GivenOptions, kept: UpOptions | None, root: str, hostname: str
) -> UpOptions:
    """Return the options of a start. ``kept`` are those of the last one, None for a new cluster.

    A setting with an empty value is removed from the kept ones. ``hostname`` is advertised where
    clients of other machines may connect and no name is given.

    Raises:
        BadPlan: an option contradicts the existing cluster, or a setting is not possible.
    """
    was = kept or UpOptions()
    if kept is not None and given.nodes not in (None, kept.nodes):
        raise BadPlan(
            f"{root}: contains a cluster of {kept.nodes}; use another one with --data, or remove it"
        )
    if kept is not None and given.is_secure and not kept.is_secure:
        raise BadPlan(
            f"{root}: contains a cluster without security; use another directory with --data"
        )
    check_settings(given.settings)
    host = given.host or was.host
    advertised = given.advertised_host or (was.advertised_host if given.host is None else None)
    settings = {**was.settings, **given.settings}
    return UpOptions(
        nodes=given.nodes or was.nodes,
        port=given.port or was.port,
        host=host,
        advertised_host=advertised or (hostname if host in ANY_HOSTS else host),
        is_secure=was.is_secure or given.is_secure,
        settings={key: value for key, value in settings.items() if value},
    )


def check_settings(settings: Mapping[str, str]) -> None:
    """Check the keys of ``-c``.

    Raises:
        BadPlan: a key is set by ``ottla up`` itself, or is not a key of a node.
    """
    for key in settings:
        if key in _PLANNED:
            raise BadPlan(f"-c {key}: is set by `ottla up`; see --nodes, --port, --host and --data")
        if (reason := unknown_key(key, settings)) is not None:
            raise BadPlan(f"-c {key}: {reason}")


def describe_options(options: UpOptions) -> Sequence[str]:
    """Return the options that differ from the defaults, as one would give them."""
    words = []
    if options.host != HOST:
        words.append(f"--host {options.host}")
    if options.advertised_host != options.host:
        words.append(f"--advertised-host {options.advertised_host}")
    if options.is_secure:
        words.append("--secure")
    return words + [f"-c {key}={shown(key, value)}" for key, value in options.settings.items()]


def shown(key: str, value: str) -> str:
    """Return the value of a server setting as it may be shown: secrets are hidden."""
    definition = base_of_listener_key(key) or KEYS[Scope.BROKER].get(key)
    is_hidden = is_secret(key) or (definition is not None and definition.is_sensitive)
    return "(hidden)" if is_hidden else value
