"""What a client raises, and the errors of brokers after which it looks again. Pure."""

from typing import Final

from ottla.protocol.errors import ErrorCode, name_of_code

LEADER_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors of a node that does not lead the partition, or not yet: look the leader up and retry."""

COORDINATOR_MOVED_OR_LOADING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors of a coordinator that is moving or loading: look it up and retry."""

CONTROLLER_MOVED: Final = frozenset({ErrorCode.NOT_CONTROLLER})


class Refused(Exception):
    """A broker answered with an error. ``code`` is Kafka's."""

    def __init__(self, code: int, subject: str, message: str | None = None) -> None:
        self.code = code
        self.subject = subject
        self.message = message or ""
        detail = f": {self.message}" if self.message else ""
        super().__init__(f"{subject}: {name_of_code(code)}{detail}")


class NoBroker(ConnectionError):
    """No known broker address responds."""


class ConnectionLost(ConnectionError):
    """The connection closed before the reply; whether the request was served is unknown."""


class NotSent(ConnectionLost):
    """The connection closed before the request was sent: it may be sent again."""


def check(code: int, subject: str, message: str | None = None) -> None:
    """Raise `Refused` unless the code is NONE."""
    if code != ErrorCode.NONE:
        raise Refused(code, subject, message)


def refusal_of(code: int, subject: object, message: str | None = None) -> Refused | None:
    """Return the error of a code; None if it is NONE."""
    return None if code == ErrorCode.NONE else Refused(code, str(subject), message)
