"""The file quorum-state, against lines that Apache Kafka 4.2.1 wrote."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.faults import ProtocolFault
from ottla.protocol.internal.quorum_state import QuorumState, from_json, to_json
from ottla.protocol.types import NodeId, Uuid

DIRECTORY = Uuid((5).to_bytes(8) + (6).to_bytes(8))

LINES = [
    (
        1,
        QuorumState(leader_epoch=4, voted_id=NodeId(2), voted_directory_id=DIRECTORY),
        '{"leaderId":-1,"leaderEpoch":4,"votedId":2,'
        '"votedDirectoryId":"AAAAAAAAAAUAAAAAAAAABg","data_version":1}',
    ),
    (
        0,
        QuorumState(leader_epoch=4, leader_id=NodeId(2), current_voters=(NodeId(1), NodeId(2))),
        '{"clusterId":"","leaderId":2,"leaderEpoch":4,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}',
    ),
    (
        0,
        QuorumState(leader_epoch=-1),
        '{"clusterId":"","leaderId":-1,"leaderEpoch":-1,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":null,"data_version":0}',
    ),
]


@pytest.mark.parametrize(("version", "state", "line"), LINES)
def test_quorum_state_lines_equal_kafkas(version: int, state: QuorumState, line: str) -> None:
    assert to_json(state, version) == line
    assert from_json(line) == state
    assert from_json(line + "\n") == state


IDS = st.integers(-(2**31), 2**31 - 1).map(NodeId)


@settings(max_examples=100, deadline=None)
@given(
    st.builds(
        QuorumState,
        leader_epoch=st.integers(-1, 2**31 - 1),
        leader_id=IDS,
        voted_id=IDS,
        voted_directory_id=st.binary(min_size=16, max_size=16).map(Uuid),
    )
)
def test_quorum_state_round_trips(state: QuorumState) -> None:
    assert from_json(to_json(state, 1)) == state


GOOD = json.loads(LINES[0][2])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        json.dumps({**GOOD, "data_version": 2}),
        json.dumps({**GOOD, "data_version": -1}),
        json.dumps({**GOOD, "data_version": "1"}),
        json.dumps({key: value for key, value in GOOD.items() if key != "data_version"}),
        json.dumps({key: value for key, value in GOOD.items() if key != "votedId"}),
        json.dumps({**GOOD, "leaderEpoch": 2**31}),
        json.dumps({**GOOD, "leaderEpoch": True}),
        json.dumps({**GOOD, "leaderEpoch": 1.0}),
        json.dumps({**GOOD, "votedDirectoryId": "short"}),
        json.dumps({**GOOD, "votedDirectoryId": None}),
        json.dumps({**GOOD, "data_version": 0}),
        json.dumps({**GOOD, "data_version": 0, "currentVoters": [1]}),
        json.dumps({**GOOD, "data_version": 0, "currentVoters": [{}]}),
    ],
)
def test_invalid_quorum_state_is_rejected(text: str) -> None:
    with pytest.raises(ProtocolFault):
        from_json(text)
