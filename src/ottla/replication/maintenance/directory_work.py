"""A guard for work on one directory: a disk failure takes the directory offline and ends there."""

from types import TracebackType
from typing import Protocol

from ottla.protocol.faults import StorageFailed
from ottla.storage.directory.log_dir import LogDirectory


class FailureHandler(Protocol):
    """Takes directories offline."""

    def storage_failed(self, directory: LogDirectory, reason: str) -> None:
        """Take a directory and every partition in it offline."""
        ...


class DirectoryWork:
    """``with DirectoryWork(host, directory):`` takes it offline on `StorageFailed`."""

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
