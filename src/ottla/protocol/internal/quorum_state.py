"""The file ``quorum-state``: the vote of this voter, and the leader it knows.

One line of JSON, UTF-8. Version 1 belongs to quorums whose voters can change (KIP-853):

    v0  {"clusterId":"","leaderId":1,"leaderEpoch":5,"votedId":-1,"appliedOffset":0,
         "currentVoters":[{"voterId":1}],"data_version":0}
    v1  {"leaderId":1,"leaderEpoch":5,"votedId":-1,"votedDirectoryId":"AAAA...","data_version":1}

It must be on disk before a vote is sent: losing it would allow a second vote in the same epoch.
"""

import json

import msgspec

from ottla.protocol.faults import ProtocolFault
from ottla.protocol.types import NO_LEADER, ZERO_UUID, NodeId, Uuid
from ottla.protocol.uuids import parse_uuid, uuid_text

VERSIONS = (0, 1)


class QuorumState(msgspec.Struct, frozen=True):
    """The persistent state of a member of the quorum. -1 means none.

    ``voted_directory_id`` exists since version 1, ``current_voters`` only in version 0, where
    None means that the file has no voters.
    """

    leader_epoch: int
    leader_id: NodeId = NO_LEADER
    voted_id: NodeId = NO_LEADER
    voted_directory_id: Uuid = ZERO_UUID
    current_voters: tuple[NodeId, ...] | None = None


def to_json(state: QuorumState, version: int) -> str:
    """Write the line in a version that matches the quorum's."""
    assert version in VERSIONS
    content: dict[str, object] = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
    }
    if version == 0:
        voters = state.current_voters
        listed = None if voters is None else [{"voterId": voter} for voter in voters]
        content = {"clusterId": "", **content, "appliedOffset": 0, "currentVoters": listed}
    else:
        content["votedDirectoryId"] = uuid_text(state.voted_directory_id)
    return json.dumps({**content, "data_version": version}, separators=(",", ":"))


def from_json(text: str) -> QuorumState:
    """Read the line. Raises `ProtocolFault` if it is invalid or of an unknown version."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolFault("quorum-state is no JSON") from error
    if not isinstance(content, dict):
        raise ProtocolFault("quorum-state is no object")
    version = _integer(content, "data_version", 16)
    if version not in VERSIONS:
        raise ProtocolFault(f"quorum-state has version {version}, which is not known")
    return QuorumState(
        leader_epoch=_integer(content, "leaderEpoch", 32),
        leader_id=NodeId(_integer(content, "leaderId", 32)),
        voted_id=NodeId(_integer(content, "votedId", 32)),
        voted_directory_id=_directory(content) if version == 1 else ZERO_UUID,
        current_voters=_voters(content) if version == 0 else None,
    )


def _integer(content: dict[str, object], name: str, bits: int) -> int:
    value = content.get(name)
    limit = 1 << (bits - 1)
    if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
        raise ProtocolFault(f"quorum-state: {name} must be an integer of {bits} bits")
    return value


def _directory(content: dict[str, object]) -> Uuid:
    value = content.get("votedDirectoryId")
    try:
        return parse_uuid(value if isinstance(value, str) else "")
    except (ValueError, ProtocolFault) as error:
        raise ProtocolFault("quorum-state: votedDirectoryId must be an id") from error


def _voters(content: dict[str, object]) -> tuple[NodeId, ...] | None:
    value = content.get("currentVoters")
    if value is None and "currentVoters" in content:
        return None
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ProtocolFault("quorum-state: currentVoters must be a list of objects")
    return tuple(NodeId(_integer(item, "voterId", 32)) for item in value)
