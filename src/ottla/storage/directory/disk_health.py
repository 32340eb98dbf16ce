"""Whether the disk under a log still works; after the first failure it never does again.

A failed fsync may have dropped what it was asked to write, and a failed write may have left
anything: so nothing is retried, and every later call raises `StorageFailed`.
"""

from types import TracebackType

from ottla.protocol.faults import StorageFailed


class DiskHealth:
    """A guard for disk work: ``with health:`` turns an ``OSError`` into the log's failure."""

    __slots__ = ("_directory", "failure")

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.failure: str | None = None

    def check(self) -> None:
        """Raise after a failure.

        Raises:
            StorageFailed: the disk has failed before.
        """
        if self.failure is not None:
            raise StorageFailed(self._directory, self.failure)

    def fail(self, error: OSError) -> StorageFailed:
        """Record a failure; return the fault to raise from it."""
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
