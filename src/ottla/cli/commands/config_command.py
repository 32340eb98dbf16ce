"""``ottla config``: configuration of topics, brokers, groups and client metrics."""

import enum
from collections.abc import Mapping
from typing import Annotated

import typer

from ottla.cli.connecting.pairs import parse_pairs
from ottla.cli.connecting.session import with_cluster
from ottla.cli.options import BOOTSTRAP_DEFAULT, BootstrapOption, OutputOption, answer, say
from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.rendering import Row
from ottla.cli.terminal.suggestions import did_you_mean
from ottla.client.admin import (
    Change,
    ConfigChange,
    ConfigSource,
    Resource,
    alter_configs,
    describe_configs,
)
from ottla.client.cluster import Cluster
from ottla.config.key_definition import Scope
from ottla.config.key_table import KEYS
from ottla.config.loading import unknown_key
from ottla.protocol.messages.describe_configs import DescribeConfigsResourceResult

app = typer.Typer(
    help="Show and change configuration of topics, brokers and groups.",
    no_args_is_help=True,
    add_completion=False,
)


class Kind(enum.StrEnum):
    """A type of resource that has a configuration."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"

    @property
    def resource(self) -> Resource:
        """Kafka's number for it."""
        return Resource[self.name]


KindArgument = Annotated[Kind, typer.Argument(help="topic, broker, group or client-metrics.")]
NameArgument = Annotated[
    str,
    typer.Argument(
        help="Name of the resource; for a broker its id, or '' for the default of all brokers."
    ),
]


@app.command("get")
def get(
    context: typer.Context,
    kind: KindArgument,
    name: NameArgument,
    keys: Annotated[list[str], typer.Argument(help="The keys.")],
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show some settings; exit 1 if a key is unknown."""
    _check_name(kind, name)
    found = with_cluster(
        bootstrap, lambda cluster: describe_configs(cluster, kind.resource, name, keys)
    )
    answer(context, output, [_row(each) for each in found])
    missing = [key for key in keys if key not in {each.name for each in found}]
    if missing:
        known = KEYS[Scope(kind.value)]
        keys_text = ", ".join(f"{key}{did_you_mean(key, known)}" for key in missing)
        fail(f"{kind} {name}: no such key: {keys_text}")


@app.command("describe")
def describe(
    context: typer.Context,
    kind: KindArgument,
    name: NameArgument,
    *,
    show_all: Annotated[bool, typer.Option("--all", "-a", help="Defaults too.")] = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show settings that differ from the default; with --all, all settings."""
    _check_name(kind, name)
    found = with_cluster(bootstrap, lambda cluster: describe_configs(cluster, kind.resource, name))
    rows = [_row(entry) for entry in found if show_all or not _is_default(entry)]
    empty = "no setting differs from its default; --all shows every setting"
    answer(context, output, rows, empty=empty)


@app.command("set")
def change(
    context: typer.Context,
    kind: KindArgument,
    name: NameArgument,
    settings: Annotated[list[str] | None, typer.Argument(help="key=value ...")] = None,
    *,
    delete: Annotated[
        list[str] | None, typer.Option("--delete", "-d", help="Key to reset to its default.")
    ] = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Set keys, or reset them to their defaults."""
    _check_name(kind, name)
    pairs = parse_pairs(settings, "SETTINGS")
    changes = [Change(key, value) for key, value in pairs.items()]
    changes += [Change(key, None, ConfigChange.DELETE) for key in delete or ()]
    if not changes:
        raise typer.BadParameter("give key=value or --delete key")

    async def work(cluster: Cluster) -> list[DescribeConfigsResourceResult]:
        await alter_configs(cluster, kind.resource, name, changes)
        return await describe_configs(cluster, kind.resource, name, [each.name for each in changes])

    answer(context, output, [_row(each) for each in with_cluster(bootstrap, work)])
    if kind is Kind.BROKER:
        _warn_unknown(pairs)


def _warn_unknown(values: Mapping[str, str]) -> None:
    """Tell of keys that brokers keep, as Kafka does, but that mean nothing to them."""
    for key in values:
        if unknown_key(key, values) is not None:
            hint = did_you_mean(key, KEYS[Scope.BROKER])
            say(f"warning: {key} is set, but no key of Ottla{hint}")


def _check_name(kind: Kind, name: str) -> None:
    if kind is Kind.BROKER and name and not (name.isascii() and name.isdecimal()):
        raise typer.BadParameter(f"{name!r} must be a broker's id, or ''", param_hint="NAME")


def _is_default(entry: DescribeConfigsResourceResult) -> bool:
    return ConfigSource(entry.config_source) is ConfigSource.DEFAULT_CONFIG


def _row(entry: DescribeConfigsResourceResult) -> Row:
    return {
        "key": entry.name,
        "value": "(hidden)" if entry.is_sensitive else entry.value,
        "source": ConfigSource(entry.config_source).name.lower(),
        "read_only": entry.read_only,
    }
