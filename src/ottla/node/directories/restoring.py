"""Writes a lost ``meta.properties`` again (``ottla format --restore``).

The node id is that of the settings, and the cluster id that of the node's other directories, or of
the operator. The directory id is known to the metadata log, of which every node has a copy: the
node's last registration lists its log directories, and the voters of the quorum theirs. Ids of
directories that still have their file are taken; if one id is left, it is that of the lost file. In
any doubt nothing is written.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.protocol.faults import CorruptBatch, UnsupportedMagic
from ottla.protocol.internal.metadata_cluster import RegisterBrokerRecord
from ottla.protocol.internal.metadata_records import decode_metadata_record
from ottla.protocol.records.batch import is_crc_valid
from ottla.protocol.records.reader import read_records
from ottla.protocol.types import NodeId, Uuid
from ottla.protocol.uuids import is_reserved, uuid_text
from ottla.raft.control_batches import controls_of_batch
from ottla.raft.core.messages import VotersAt
from ottla.raft.snapshots import parse_snapshot_name
from ottla.runtime.ports import Disk, OpenMode
from ottla.storage.directory.directory_data import METADATA_NAME, find_data
from ottla.storage.directory.meta_properties import (
    MetaProperties,
    MetaPropertiesRefused,
    read_meta_properties,
    write_meta_properties,
)
from ottla.storage.log.files import Kind
from ottla.storage.log.scan import StoredBatch, whole_batches


class RestoreRefused(Exception):
    """The contents of the lost file are in doubt; nothing was written."""


class RestoreOptions(NamedTuple):
    """The node, its directories, that of the metadata log first, and what the operator knows."""

    node_id: NodeId
    directories: Sequence[str]
    cluster_id: str | None = None
    directory_id: Uuid | None = None


def restore_owner(disk: Disk, options: RestoreOptions) -> tuple[str, MetaProperties]:
    """Write the file of the one directory that has data and no file; return both.

    Raises:
        RestoreRefused, OSError
    """
    owners = {path: _owner(disk, path) for path in options.directories if disk.exists(path)}
    lost = [path for path, meta in owners.items() if meta is None and find_data(disk, path)]
    if not lost:
        raise RestoreRefused("every directory with data has its meta.properties")
    if len(lost) > 1 and options.directory_id is None:
        raise RestoreRefused(
            f"{', '.join(lost)} have no meta.properties: put them into log.dirs one at a time, and "
            "name the id of each with --directory-id"
        )
    kept = [meta for meta in owners.values() if meta is not None]
    for meta in kept:
        if meta.node_id != options.node_id:
            raise RestoreRefused(
                f"another directory belongs to node {meta.node_id}, not to node {options.node_id}"
            )
    cluster_id = _cluster_id(options, {meta.cluster_id for meta in kept})
    taken = {meta.directory_id for meta in kept}
    known = _known_ids(disk, options) - taken
    restored = MetaProperties(options.node_id, cluster_id, _directory_id(options, lost[0], known))
    write_meta_properties(disk, lost[0], restored)
    return lost[0], restored


def _owner(disk: Disk, path: str) -> MetaProperties | None:
    try:
        return read_meta_properties(disk, path)
    except MetaPropertiesRefused as error:
        raise RestoreRefused(f"{error} Remove it first.") from error


def _cluster_id(options: RestoreOptions, known: set[str]) -> str:
    if options.cluster_id is not None:
        if known - {options.cluster_id}:
            raise RestoreRefused(
                f"another directory belongs to cluster {', '.join(sorted(known))}, not to "
                f"{options.cluster_id}"
            )
        return options.cluster_id
    if len(known) == 1:
        return known.pop()
    raise RestoreRefused(
        "no other directory says which cluster this is: give its id with --cluster-id; "
        "`ottla cluster info` prints it, and so does meta.properties of another node"
    )


def _directory_id(options: RestoreOptions, path: str, known: set[Uuid]) -> Uuid:
    names = ", ".join(sorted(map(uuid_text, known)))
    if options.directory_id is not None:
        if known and options.directory_id not in known:
            raise RestoreRefused(f"{path}: the metadata log knows {names} for it")
        return options.directory_id
    if len(known) != 1:
        found = f"has several ids for it, {names}" if known else "does not know its id"
        raise RestoreRefused(f"{path}: the metadata log {found}: give it with --directory-id")
    return known.pop()


# -- what the metadata log knows ---------------------------------------------------


def _known_ids(disk: Disk, options: RestoreOptions) -> set[Uuid]:
    """Return the ids of the node's directories, by the local copy of the metadata."""
    registered: set[Uuid] = set()
    voter: set[Uuid] = set()
    for batch in _batches(disk, f"{options.directories[0]}/{METADATA_NAME}"):
        if batch.header.is_control:
            voter = _voter_ids(batch, options.node_id) or voter
        else:
            registered = _registered_ids(batch, options.node_id) or registered
    return {each for each in registered or voter if not is_reserved(each)}


def _voter_ids(batch: StoredBatch, node_id: NodeId) -> set[Uuid]:
    return {
        voter.key.directory_id
        for control in controls_of_batch(batch.buffer, batch.start)
        if isinstance(control, VotersAt)
        for voter in control.voters
        if voter.key.node_id == node_id
    }


def _registered_ids(batch: StoredBatch, node_id: NodeId) -> set[Uuid]:
    """Return the directories of the last registration of a node in a batch."""
    found: set[Uuid] = set()
    for record in read_records(batch.buffer, batch.start):
        message = decode_metadata_record(record.value or b"").message
        if isinstance(message, RegisterBrokerRecord) and message.broker_id == node_id:
            found = set(message.log_dirs)
    return found


def _batches(disk: Disk, directory: str) -> Iterator[StoredBatch]:
    """Yield the batches of the snapshots and of the log, oldest first; a torn end is left out."""
    if not disk.is_dir(directory):
        return
    names = disk.list(directory)
    snapshots = [name for name in names if parse_snapshot_name(name) is not None]
    for name in [*snapshots, *(name for name in names if name.endswith(Kind.LOG.value))]:
        file = disk.open(f"{directory}/{name}", OpenMode.READ)
        try:
            for batch in whole_batches(file, 0, file.size()):
                if not is_crc_valid(batch.buffer, batch.start, batch.header):
                    break
                yield batch
        except (CorruptBatch, UnsupportedMagic):
            continue
        finally:
            file.close()
