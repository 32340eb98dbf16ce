"""Which changes of a broker's log levels are allowed (KIP-412).

Levels are set on the node itself and leave no record. As in Kafka a level can be set or deleted; a
deleted one is inherited from the parent, and the root logger always has a level.
"""

from collections.abc import Callable, Iterable

from ottla.controller.config_alterations import Operation
from ottla.controller.decision import Refusal
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.incremental_alter_configs import AlterableConfig

ROOT = "root"
LEVELS = ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")


def refuse_logger_changes(
    changes: Iterable[AlterableConfig], exists: Callable[[str], bool]
) -> Refusal | None:
    """Return why log levels may not be changed this way, or None; the first reason counts.

    Operations are already known to be valid and values not to be null.
    """
    for change in changes:
        operation, name = Operation(change.config_operation), change.name
        if operation in (Operation.APPEND, Operation.SUBTRACT):
            message = f"{operation.name} operation is not allowed for the BROKER_LOGGER resource"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
        if not exists(name):
            message = f"Logger {name[:300]} does not exist!"
            return Refusal(ErrorCode.INVALID_CONFIG, message)
        if operation is Operation.SET and change.value not in LEVELS:
            message = (
                f"Cannot set the log level of {name} to {(change.value or '')[:300]} as it is not "
                f"a supported log level. Valid log levels are {', '.join(LEVELS)}"
            )
            return Refusal(ErrorCode.INVALID_CONFIG, message)
        if operation is Operation.DELETE and name == ROOT:
            message = "Removing the log level of the root logger is not allowed"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
    return None
