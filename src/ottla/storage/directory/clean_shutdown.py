"""``.kafka_cleanshutdown``: marks that the last run closed every log of this directory.

    {"version":0,"brokerEpoch":42}

One line of JSON. Written last when a node stops and removed first when it starts: while the file
exists, nothing in the directory has been written since, so the logs need no recovery. The broker
epoch is sent with the next registration (KIP-966).
"""

import json
from typing import NamedTuple

from ottla.runtime.atomic_file import read_file, replace_file
from ottla.runtime.ports import Disk

FILE_NAME = ".kafka_cleanshutdown"
VERSION = 0
UNKNOWN_BROKER_EPOCH = -1


class CleanShutdown(NamedTuple):
    """The content of the marker; the epoch is -1 where it is missing or unreadable."""

    broker_epoch: int


def take(disk: Disk, directory: str) -> CleanShutdown | None:
    """Remove the marker durably and return it; None when the last shutdown was not clean.

    Raises:
        OSError: the marker may still exist; nothing in the directory may be written.
    """
    path = f"{directory}/{FILE_NAME}"
    data = read_file(disk, path)
    if data is None:
        return None
    disk.remove(path)
    disk.sync_dir(directory)
    return CleanShutdown(_broker_epoch(data))


def leave(disk: Disk, directory: str, broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> None:
    """Write the marker durably. Everything else in the directory must be durable already.

    Raises:
        OSError: the marker may or may not exist, and is true either way.
    """
    text = json.dumps({"version": VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    replace_file(disk, f"{directory}/{FILE_NAME}", text.encode())


def _broker_epoch(data: bytes) -> int:
    """Return the epoch; -1 for the empty file that older brokers wrote, which is valid too."""
    try:
        content = json.loads(data)
    except ValueError:
        return UNKNOWN_BROKER_EPOCH
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if isinstance(epoch, int) else UNKNOWN_BROKER_EPOCH
