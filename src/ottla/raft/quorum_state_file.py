"""The file ``quorum-state``: read once at the start, replaced durably at each change.

Its layout is in `ottla.protocol.internal.quorum_state`. Version 0 is written while
``kraft.version`` is 0, version 1 from then on, as in Kafka. Version 0 has no field for the
directory of the candidate this node voted for. A vote for this node itself is taken as one for this
directory: the file is in it, so a node that lost the directory has lost the file as well. Any other
such vote is one for an unknown directory: it is not granted a second time, to any candidate.
"""

from typing import Final

from ottla.protocol.faults import ProtocolFault
from ottla.protocol.internal.quorum_state import QuorumState, from_json, to_json
from ottla.protocol.types import NO_LEADER, ZERO_UUID, LeaderEpoch
from ottla.raft.core.effects import PersistElection
from ottla.raft.core.epochs import EPOCH_LAST, exhausted
from ottla.raft.core.voters import ReplicaKey, VoterSet
from ottla.runtime.atomic_file import read_file, replace_file
from ottla.runtime.ports import Disk

FILE_NAME: Final = "quorum-state"
NO_ELECTION: Final = PersistElection(LeaderEpoch(0), None, None)
# A few dozen bytes per voter; a larger file was not written by a quorum.
BYTES_MAX: Final = 1 << 20


class UnreadableQuorumState(Exception):
    """The file cannot be read: this node cannot know how it voted, and must not run."""


class QuorumStateFile:
    """The quorum state of one metadata log. Each write blocks for one small sync."""

    def __init__(self, disk: Disk, directory: str, own: ReplicaKey) -> None:
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"
        self._own = own

    def read(self) -> PersistElection:
        """Return what was written last; epoch 0 without vote or leader if there is no file.

        Raises:
            UnreadableQuorumState: the file is damaged, or contains the largest possible epoch.
            OSError: it cannot be read.
        """
        data = read_file(self._disk, self._path)
        if data is None:
            return NO_ELECTION
        try:
            if len(data) > BYTES_MAX:
                raise ProtocolFault(f"quorum-state has {len(data)} bytes")
            state = from_json(data.decode("utf-8"))
            if state.leader_epoch < 0:
                raise ProtocolFault(f"quorum-state: leaderEpoch {state.leader_epoch} is negative")
            if state.leader_epoch >= EPOCH_LAST:
                raise UnreadableQuorumState(exhausted(self._path))
        except (ProtocolFault, UnicodeDecodeError) as error:
            raise UnreadableQuorumState(
                f"{self._path} is damaged ({error}). It holds this node's vote, so the node does "
                "not start. If its disk is lost, format the directory again: a new directory id "
                "makes it a new voter. Do not just delete the file."
            ) from error
        return self._election(state)

    def _election(self, state: QuorumState) -> PersistElection:
        voted = None
        if state.voted_id != NO_LEADER:
            voted = ReplicaKey(state.voted_id, state.voted_directory_id)
            if not voted.is_complete and voted.node_id == self._own.node_id:
                voted = self._own
        leader = None if state.leader_id == NO_LEADER else state.leader_id
        return PersistElection(LeaderEpoch(state.leader_epoch), voted, leader)

    def write(self, election: PersistElection, kraft_version: int, voters: VoterSet) -> None:
        """Replace the file; durable when this returns.

        Raises:
            OSError: the state on disk is unknown; the node must stop.
        """
        voted = election.voted
        state = QuorumState(
            leader_epoch=election.epoch,
            leader_id=NO_LEADER if election.leader_id is None else election.leader_id,
            voted_id=NO_LEADER if voted is None else voted.node_id,
            voted_directory_id=ZERO_UUID if voted is None else voted.directory_id,
            current_voters=voters.ids,
        )
        text = to_json(state, 1 if kraft_version > 0 else 0)
        replace_file(self._disk, self._path, text.encode("utf-8"))
