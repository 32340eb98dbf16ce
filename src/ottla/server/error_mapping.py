"""From whatever a handler raised to the code its client is told (A24)."""

import asyncio

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault


def to_error_code(error: BaseException) -> ErrorCode:
    """Return the code for an error.

    A fault brings its own. An error of the world that no room has turned into a fault is told
    by its kind; what is left is our bug and an unknown server error.
    """
    match error:
        case Fault():
            return error.code
        case asyncio.CancelledError() | ConnectionError():
            # "Disconnected before a response was received": clients look elsewhere and try again.
            return ErrorCode.NETWORK_EXCEPTION
        case TimeoutError():
            return ErrorCode.REQUEST_TIMED_OUT
        case OSError():
            return ErrorCode.KAFKA_STORAGE_ERROR
        case _:
            return ErrorCode.UNKNOWN_SERVER_ERROR


def is_planned(error: BaseException) -> bool:
    """Say whether an error is one of the world's, so that its traceback tells nobody anything."""
    return isinstance(error, Fault | OSError | TimeoutError | asyncio.CancelledError)
