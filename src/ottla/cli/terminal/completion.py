"""Complete names of topics and groups from the broker.

A shell runs this while the user types: it must be quick, and silent if no broker answers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import typer

from ottla.cli.connecting.session import client_options, client_ports
from ottla.client.admin import list_topics
from ottla.client.admin_groups import list_groups
from ottla.client.cluster import Cluster, Refused
from ottla.operations.internal_topics import is_internal
from ottla.protocol.faults import Fault
from ottla.security.sasl.credentials import LoginFailed

SECONDS_MAX: Final = 2.0


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics that begin with ``incomplete``; internal ones only if it does so, too."""

    async def ask(cluster: Cluster) -> list[str]:
        return [
            each.name
            for each in await list_topics(cluster)
            if each.name is not None and (not is_internal(each) or incomplete.startswith("__"))
        ]

    return _complete(context, incomplete, ask)


def complete_groups(context: typer.Context, incomplete: str) -> list[str]:
    """Return the groups that begin with ``incomplete``."""

    async def ask(cluster: Cluster) -> list[str]:
        return [each.group_id for each in await list_groups(cluster, (), ())]

    return _complete(context, incomplete, ask)


def _complete(
    context: typer.Context, incomplete: str, ask: Callable[[Cluster], Awaitable[list[str]]]
) -> list[str]:
    async def names() -> list[str]:
        addresses, options = client_options(context.params.get("bootstrap"))
        async with asyncio.timeout(SECONDS_MAX):
            async with await Cluster.open(client_ports(), addresses, options) as cluster:
                return await ask(cluster)

    try:
        found = asyncio.run(names())
    except (Refused, Fault, LoginFailed, OSError, typer.BadParameter):
        return []  # TimeoutError is an OSError
    return sorted(each for each in found if each.startswith(incomplete))
