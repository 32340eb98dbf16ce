"""The driver around one core: what callers and listeners see, and what it leaves on disk."""

import asyncio
from collections.abc import Iterator

import pytest
from raft_bench import (
    CLUSTER,
    DIRECTORY,
    Bench,
    directory,
    record,
    voter,
    wait_applied,
    wait_role,
    wait_until,
)

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import NotController, RecordTooLarge, StorageFailed
from ottla.protocol.internal.framing import encode_framed
from ottla.protocol.types import LeaderEpoch, Millis, NodeId, Offset
from ottla.raft.core.effects import Role
from ottla.raft.core.log_view import LogPosition
from ottla.raft.core.messages import (
    Chunk,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    LeaderHint,
    Reply,
    Request,
    VoteReply,
    VoteRequest,
)
from ottla.raft.core.voters import Endpoint, ReplicaKey, VoterSet
from ottla.raft.driver import RaftDriver, Stopped
from ottla.raft.metadata_log import Retention
from ottla.raft.snapshots import SnapshotFiles, SnapshotWriter, snapshot_name
from simulation.disk import SimDisk

OTHERS = (voter(1), voter(2), voter(3))
LONG_AGO = LeaderEpoch(0)


def vote_request(epoch: int, *, candidate: int = 2, own: int = 1) -> VoteRequest:
    return VoteRequest(
        CLUSTER,
        voter(candidate).key,
        voter(1, own).key,
        LeaderEpoch(epoch),
        LogPosition(LONG_AGO, Offset(0)),
    )


# -- a single voter ----------------------------------------------------------


def test_single_voter_elects_itself_and_commits() -> None:
    bench = Bench()

    async def scenario(driver: RaftDriver) -> None:
        await wait_role(driver, Role.LEADER)
        base = await driver.propose([record("a"), record("b")], LeaderEpoch(1))
        again = await driver.propose([record("c")], LeaderEpoch(1))
        assert again == base + 2
        await wait_applied(driver, again + 1)

    bench.play(scenario)
    assert bench.listener.values == ["a", "b", "c"]
    leading = [change for change in bench.listener.roles if change.role is Role.LEADER]
    assert [(change.epoch, change.leader_id, change.epoch_start_offset) for change in leading] == [
        (1, 1, 0)
    ]
    ends = [batch.next_offset for batch in bench.listener.committed]
    assert [batch.base_offset for batch in bench.listener.committed] == [0, *ends[:-1]]


def test_committed_records_are_applied_again_after_a_restart() -> None:
    bench = Bench()

    async def first(driver: RaftDriver) -> None:
        await wait_role(driver, Role.LEADER)
        await driver.propose([record("a")], LeaderEpoch(1))
        await wait_until(lambda: bench.listener.values == ["a"])

    async def second(driver: RaftDriver) -> None:
        await wait_role(driver, Role.LEADER)
        await wait_until(lambda: bench.listener.values == ["a"])
        assert driver.describe().epoch > 1

    bench.play(first)
    bench.kill()
    bench.play(second)


def test_proposal_for_another_epoch_is_rejected() -> None:
    async def scenario(driver: RaftDriver) -> None:
        await wait_role(driver, Role.LEADER)
        before = driver.describe().log_end_offset
        for epoch in (0, 2):
            with pytest.raises(NotController):
                await driver.propose([record("a")], LeaderEpoch(epoch))
        assert driver.describe().log_end_offset == before

    Bench().play(scenario)


def test_proposal_larger_than_a_batch_is_rejected() -> None:
    async def scenario(driver: RaftDriver) -> None:
        await wait_role(driver, Role.LEADER)
        before = driver.describe().log_end_offset
        with pytest.raises(RecordTooLarge):
            await driver.propose([record("x" * 30_000)] * 300, LeaderEpoch(1))
        assert driver.describe().log_end_offset == before

    Bench().play(scenario)


