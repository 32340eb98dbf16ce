"""Which software a node runs, recognised by the settings that it lists. Pure.

No field of Kafka's protocol names a broker's software. But a broker answers DescribeConfigs with
its own table of settings: an Ottla node lists its ``ottla.*`` keys with their defaults. Kafka lists
an unknown key only if it is written in the node's file, and then as static.
"""

from collections.abc import Iterable
from typing import Final

from ottla.cli.migration.cluster_facts import Software
from ottla.client.admin import ConfigSource
from ottla.config.key_definition import Scope
from ottla.config.key_table import KEYS

OWN_PREFIX: Final = "ottla."
OWN_KEYS: Final = tuple(
    sorted(
        key.name
        for key in KEYS[Scope.BROKER].values()
        if key.name.startswith(OWN_PREFIX) and not key.internal
    )
)
"""The keys that are asked for: Ottla's own."""


def software_of(listed: Iterable[tuple[str, int]]) -> Software:
    """Return the software from the keys that a node listed, each with its source."""
    is_ours = any(
        name.startswith(OWN_PREFIX) and source == ConfigSource.DEFAULT_CONFIG
        for name, source in listed
    )
    return Software.OTTLA if is_ours else Software.KAFKA
