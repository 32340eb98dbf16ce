"""The checks that a broker makes on a configuration change before it forwards it.

    unknown resource type          rejected
    broker logger                  decided and applied here, see `logger_rules`; leaves no record
    broker, its own id or all      validated against the settings in effect here, then forwarded
    topic, group, client metrics   forwarded

As in Kafka: only the broker knows its own file, and so the settings that a change results in.
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
from ottla.controller.config_rules import node_id_of, refuse_broker_keys
from ottla.controller.decision import Refusal
from ottla.protocol.errors import ErrorCode


class LocalConfigChange(msgspec.Struct, frozen=True):
    """A change of this broker's settings: those in effect, and those requested."""

    before: Layers
    after: Layers

    def new_listeners(self) -> Listeners | None:
        """Return the requested listeners; None if they do not change.

        Raises:
            ConfigError: they do not fit together.
        """
        if not changes_listeners(self.before, self.after):
            return None
        return listeners_of(self.after)


def refuse_other_node(name: str, node_id: int) -> Refusal | None:
    """Return an error if a resource's name is not the id of this node."""
    found = node_id_of(name)
    if found is None:
        message = f"Node id must be an integer, but it is: {name[:300]}"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    if found != node_id:
        message = f"Unexpected broker id, expected {node_id}, but received {name[:300]}"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    return None


def local_change(before: Layers, changes: Changes, *, for_all: bool) -> LocalConfigChange:
    """Return what a change of the keys of one broker, or of all brokers, means here."""
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
    """Return why this broker's settings cannot change this way, or None.

    Kafka answers INVALID_REQUEST for every dynamic broker setting that fails validation.
    """
    named = {name: value for name, value in changes.items() if value is not None}
    if (refusal := refuse_broker_keys(named, for_all=for_all)) is not None:
        return refusal
    if problems := dynamic_problems(change.before, change.after):
        return refusal_of(problems)
    try:
        new = change.new_listeners()
        old = None if new is None else listeners_of(change.before)
    except ConfigError as error:
        return refusal_of(error.problems)
    if new is None or old is None:
        return None
    return refusal_of(listener_problems(old, new))


def refusal_of(problems: "list[Problem] | tuple[Problem, ...]") -> Refusal | None:
    """Return the error that names all problems; None if there are none."""
    if not problems:
        return None
    return Refusal(ErrorCode.INVALID_REQUEST, "; ".join(map(str, problems)))
