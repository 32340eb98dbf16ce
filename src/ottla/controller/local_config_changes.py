"""What a broker decides about a change of configurations before the controller is asked.

    unknown resource type          refused
    broker logger                  decided and applied here, see `logger_rules`; leaves no record
    broker, its own id or all      validated against the settings in force here, then forwarded
    topic, group, client metrics   forwarded

As in Kafka: only the broker itself knows its file, and so what a change would amount to.
"""

from collections.abc import Mapping

import msgspec

from ottla.config.dynamic import (
    changes_listeners,
    dynamic_problems,
    listener_problems,
    listeners_of,
)
from ottla.config.layers import Layers
from ottla.config.listeners import Listeners
from ottla.config.problems import ConfigError, Problem
from ottla.controller.config_alterations import Changes
from ottla.controller.config_rules import broker_key_problems, node_id_of
from ottla.controller.decision import Refusal
from ottla.protocol.errors import ErrorCode


class LocalConfigChange(msgspec.Struct, frozen=True):
    """A change of this broker's settings: those in force, and those it asks for."""

    before: Layers
    after: Layers

    def new_listeners(self) -> Listeners | None:
        """Return the listeners that are asked for; None where they stay as they are.

        Raises:
            ConfigError: they do not fit together.
        """
        if not changes_listeners(self.before, self.after):
            return None
        return listeners_of(self.after)


def refuse_other_node(name: str, node_id: int) -> Refusal | None:
    """Say that a resource's name is not the id of this node."""
    found = node_id_of(name)
    if found is None:
        message = f"Node id must be an integer, but it is: {name[:300]}"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    if found != node_id:
        message = f"Unexpected broker id, expected {node_id}, but received {name[:300]}"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    return None


def local_change(before: Layers, changes: Changes, *, for_all: bool) -> LocalConfigChange:
    """Return what a change of the keys of one broker, or of all, amounts to here."""
    if for_all:
        cluster = _changed(before.dynamic_cluster, changes)
        return LocalConfigChange(before, Layers(before.dynamic_broker, cluster, before.static))
    own = _changed(before.dynamic_broker, changes)
    return LocalConfigChange(before, Layers(own, before.dynamic_cluster, before.static))


def _changed(old: Mapping[str, str], changes: Changes) -> dict[str, str]:
    new = dict(old) | changes
    return {name: value for name, value in new.items() if value is not None}


def refuse_local_change(
    change: LocalConfigChange, changes: Changes, *, for_all: bool
) -> Refusal | None:
    """Say why this broker's settings cannot change so.

    Kafka answers INVALID_REQUEST to every dynamic broker setting that fails validation.
    """
    named = {name: value for name, value in changes.items() if value is not None}
    if problems := broker_key_problems(named, for_all=for_all):
        return refusal_of(problems)
    if problems := dynamic_problems(change.before, change.after):
        return refusal_of(problems)
    try:
        wanted = change.new_listeners()
        old = None if wanted is None else listeners_of(change.before)
    except ConfigError as error:
        return refusal_of(error.problems)
    if wanted is None or old is None:
        return None
    return refusal_of(listener_problems(old, wanted))


def refusal_of(problems: "list[Problem] | tuple[Problem, ...]") -> Refusal | None:
    """Return the refusal that names all problems; None where there are none."""
    if not problems:
        return None
    return Refusal(ErrorCode.INVALID_REQUEST, "; ".join(map(str, problems)))
