"""Which writes of the election state a step may leave out."""

from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset
from ottla.raft.core import effects as out
from ottla.raft.core.persisting import without_superseded

FIRST, SECOND = (out.PersistElection(LeaderEpoch(e), None, None) for e in (1, 2))
ROLE = out.RoleChanged(out.Role.CANDIDATE, LeaderEpoch(1), None, None)
TIMER = out.SetTimer(Millis(1))
HIGH_WATERMARK = out.HighWatermark(Offset(1))
FLUSH = out.Flush(1)
CONTROL = out.AppendControl(
    Offset(0), LeaderEpoch(1), (out.LeaderChange(NodeId(1), (NodeId(1),), (NodeId(1),)),)
)


def test_what_is_written_over_unseen_is_left_out() -> None:
    assert without_superseded([FIRST, SECOND]) == [SECOND]
    step: list[out.Effect] = [ROLE, FIRST, ROLE, TIMER, SECOND, ROLE, CONTROL]
    assert without_superseded(step) == [ROLE, ROLE, TIMER, SECOND, ROLE, CONTROL]


def test_what_others_could_have_seen_is_written() -> None:
    for seen in (CONTROL, FLUSH, HIGH_WATERMARK):
        assert without_superseded([FIRST, seen, SECOND]) == [FIRST, seen, SECOND]


def test_the_last_is_always_written() -> None:
    steps: list[list[out.Effect]] = [[FIRST], [FIRST, ROLE], [CONTROL, FIRST, TIMER]]
    for step in steps:
        assert without_superseded(step) == step
    assert without_superseded([FIRST, CONTROL, FIRST, SECOND, ROLE]) == [
        *(FIRST, CONTROL, SECOND, ROLE)
    ]


def test_the_order_stays() -> None:
    assert without_superseded([]) == []
    assert without_superseded([TIMER, ROLE, CONTROL]) == [TIMER, ROLE, CONTROL]
