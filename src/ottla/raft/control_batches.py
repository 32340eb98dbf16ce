"""Control batches of the metadata log and of snapshots, and the parts of them the core needs.

A control batch is a record batch with the control bit set; each record's key is its type, its value
a message of `ottla.protocol.internal.raft_records`, always in version 0:

    start of an epoch       LeaderChange, then KRaftVersion and Voters if they changed
    voter change            Voters
    head of a snapshot      SnapshotHeader, then KRaftVersion and Voters if kraft.version > 0
    end of a snapshot       SnapshotFooter

Pure. Records of types that the core does not need (LeaderChange, transaction markers) are skipped
when reading.
"""

from collections.abc import Iterable, Iterator

from ottla.protocol.codec import decode, encode
from ottla.protocol.faults import InvalidRecord
from ottla.protocol.internal import raft_records as wire
from ottla.protocol.records.control import ControlType, control_key, parse_control_type
from ottla.protocol.records.reader import Record, read_records
from ottla.protocol.records.writer import build_batch
from ottla.protocol.schema import Message
from ottla.protocol.types import Buffer, LeaderEpoch, Millis, NodeId, Offset
from ottla.raft.core.effects import (
    ControlRecord,
    KRaftVersionRecord,
    LeaderChange,
    VotersRecord,
)
from ottla.raft.core.log_view import LogPosition
from ottla.raft.core.messages import Control, KRaftVersionAt, VotersAt
from ottla.raft.core.voters import Endpoint, ReplicaKey, VersionRange, Voter, VoterSet


def control_batch(position: LogPosition, now: Millis, records: Iterable[ControlRecord]) -> bytes:
    """Return ``records`` as one batch that starts at ``position``, in the leader's epoch."""
    return _batch(position, now, [_message(record) for record in records])


def snapshot_head(
    epoch: LeaderEpoch, now: Millis, last_timestamp: Millis, kraft_version: int, voters: VoterSet
) -> bytes:
    """Return the first batch of a snapshot; its next offset equals its number of records."""
    messages: list[tuple[ControlType, Message]] = [
        (
            ControlType.SNAPSHOT_HEADER,
            wire.SnapshotHeaderRecord(last_contained_log_timestamp=last_timestamp),
        )
    ]
    if kraft_version > 0:
        messages += [_message(KRaftVersionRecord(kraft_version)), _message(VotersRecord(voters))]
    return _batch(LogPosition(epoch, Offset(0)), now, messages)


def snapshot_foot(position: LogPosition, now: Millis) -> bytes:
    """Return the last batch of a snapshot."""
    return _batch(position, now, [(ControlType.SNAPSHOT_FOOTER, wire.SnapshotFooterRecord())])


def _batch(
    position: LogPosition, now: Millis, messages: Iterable[tuple[ControlType, Message]]
) -> bytes:
    records = [
        Record(
            Offset(position.offset + index),
            now,
            control_key(kind),
            encode(message, wire.CONTROL_VERSION),
        )
        for index, (kind, message) in enumerate(messages)
    ]
    return bytes(
        build_batch(
            records, base_offset=position.offset, leader_epoch=position.epoch, is_control=True
        )
    )


def _message(record: ControlRecord) -> tuple[ControlType, Message]:
    match record:
        case LeaderChange():
            return ControlType.LEADER_CHANGE, wire.LeaderChangeMessage(
                leader_id=record.leader_id,
                voters=[wire.LeaderChangeVoter(voter) for voter in record.voters],
                granting_voters=[wire.LeaderChangeVoter(voter) for voter in record.granting],
            )
        case KRaftVersionRecord():
            return ControlType.KRAFT_VERSION, wire.KRaftVersionRecord(k_raft_version=record.level)
        case VotersRecord():
            return ControlType.KRAFT_VOTERS, voters_message(record.voters)


def voters_message(voters: VoterSet) -> wire.VotersRecord:
    """Return a voter set as the record in the log."""
    return wire.VotersRecord(
        voters=[
            wire.VotersVoter(
                voter.key.node_id,
                voter.key.directory_id,
                [wire.Endpoint(e.listener, e.host, e.port) for e in voter.endpoints],
                wire.KRaftVersionFeature(voter.kraft_versions.lowest, voter.kraft_versions.highest),
            )
            for voter in voters
        ]
    )


def voters_of(message: wire.VotersRecord) -> VoterSet:
    """Return the voter set of a record.

    Raises:
        InvalidRecord: it names a node twice.
    """
    ids = [voter.voter_id for voter in message.voters]
    if len(set(ids)) < len(ids):
        raise InvalidRecord(f"voters {ids} contain a node id twice")
    return VoterSet(tuple(_voter(voter) for voter in message.voters))


def _voter(voter: wire.VotersVoter) -> Voter:
    feature = voter.k_raft_version_feature
    return Voter(
        ReplicaKey(NodeId(voter.voter_id), voter.voter_directory_id),
        tuple(Endpoint(e.name, e.host, e.port) for e in voter.endpoints),
        VersionRange(feature.min_supported_version, feature.max_supported_version),
    )


def controls_of_batch(buffer: Buffer, start: int = 0) -> list[Control]:
    """Return the control records of the control batch at ``start``. Raises Fault."""
    return list(_controls(read_records(buffer, start)))


def _controls(records: Iterable[Record]) -> Iterator[Control]:
    for record in records:
        kind = parse_control_type(record.key)
        value = record.value or b""
        if kind is ControlType.KRAFT_VOTERS:
            voters = decode(wire.VotersRecord, wire.CONTROL_VERSION, value)
            yield VotersAt(record.offset, voters_of(voters))
        elif kind is ControlType.KRAFT_VERSION:
            version = decode(wire.KRaftVersionRecord, wire.CONTROL_VERSION, value)
            yield KRaftVersionAt(record.offset, version.k_raft_version)


def control_kinds(buffer: Buffer, start: int = 0) -> list[ControlType]:
    """Return the types of the records of the control batch at ``start``."""
    return [parse_control_type(record.key) for record in read_records(buffer, start)]


def last_log_timestamp(buffer: Buffer) -> Millis:
    """Return the timestamp of the newest record, as the head of a snapshot gives it."""
    first = read_records(buffer, 0)[0]
    head = decode(wire.SnapshotHeaderRecord, wire.CONTROL_VERSION, first.value or b"")
    return Millis(head.last_contained_log_timestamp)
