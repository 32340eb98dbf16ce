"""The quorum-state file: what is read back, and which content stops the start."""

import json

import pytest

from ottla.protocol.types import LeaderEpoch, NodeId, Uuid
from ottla.protocol.uuids import uuid_text
from ottla.raft.core.effects import PersistElection
from ottla.raft.core.voters import ReplicaKey, Voter, VoterSet
from ottla.raft.quorum_state_file import NO_ELECTION, QuorumStateFile, UnreadableQuorumState
from ottla.runtime.atomic_file import replace_file
from simulation.disk import SimDisk
from simulation.platter import Keep

OWN = ReplicaKey(NodeId(1), Uuid(b"o" * 16))
OTHER = ReplicaKey(NodeId(2), Uuid(b"p" * 16))
VOTERS = VoterSet((Voter(OWN), Voter(OTHER)))


def fresh() -> tuple[SimDisk, QuorumStateFile]:
    disk = SimDisk(0)
    disk.make_dirs("/meta")
    return disk, QuorumStateFile(disk, "/meta", OWN)


def put(disk: SimDisk, data: bytes) -> None:
    replace_file(disk, "/meta/quorum-state", data)


def test_missing_file_means_no_vote() -> None:
    assert fresh()[1].read() == NO_ELECTION


@pytest.mark.parametrize("voted", [None, OWN, OTHER])
@pytest.mark.parametrize("leader", [None, NodeId(2)])
def test_version_1_keeps_everything(voted: ReplicaKey | None, leader: NodeId | None) -> None:
    disk, file = fresh()
    election = PersistElection(LeaderEpoch(7), voted, leader)
    file.write(election, 1, VOTERS)
    assert file.read() == election
    content = json.loads(disk.read("/meta/quorum-state"))
    assert content["data_version"] == 1
    assert "currentVoters" not in content
    if voted is not None:
        assert content["votedDirectoryId"] == uuid_text(voted.directory_id)


def test_version_0_contains_voters_and_no_directory() -> None:
    disk, file = fresh()
    file.write(PersistElection(LeaderEpoch(7), OTHER, None), 0, VOTERS)
    content = json.loads(disk.read("/meta/quorum-state"))
    assert content["data_version"] == 0
    assert content["currentVoters"] == [{"voterId": 1}, {"voterId": 2}]
    assert file.read().voted == ReplicaKey(OTHER.node_id)


def test_vote_for_the_own_node_is_recognised_in_version_0() -> None:
    _, file = fresh()
    file.write(PersistElection(LeaderEpoch(7), OWN, None), 0, VOTERS)
    assert file.read().voted == OWN


def test_written_state_survives_a_power_loss() -> None:
    disk, file = fresh()
    election = PersistElection(LeaderEpoch(9), OTHER, None)
    file.write(election, 1, VOTERS)
    disk.crash(Keep.NOTHING)
    disk.restart()
    assert file.read() == election


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00" * 90,
        b"garbage",
        b"\xff\xfe",
        b'{"leaderId":1,"leaderEpoch":5',
        b'{"leaderId":1,"leaderEpoch":5,"votedId":-1,"votedDirectoryId":"x","data_version":1}',
        b'{"leaderId":1,"leaderEpoch":5,"votedId":-1,"data_version":9}',
        b'{"leaderId":1,"leaderEpoch":-5,"votedId":-1,"votedDirectoryId":'
        b'"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        b" " * ((1 << 20) + 1),
    ],
    ids=["empty", "zeros", "text", "no utf-8", "torn", "bad id", "version", "epoch", "huge"],
)
def test_damaged_file_stops_the_start(data: bytes) -> None:
    disk, file = fresh()
    put(disk, data)
    with pytest.raises(UnreadableQuorumState, match=r"quorum-state is damaged.*does not start"):
        file.read()
    assert disk.read("/meta/quorum-state") == data, "left for the operator to look at"


def test_largest_epoch_stops_the_start_with_instructions() -> None:
    _, file = fresh()
    election = PersistElection(LeaderEpoch(2**31 - 1), None, None)
    file.write(election, 1, VoterSet(()))
    with pytest.raises(UnreadableQuorumState, match=r"quorum-state is in leader epoch 2147483647"):
        file.read()