def test_resigned_leader_is_a_candidate_in_a_later_epoch() -> None:
    async def scenario(driver: RaftDriver) -> None:
        await wait_role(driver, Role.LEADER)
        driver.resign(LeaderEpoch(7))
        assert driver.describe().role is Role.LEADER
        driver.resign(LeaderEpoch(1))
        assert driver.describe().role is Role.RESIGNED
        await wait_role(driver, Role.LEADER)
        assert driver.describe().epoch > 2

    Bench().play(scenario)


# -- stopping and failing ----------------------------------------------------


def test_stopped_driver_neither_votes_nor_answers() -> None:
    bench = Bench(OTHERS)

    async def scenario(driver: RaftDriver) -> None:
        await driver.request(vote_request(3))

    bench.play(scenario)
    state = bench.disk.read(f"{DIRECTORY}/quorum-state")

    async def late() -> None:
        with pytest.raises(Stopped):
            await bench.driver.request(vote_request(9))
        with pytest.raises(Stopped):
            await bench.driver.propose([record("a")], LeaderEpoch(1))
        await asyncio.sleep(60)

    bench.loop.run_until_complete(late())
    assert bench.disk.read(f"{DIRECTORY}/quorum-state") == state
    assert bench.peers.is_closed


def test_waiting_requests_fail_when_the_driver_stops() -> None:
    bench = Bench()
    waiting: list[asyncio.Future[Reply]] = []

    async def scenario(driver: RaftDriver) -> None:
        await wait_role(driver, Role.LEADER)
        await wait_applied(driver, driver.describe().log_end_offset)
        end = driver.describe().log_end_offset
        known = driver.describe().high_watermark
        asked = FetchRequest(
            CLUSTER,
            voter(8).key,
            LeaderEpoch(1),
            LogPosition(LeaderEpoch(1), end),
            known,
            wait_ms_max=600_000,
        )
        waiting.append(asyncio.ensure_future(driver.request(asked)))
        await asyncio.sleep(1)
        assert not waiting[0].done()

    bench.play(scenario)
    error = waiting[0].exception() if not waiting[0].cancelled() else None
    assert waiting[0].done()
    assert error is None or isinstance(error, Stopped)


def test_disk_failure_ends_the_service() -> None:
    bench = Bench()

    async def scenario(driver: RaftDriver) -> None:
        await wait_role(driver, Role.LEADER)
        bench.disk.fail("sync")
        await driver.propose([record("a")], LeaderEpoch(1))
        await asyncio.sleep(60)

    with pytest.raises((StorageFailed, OSError)):
        bench.play(scenario)
    assert bench.listener.values == [], "what is not durable is not committed"


def test_failed_quorum_state_write_ends_the_service_before_the_vote() -> None:
    bench = Bench(OTHERS)
    replies: list[Reply] = []

    async def scenario(driver: RaftDriver) -> None:
        bench.disk.fail("sync", path_contains="quorum-state")
        replies.append(await driver.request(vote_request(3)))

    with pytest.raises(OSError, match="error"):
        bench.play(scenario)
    assert replies == []


# -- votes -------------------------------------------------------------------


def test_vote_is_durable_before_the_reply_and_granted_once() -> None:
    bench = Bench(OTHERS)

    async def vote(driver: RaftDriver) -> None:
        reply = await driver.request(vote_request(3))
        assert isinstance(reply, VoteReply)
        assert reply.is_granted

    async def again(driver: RaftDriver) -> None:
        other = await driver.request(vote_request(3, candidate=3))
        same = await driver.request(vote_request(3))
        assert isinstance(other, VoteReply)
        assert isinstance(same, VoteReply)
        assert (other.is_granted, same.is_granted) == (False, True)

    bench.play(vote)
    bench.kill()
    bench.play(again)


