"""Guards for work on one directory: a disk failure takes the directory offline.

with DirectoryWork(host, directory):    the failure ends there
with DirectoryGuard(host, directory):   it is raised to the caller as well
"""

from types import TracebackType
from typing import Literal, Protocol

from ottla.protocol.faults import StorageFailed
from ottla.storage.directory.log_dir import LogDirectory


class FailureHandler(Protocol):
    """Takes directories offline."""

    def storage_failed(self, directory: LogDirectory, reason: str) -> None:
        """Take a directory and every partition in it offline."""
        ...


class DirectoryWork:
    """Takes the directory offline on `StorageFailed`, and ends the failure."""

    def __init__(self, host: FailureHandler, directory: LogDirectory) -> None:
        self._host = host
        self._directory = directory

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, StorageFailed):
            return False
        self._host.storage_failed(self._directory, error.reason)
        return True


class DirectoryGuard(DirectoryWork):
    """Takes the directory offline on `StorageFailed`, and lets it pass."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]:
        super().__exit__(kind, error, traceback)
        return False
