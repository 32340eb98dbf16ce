"""Whether a log directory holds data of a node."""

from contextlib import suppress
from typing import Final

from ottla.runtime.ports import Disk
from ottla.storage.directory.partition_names import parse_name
from ottla.storage.log.files import Kind

METADATA_NAME: Final = "__cluster_metadata-0"


def find_data(disk: Disk, directory: str) -> str | None:
    """Return the name of a log in a directory, that of the metadata first; None if there is none.

    A directory that ``ottla format`` began to write holds a first snapshot, but no log.

    Raises:
        OSError
    """
    names = disk.list(directory)
    if METADATA_NAME in names and _has_log(disk, f"{directory}/{METADATA_NAME}"):
        return METADATA_NAME
    for name in names:
        is_log = name != METADATA_NAME and parse_name(name) is not None
        if is_log and disk.is_dir(f"{directory}/{name}"):
            return name
    return None


def _has_log(disk: Disk, directory: str) -> bool:
    with suppress(NotADirectoryError):
        return any(name.endswith(Kind.LOG.value) for name in disk.list(directory))
    return False
