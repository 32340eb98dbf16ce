"""Map an exception raised by a handler to the error code of the reply."""

import asyncio

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault


def to_error_code(error: BaseException) -> ErrorCode:
    """Return the error code for an exception.

    A `Fault` carries its own code. Errors of the operating system and of asyncio are mapped by
    type. Everything else is a bug of the broker and becomes UNKNOWN_SERVER_ERROR.
    """
    match error:
        case Fault():
            return error.code
        case asyncio.CancelledError() | ConnectionError():
            # "Disconnected before a response was received": clients refresh metadata and retry.
            return ErrorCode.NETWORK_EXCEPTION
        case TimeoutError():
            return ErrorCode.REQUEST_TIMED_OUT
        case OSError():
            return ErrorCode.KAFKA_STORAGE_ERROR
        case _:
            return ErrorCode.UNKNOWN_SERVER_ERROR


def is_planned(error: BaseException) -> bool:
    """Say whether an error is an expected failure, whose traceback is not worth logging."""
    return isinstance(error, Fault | OSError | TimeoutError | asyncio.CancelledError)