def test_voter_with_a_new_directory_has_no_vote_of_the_old_one() -> None:
    bench = Bench(OTHERS, is_observer=True)
    bench.directory_id = directory(77)

    async def scenario(driver: RaftDriver) -> None:
        reply = await driver.request(vote_request(3, own=1))
        assert reply.error is ErrorCode.INVALID_VOTER_KEY
        await asyncio.sleep(30)
        assert driver.describe().role is Role.UNATTACHED
        assert not driver.describe().is_voter
        assert not [r for _, r in bench.peers.asked if isinstance(r, VoteRequest)]

    bench.play(scenario)


# -- own snapshots -----------------------------------------------------------


def test_next_start_loads_the_written_snapshot() -> None:
    bench = Bench()
    bench.retention = Retention(bytes_max=0)

    async def first(driver: RaftDriver) -> None:
        await wait_role(driver, Role.LEADER)
        for value in "abc":
            await driver.propose([record(value)], LeaderEpoch(1))
        await wait_until(lambda: bench.listener.values == ["a", "b", "c"])
        end = driver.applied
        pieces = [[encode_framed(record(value)) for value in piece] for piece in ("a", "bc")]
        taken = await driver.take_snapshot(end, iter(pieces))
        assert taken == LogPosition(LeaderEpoch(1), end)
        assert await driver.take_snapshot(end, iter([])) is None
        await driver.propose([record("d")], LeaderEpoch(1))
        await wait_until(lambda: bench.listener.values[-1] == "d")

    async def second(driver: RaftDriver) -> None:
        await wait_until(lambda: bench.listener.values == ["a", "b", "c", "d"])
        assert len(bench.listener.snapshots) == 1

    bench.play(first)
    bench.kill()
    bench.play(second)


def test_failed_snapshot_leaves_no_file() -> None:
    bench = Bench()

    def broken() -> Iterator[list[bytes]]:
        yield [encode_framed(record("a"))]
        raise ValueError("half")

    async def scenario(driver: RaftDriver) -> None:
        await wait_role(driver, Role.LEADER)
        await driver.propose([record("a")], LeaderEpoch(1))
        await wait_until(lambda: bench.listener.values == ["a"])
        with pytest.raises(ValueError, match="half"):
            await driver.take_snapshot(driver.applied, broken())
        assert [n for n in bench.disk.list(DIRECTORY) if "checkpoint" in n] == [
            snapshot_name(LogPosition(LeaderEpoch(0), Offset(0))),
            "leader-epoch-checkpoint",
        ]

    bench.play(scenario)


# -- snapshots of a leader ---------------------------------------------------

SNAPSHOT = LogPosition(LeaderEpoch(4), Offset(50))


def snapshot_bytes() -> bytes:
    """Return a valid snapshot at (4, 50) with the value "s"."""
    disk = SimDisk(0)
    disk.make_dirs("/x")
    writer = SnapshotWriter(SnapshotFiles(disk, "/x"), SNAPSHOT, Millis(1))
    writer.begin(Millis(1), 1, VoterSet(OTHERS[1:]))
    writer.append([encode_framed(record("s"))])
    writer.finish()
    writer.freeze()
    return disk.read(f"/x/{snapshot_name(SNAPSHOT)}")


class SnapshotLeader:
    """Node 2 leads epoch 5 and has only a snapshot; ``piece`` changes what it sends."""

    def __init__(self, data: bytes, claimed: int | None = None, step: int = 100) -> None:
        self.data = data
        self.size = len(data) if claimed is None else claimed
        self.step = step
        self.shift = 0
        self.extra = b""
        self.pieces = 0
        self.hint = LeaderHint(LeaderEpoch(5), NodeId(2), voter(2).endpoints)

    def reply(self, endpoint: Endpoint, request: Request) -> Reply | None:
        if isinstance(request, FetchSnapshotRequest):
            self.pieces += 1
            data = self.data[request.position : request.position + self.step] + self.extra
            return FetchSnapshotReply(
                ErrorCode.NONE,
                self.hint,
                SNAPSHOT,
                self.size,
                request.position + self.shift,
                Chunk(len(data), data),
            )
        if isinstance(request, FetchRequest):
            if request.epoch != 5:
                return FetchReply(ErrorCode.FENCED_LEADER_EPOCH, self.hint)
            if request.log_end != SNAPSHOT:
                return FetchReply(ErrorCode.NONE, self.hint, Offset(50), snapshot=SNAPSHOT)
            return FetchReply(ErrorCode.NONE, self.hint, Offset(50))
        return None


