"""Events of a server, for metrics: connections, requests and rejections."""

from typing import Protocol

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode


class ServerEvents(Protocol):
    """Callbacks on the event loop; they must be fast and must not raise."""

    def connection_opened(self, listener: str) -> None:
        """A connection was admitted."""
        ...

    def connection_refused(self, listener: str, reason: str) -> None:
        """A connection was rejected by a limit."""
        ...

    def connection_closed(self, listener: str, reason: str) -> None:
        """An admitted connection was closed."""
        ...

    def requested(self, listener: str, key: ApiKey) -> None:
        """A well-formed request was passed to its handler."""
        ...

    def answered(self, listener: str, key: ApiKey, micros: int) -> None:
        """A reply is ready to be sent, ``micros`` after the last byte of its request was read."""
        ...

    def answered_at_once(self, listener: str, key: ApiKey) -> None:
        """A request was answered on a fast path: both of the above, with a time of zero."""
        ...

    def request_failed(self, listener: str, key: ApiKey, code: ErrorCode) -> None:
        """A handler raised."""
        ...

    def bad_bytes(self, listener: str) -> None:
        """A connection was closed because it sent an invalid request."""
        ...

    def logged_in(self, listener: str, mechanism: str) -> None:
        """A client logged in by SASL."""
        ...

    def login_failed(self, listener: str, mechanism: str) -> None:
        """A login by SASL failed; ``mechanism`` is empty if it was not an enabled one."""
        ...


class NoEvents:
    """Ignores all events."""

    def connection_opened(self, listener: str) -> None:
        """Ignore the event."""

    def connection_refused(self, listener: str, reason: str) -> None:
        """Ignore the event."""

    def connection_closed(self, listener: str, reason: str) -> None:
        """Ignore the event."""

    def requested(self, listener: str, key: ApiKey) -> None:
        """Ignore the event."""

    def answered(self, listener: str, key: ApiKey, micros: int) -> None:
        """Ignore the event."""

    def answered_at_once(self, listener: str, key: ApiKey) -> None:
        """Ignore the event."""

    def request_failed(self, listener: str, key: ApiKey, code: ErrorCode) -> None:
        """Ignore the event."""

    def bad_bytes(self, listener: str) -> None:
        """Ignore the event."""

    def logged_in(self, listener: str, mechanism: str) -> None:
        """Ignore the event."""

    def login_failed(self, listener: str, mechanism: str) -> None:
        """Ignore the event."""
