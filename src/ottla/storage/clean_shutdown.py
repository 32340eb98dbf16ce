"""``.kafka_cleanshutdown``: the last run closed every log of this directory. One line of JSON:

    {"version":0,"brokerEpoch":42}

Written after everything else when a node stops, removed before anything else when it starts:
while it is there nothing in the directory has been written since, so logs need no recovery.
The broker's epoch goes into its next registration (KIP-966).
"""

import json
from typing import NamedTuple

from ottla.runtime.atomic_file import read_file, replace_file
from ottla.runtime.ports import Disk

FILE_NAME = ".kafka_cleanshutdown"
VERSION = 0
UNKNOWN_BROKER_EPOCH = -1


class CleanShutdown(NamedTuple):
    """What the marker said; the epoch is -1 where it was not written or not readable."""

    broker_epoch: int


def take(disk: Disk, directory: str) -> CleanShutdown | None:
    """Remove the marker, durably, and return it; None when the last run did not end well.

    Raises:
        OSError: it may still be there; nothing in the directory may be written.
    """
    path = f"{directory}/{FILE_NAME}"
    data = read_file(disk, path)
    if data is None:
        return None
    disk.remove(path)
    disk.sync_dir(directory)
    return CleanShutdown(_broker_epoch(data))


def leave(disk: Disk, directory: str, broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> None:
    """Write the marker, durably. Everything else in the directory must be durable before.

    Raises:
        OSError: it may or may not be there, and is true either way.
    """
    text = json.dumps({"version": VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    replace_file(disk, f"{directory}/{FILE_NAME}", text.encode())


def _broker_epoch(data: bytes) -> int:
    """Read the epoch; older brokers left the file empty, which counts all the same."""
    try:
        content = json.loads(data)
    except ValueError:
        return UNKNOWN_BROKER_EPOCH
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if isinstance(epoch, int) else UNKNOWN_BROKER_EPOCH
