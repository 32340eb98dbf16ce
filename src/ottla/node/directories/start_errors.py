"""Start errors as one line for the operator: the file, the cause, the next step."""

import errno
import re
from typing import Final

from ottla.metadata.metadata_versions import (
    LATEST_PRODUCTION,
    METADATA_VERSION,
    MINIMUM_VERSION,
)
from ottla.metadata.replay_fault import ReplayFault
from ottla.node.broker.broker_lifecycle import RegistrationRefused
from ottla.node.broker.replica_manager import AllDirectoriesFailed
from ottla.node.handle import StartFailed
from ottla.protocol.faults import Fault, StorageFailed
from ottla.protocol.internal.metadata_records import NewerMetadataRecord
from ottla.raft.metadata_log import UnusableMetadataLog
from ottla.raft.quorum_state_file import UnreadableQuorumState
from ottla.raft.snapshots import CorruptSnapshot
from ottla.storage.directory.log_dir import DirectoryInUse
from ottla.storage.directory.meta_properties import MetaPropertiesRefused

START_FAULTS: Final = (
    AllDirectoriesFailed,
    DirectoryInUse,
    MetaPropertiesRefused,
    StartFailed,
    UnusableMetadataLog,
    UnreadableQuorumState,
    CorruptSnapshot,
    ReplayFault,
    RegistrationRefused,
    Fault,
    OSError,
)
_CHECK_DISK: Final = "Check the disk and the permissions, then start again."
_NEWER: Final = (
    f"The cluster has finalized a {METADATA_VERSION} that this release does not support; it "
    f"supports {int(MINIMUM_VERSION)} ({MINIMUM_VERSION}) to {int(LATEST_PRODUCTION)} "
    f"({LATEST_PRODUCTION}). Run a release that supports the finalized level."
)
_ADDRESS: Final = {errno.EADDRINUSE, errno.EADDRNOTAVAIL}
_NUMBER: Final = re.compile(r"\[Errno -?[0-9]+\] ")


def start_error(error: Exception) -> str:
    """Return one line that names the file, the cause and the next step, without a class name."""
    return _NUMBER.sub("", " ".join(_words(error).split()))


def _words(error: Exception) -> str:
    if isinstance(error, AllDirectoriesFailed):
        return f"no log directory can be used: {error}. {_CHECK_DISK}"
    if isinstance(error, DirectoryInUse):
        return f"{error}. Stop that process, or give this node a directory of its own."
    if isinstance(error, StorageFailed):
        return f"{error.directory}: {error.reason}. {_CHECK_DISK}"
    if isinstance(error, NewerMetadataRecord):
        return f"{error}. {_NEWER}"
    if isinstance(error, OSError):
        return _system_error(error)
    return str(error) or "the node could not be started"


def _system_error(error: OSError) -> str:
    cause = error.strerror or str(error) or "the system refused it"
    if error.errno in _ADDRESS:
        return f"{cause}. Set `listeners` to addresses of this machine that nobody else uses."
    if error.filename is None:
        return f"{cause}. {_CHECK_DISK}"
    return f"{error.filename}: {cause}. {_CHECK_DISK}"
