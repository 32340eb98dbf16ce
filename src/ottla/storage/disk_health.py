"""Whether the disk under a log still works; once it failed, it has failed for good.

An fsync that failed may have dropped what it was asked to write, and a write that failed may
have left anything: so there is no trying again, only `StorageFailed` from then on.
"""

from types import TracebackType

from ottla.protocol.faults import StorageFailed


class DiskHealth:
    """A guard for work on the disk: ``with health:`` turns an ``OSError`` into the log's end."""

    __slots__ = ("_directory", "failure")

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.failure: str | None = None

    def check(self) -> None:
        """Refuse to go on after a failure.

        Raises:
            StorageFailed: there was one.
        """
        if self.failure is not None:
            raise StorageFailed(self._directory, self.failure)

    def fail(self, error: OSError) -> StorageFailed:
        """Note a failure; returns what to raise from it."""
        self.failure = self.failure or str(error)
        return StorageFailed(self._directory, str(error))

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError):
            raise self.fail(error) from error
