"""What a server tells whoever counts: connections, requests, refusals."""

from typing import Protocol

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode


class ServerEvents(Protocol):
    """Called on the event loop as things happen; must be quick and must not raise."""

    def connection_opened(self, listener: str) -> None:
        """A connection was admitted."""
        ...

    def connection_refused(self, listener: str, reason: str) -> None:
        """A connection was closed at once."""
        ...

    def connection_closed(self, listener: str, reason: str) -> None:
        """An admitted connection ended."""
        ...

    def requested(self, listener: str, key: ApiKey) -> None:
        """A well-formed request reached its handler."""
        ...

    def answered(self, listener: str, key: ApiKey, micros: int) -> None:
        """The reply of a request is ready to leave, so long after its last byte was read."""
        ...

    def answered_at_once(self, listener: str, key: ApiKey) -> None:
        """A request was answered in no time: both of the above."""
        ...

    def request_failed(self, listener: str, key: ApiKey, code: ErrorCode) -> None:
        """A handler raised."""
        ...

    def bad_bytes(self, listener: str) -> None:
        """A connection was closed for what it sent."""
        ...


class NoEvents:
    """Nobody counts."""

    def connection_opened(self, listener: str) -> None:
        """Ignore it."""

    def connection_refused(self, listener: str, reason: str) -> None:
        """Ignore it."""

    def connection_closed(self, listener: str, reason: str) -> None:
        """Ignore it."""

    def requested(self, listener: str, key: ApiKey) -> None:
        """Ignore it."""

    def answered(self, listener: str, key: ApiKey, micros: int) -> None:
        """Ignore it."""

    def answered_at_once(self, listener: str, key: ApiKey) -> None:
        """Ignore it."""

    def request_failed(self, listener: str, key: ApiKey, code: ErrorCode) -> None:
        """Ignore it."""

    def bad_bytes(self, listener: str) -> None:
        """Ignore it."""