def play_download(leader: SnapshotLeader, seconds: float = 5) -> Bench:
    bench = Bench(OTHERS[1:], is_observer=True)
    bench.peers.reply = leader.reply

    async def scenario(driver: RaftDriver) -> None:
        await asyncio.sleep(seconds)

    bench.play(scenario)
    return bench


def names(bench: Bench) -> list[str]:
    return [name for name in bench.disk.list(DIRECTORY) if name.endswith(".checkpoint")]


def test_snapshot_is_downloaded_in_chunks_and_is_durable() -> None:
    bench = play_download(SnapshotLeader(snapshot_bytes()))
    assert bench.listener.values == ["s"]
    assert names(bench) == [snapshot_name(SNAPSHOT)]
    bench.kill()
    assert bench.make().describe().log_end_offset == 50
    assert bench.driver.describe().voters.ids == (2, 3)


@pytest.mark.parametrize(
    "kind", ["truncated", "oversized", "misplaced", "empty", "garbage", "flipped", "endless"]
)
def test_invalid_snapshot_chunks_are_rejected(kind: str) -> None:
    data = snapshot_bytes()
    leader = SnapshotLeader(data)
    match kind:
        case "truncated":  # claims to be complete before its end
            leader = SnapshotLeader(data[:-20])
        case "oversized":  # a chunk longer than the rest
            leader.extra = b"x" * 500
        case "misplaced":
            leader.shift = 7
        case "empty":
            leader.step = 0
        case "garbage":
            leader = SnapshotLeader(b"\xff" * 300)
        case "flipped":
            leader = SnapshotLeader(data[:150] + bytes([data[150] ^ 1]) + data[151:])
        case "endless":  # claims more than there is
            leader = SnapshotLeader(data, claimed=len(data) + 1)
    bench = play_download(leader)
    assert leader.pieces > 1, "it was asked again"
    assert bench.listener.values == []
    assert names(bench) == []
    assert bench.driver.describe().log_end_offset == 0


# -- clients that are no replicas --------------------------------------------


def test_reading_client_sees_only_committed_records() -> None:
    bench = Bench((voter(1), voter(2)))
    grants: dict[str, bool] = {"granted": True}

    def reply(endpoint: Endpoint, request: Request) -> Reply | None:
        if isinstance(request, VoteRequest) and grants["granted"]:
            return VoteReply(ErrorCode.NONE, LeaderHint(request.epoch), is_granted=True)
        return None

    bench.peers.reply = reply

    async def scenario(driver: RaftDriver) -> None:
        await wait_role(driver, Role.LEADER)
        epoch = driver.describe().epoch
        ask = FetchRequest(
            CLUSTER,
            ReplicaKey(NodeId(-1)),
            epoch,
            LogPosition(LeaderEpoch(0), Offset(0)),
            wait_ms_max=0,
            bytes_max=1000,
        )
        nothing = await driver.request(ask)
        replica = await driver.request(
            FetchRequest(
                CLUSTER,
                voter(2).key,
                epoch,
                LogPosition(LeaderEpoch(0), Offset(0)),
                wait_ms_max=0,
                bytes_max=1000,
            )
        )
        assert isinstance(nothing, FetchReply)
        assert isinstance(replica, FetchReply)
        assert nothing.records is None
        assert replica.records is not None

    bench.play(scenario)
