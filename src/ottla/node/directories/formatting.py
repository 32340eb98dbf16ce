"""Formats the directories of a node, once, before its first start (``ottla format``).

    <each directory>/meta.properties                        node, cluster, id of the directory
    <metadata directory>/bootstrap.checkpoint               first records of a new cluster
    <metadata directory>/__cluster_metadata-0/
        00000000000000000000-0000000000.checkpoint          voters, of a quorum that may change

``meta.properties`` is written last in each directory: a directory with that file is complete. If
any directory belongs to another node, nothing is written at all.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from ottla.protocol.internal.framing import Versioned, encode_framed
from ottla.protocol.types import Millis, NodeId, Offset, Uuid
from ottla.protocol.uuids import uuid_text
from ottla.raft.control_batches import snapshot_foot, snapshot_head
from ottla.raft.core.log_view import BOOTSTRAP_SNAPSHOT, LogPosition
from ottla.raft.core.voters import VoterSet
from ottla.raft.metadata_log import DIRECTORY_NAME
from ottla.raft.snapshots import BOOTSTRAP_NAME, data_batch, snapshot_name
from ottla.runtime.atomic_file import replace_file
from ottla.runtime.ports import Disk, Random
from ottla.storage.directory.directory_data import find_data
from ottla.storage.directory.meta_properties import (
    MetaProperties,
    MetaPropertiesRefused,
    read_meta_properties,
    write_meta_properties,
)

KRAFT_VERSION_DYNAMIC: Final = 1


class FormatRefused(Exception):
    """Formatting would destroy data or is contradictory; nothing was written."""


class FormatPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to write. ``directories`` begins with that of the metadata log, whose id is
    ``metadata_directory_id``; ``voters`` is None unless the first voters of the quorum are written.
    """

    node_id: NodeId
    cluster_id: str
    directories: Sequence[str]
    metadata_directory_id: Uuid
    bootstrap: Sequence[Versioned]
    voters: VoterSet | None = None
    is_formatted_ignored: bool = False


class Formatted(msgspec.Struct, frozen=True):
    """The result: the directories that were formatted, and those that already were."""

    made: tuple[str, ...]
    ignored: tuple[str, ...]


def format_node(disk: Disk, random: Random, now: Millis, plan: FormatPlan) -> Formatted:
    """Execute a plan.

    Raises:
        FormatRefused: a directory belongs to another node; nothing was written.
        OSError: the disk failed; formatting can be repeated.
    """
    ignored = [path for path in plan.directories if _is_formatted(disk, path, plan)]
    if ignored and not plan.is_formatted_ignored:
        raise FormatRefused(
            f"{ignored[0]}: is formatted already; --ignore-formatted leaves such directories "
            "as they are and formats the others"
        )
    made = [path for path in plan.directories if path not in ignored]
    for path in made:
        disk.make_dirs(path)
        if path == plan.directories[0]:
            _write_beginning(disk, path, now, plan)
            directory_id = plan.metadata_directory_id
        else:
            directory_id = random.uuid()
        meta = MetaProperties(plan.node_id, plan.cluster_id, directory_id)
        write_meta_properties(disk, path, meta)
    return Formatted(tuple(made), tuple(ignored))


def _is_formatted(disk: Disk, path: str, plan: FormatPlan) -> bool:
    """Say whether a directory is already formatted for this node.

    Raises:
        FormatRefused: it belongs to another node or cluster, or to an unknown one.
    """
    if not disk.exists(path):
        return False
    try:
        meta = read_meta_properties(disk, path)
    except MetaPropertiesRefused as error:
        raise FormatRefused(str(error)) from error
    if meta is None:
        name = find_data(disk, path)
        if name is not None:
            raise FormatRefused(
                f"{path}: holds the data of a node ({name}), but no meta.properties. Formatting "
                "would give it new ids and make the data useless. Restore the file from a backup, "
                "or with `ottla format --restore`; to start anew, empty the directory first"
            )
        return False
    if meta.cluster_id != plan.cluster_id:
        raise FormatRefused(
            f"{path}: belongs to cluster {meta.cluster_id!r}, not to {plan.cluster_id!r}"
        )
    if meta.node_id != plan.node_id:
        raise FormatRefused(f"{path}: belongs to node {meta.node_id}, not to node {plan.node_id}")
    return True


def _write_beginning(disk: Disk, path: str, now: Millis, plan: FormatPlan) -> None:
    replace_file(disk, f"{path}/{BOOTSTRAP_NAME}", bootstrap_file(plan.bootstrap, now))
    if plan.voters is not None:
        directory = f"{path}/{DIRECTORY_NAME}"
        disk.make_dirs(directory)
        target = f"{directory}/{snapshot_name(BOOTSTRAP_SNAPSHOT)}"
        replace_file(disk, target, voters_file(plan.voters, now))


def bootstrap_file(records: Sequence[Versioned], now: Millis) -> bytes:
    """Return a ``bootstrap.checkpoint``: the records between the head and end of a snapshot."""
    epoch = BOOTSTRAP_SNAPSHOT.epoch
    head = snapshot_head(epoch, now, now, 0, VoterSet())
    body = b""
    if records:
        values = [encode_framed(record) for record in records]
        body = data_batch(LogPosition(epoch, Offset(1)), now, values)
    return head + body + snapshot_foot(LogPosition(epoch, Offset(1 + len(records))), now)


def voters_file(voters: VoterSet, now: Millis) -> bytes:
    """Return the snapshot before the first record: the voters, and a kraft.version with which they
    can change.
    """
    epoch = BOOTSTRAP_SNAPSHOT.epoch
    head = snapshot_head(epoch, now, now, KRAFT_VERSION_DYNAMIC, voters)
    return head + snapshot_foot(LogPosition(epoch, Offset(3)), now)


def described(plan: FormatPlan) -> list[str]:
    """Return a plan as text for the operator."""
    lines = [f"node {plan.node_id} of cluster {plan.cluster_id}"]
    if plan.voters is not None:
        lines += [
            f"voter {voter.key.node_id} directory {uuid_text(voter.key.directory_id)} "
            f"at {', '.join(f'{e.host}:{e.port}' for e in voter.endpoints)}"
            for voter in plan.voters
        ]
    return lines
