"""Share partitions led here: loading, waiting, writing, and failures."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from partition_fixtures import NOW, ORDERS, TOPIC_ID, Machine, append, registration

from ottla.metadata.image import EMPTY
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import (
    CoordinatorNotAvailable,
    CorruptBatch,
    Fault,
    NotLeader,
    OffsetMovedToTieredStorage,
)
from ottla.protocol.records.control import EndTxnMarker, build_end_txn_marker
from ottla.protocol.records.reader import Header, Record, read_records
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.types import Millis, Offset, TopicIdPartition, TopicPartition
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.partition import Partition
from ottla.sharing import service
from ottla.sharing.acquisition import Ack, AcquireMode, Limits, StateBatch, Write
from ottla.sharing.dead_letter_driver import DEAD_RUNS_MAX, SETTLE_MS
from ottla.sharing.ports import (
    DeadLetterConfig,
    Origin,
    Persisted,
    RemoteReader,
    ShareDependencies,
    ShareGroupConfig,
    ShareKey,
)
from ottla.sharing.service import Fetched, FetchLimits, SharePartitions
from ottla.sharing.share_partition import start_for
from ottla.storage.log.read import RemoteRecords

PLACE = TopicIdPartition(TOPIC_ID, 0)
KEY = ShareKey("g", PLACE)
ACCEPT, RELEASE, REJECT = 1, 2, 3
NONE = ErrorCode.NONE


class FakePersister:
    """Stores the last write; faults come first, one for each call."""

    def __init__(self) -> None:
        self.found = Persisted(NONE, 0, 0)
        self.faults: list[Fault | ErrorCode] = []
        self.writes: list[Write] = []
        self.reads = 0
        self.hanging: set[int] = set()

    def _fault(self) -> ErrorCode:
        fault = self.faults.pop(0) if self.faults else NONE
        if isinstance(fault, Fault):
            raise fault
        return fault

    async def read(self, key: ShareKey, leader_epoch: int) -> Persisted:
        self.reads += 1
        await asyncio.sleep(0)
        if key.place.partition in self.hanging:
            await asyncio.Event().wait()
        return self.found._replace(code=self._fault())

    async def write(
        self, key: ShareKey, state_epoch: int, leader_epoch: int, write: Write
    ) -> ErrorCode:
        await asyncio.sleep(0)
        code = self._fault()
        if code is NONE:
            self.writes.append(write)
        return code


class FakeLetters:
    def __init__(self) -> None:
        self.codes: list[ErrorCode | Fault] = []
        self.written: list[Record] = []
        self.searches: list[bool] = []
        self.lost_offsets: list[tuple[tuple[int, int], int]] = []
        self.during_write: Callable[[], Awaitable[object]] | None = None
        self.bytes_max = 1 << 20

    async def write(
        self, topic: str, origin: Origin, letters: Any, *, may_exist: bool
    ) -> ErrorCode:
        await asyncio.sleep(0)
        self.searches.append(may_exist)
        during, self.during_write = self.during_write, None
        if during is not None:
            await during()
        code = self.codes.pop(0) if self.codes else NONE
        if isinstance(code, Fault):
            raise code
        if code is NONE and sum(len(letter.value or b"") for letter in letters) > self.bytes_max:
            return ErrorCode.MESSAGE_TOO_LARGE
        if code is NONE:
            assert [letter.offset for letter in letters] == list(range(len(letters)))
            self.written += letters
        return code

    def lost(self, origin: Origin, topic: str, offsets: Any, count: int) -> None:
        self.lost_offsets.append((offsets, count))


class Harness:
    def __init__(
        self,
        terms: ShareGroupConfig | None = None,
        remote: RemoteReader | None = None,
        **limits: int,
    ) -> None:
        self.machine = Machine()
        self.partition: Partition = self.machine.host(ORDERS)
        self.partition.apply(registration())
        self.clock = self.machine.clock
        self.partitions = Partitions(lambda: EMPTY)
        self.partitions.add(self.partition)
        self.terms = terms or ShareGroupConfig(reset="earliest")
        self.persister, self.letters = FakePersister(), FakeLetters()
        self.shares = SharePartitions(
            ShareDependencies(
                self.partitions,
                self.persister,
                self.clock,
                lambda group_id: self.terms,
                Limits(**limits),
                self.letters,
                remote,
            )
        )

    def host_second(self) -> Partition:
        partition = self.machine.host(TopicPartition("orders", 1))
        partition.apply(registration())
        self.partitions.add(partition)
        return partition

    async def fetch(self, member: str = "m1", wait_ms: int = 0, records: int = 500) -> Fetched:
        terms = FetchLimits("g", member, records, 1 << 20, 0, AcquireMode.BATCH_OPTIMIZED, wait_ms)
        found = await self.shares.fetch(terms, [PLACE])
        return found[0] if found else Fetched(PLACE)

    async def ack(self, first: int, last: int, kind: int, member: str = "m1") -> ErrorCode:
        return await self.shares.acknowledge(
            KEY, member, [Ack(Offset(first), Offset(last), [kind])]
        )

    def start(self) -> int:
        return self.persister.writes[-1].start


def got(fetched: Fetched) -> list[tuple[int, int, int]]:
    assert fetched.code is NONE
    return [tuple(each) for each in fetched.acquired]  # type: ignore[misc]


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


# -- loading -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        CoordinatorNotAvailable("nobody"),
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.FENCED_LEADER_EPOCH,
    ],
)
def test_a_load_that_fails_is_retried_and_never_an_empty_window(fault: Fault | ErrorCode) -> None:
    async def scenario() -> None:
        harness = Harness()
        append(harness.partition, *[b"v"] * 10)
        harness.persister.found = Persisted(NONE, 0, 4, (StateBatch(Offset(4), Offset(5), 2, 1),))
        harness.persister.faults = [fault]

        failed = await harness.fetch()

        assert failed.code is ErrorCode.NOT_LEADER_OR_FOLLOWER, "which a client retries"
        assert got(await harness.fetch()) == [(6, 9, 1)], "and finds what is persisted"

    run(scenario)


def test_two_fetches_that_load_at_once_share_one_window() -> None:
    async def scenario() -> None:
        harness = Harness()
        append(harness.partition, b"v", b"v")

        both = await asyncio.gather(harness.fetch("m1"), harness.fetch("m2"))

        assert sorted(map(got, both)) == [[], [(0, 1, 1)]]

    run(scenario)


def test_leader_of_another_epoch_reloads_the_share_partition() -> None:
    async def scenario() -> None:
        harness = Harness()
        append(harness.partition, b"v", b"v")
        await harness.fetch()
        harness.partition.apply(registration(epoch=1, partition_epoch=1))

        assert await harness.ack(0, 1, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
        assert got(await harness.fetch("m2")) == [(0, 1, 1)]
        assert harness.persister.reads == 2

    run(scenario)


def test_one_slow_state_load_does_not_block_other_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sequential loads would take longer than a client waits for a reply."""
    monkeypatch.setattr(service, "LOAD_MS", 100)

    async def scenario() -> None:
        harness = Harness()
        second = harness.host_second()
        append(harness.partition, b"v", b"v")
        append(second, b"w")
        harness.persister.hanging.add(0)
        other = TopicIdPartition(TOPIC_ID, 1)
        terms = FetchLimits("g", "m1", 500, 1 << 20, 0, AcquireMode.BATCH_OPTIMIZED, 0)

        found = await harness.shares.fetch(terms, [PLACE, other])

        assert [(each.place, got(each)) for each in found] == [(other, [(0, 0, 1)])]
        harness.persister.hanging.clear()
        found = await harness.shares.fetch(terms, [PLACE, other])
        assert [(each.place, got(each)) for each in found] == [(PLACE, [(0, 1, 1)])]

    run(scenario)


# -- waiting -----------------------------------------------------------------------------


def test_waiting_fetch_gets_nothing_from_a_reloaded_share_partition() -> None:
    async def scenario() -> None:
        harness = Harness()
        waiting = asyncio.ensure_future(harness.fetch("m1", wait_ms=10_000))
        await asyncio.sleep(0.01)
        harness.shares.forget(KEY)
        append(harness.partition, b"v", b"v")
        assert got(await harness.fetch("m2")) == [(0, 1, 1)]

        late = await waiting

        assert late.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert late.acquired == ()

    run(scenario)


def test_records_of_a_departed_member_are_released_and_idle_share_partition_is_dropped() -> None:
    async def scenario() -> None:
        harness = Harness()
        append(harness.partition, b"v", b"v")
        await harness.fetch("m1")
        waiting = asyncio.ensure_future(harness.fetch("m2", wait_ms=60_000))
        await asyncio.sleep(0.01)

        harness.shares.let_go("g", "m1", is_last=False)
        assert got(await asyncio.wait_for(waiting, 60)) == [(0, 1, 2)]

        await harness.ack(0, 1, ACCEPT, member="m2")
        await harness.shares.refresh("g")
        await harness.fetch("m3")
        assert harness.persister.reads == 2, "a window that nobody uses is loaded when one does"

    run(scenario)


# -- writing -----------------------------------------------------------------------------


def test_a_write_that_fails_is_written_by_the_next_round() -> None:
    async def scenario() -> None:
        harness = Harness()
        append(harness.partition, *[b"v"] * 4)
        await harness.fetch()
        harness.persister.faults = [CoordinatorNotAvailable("moving")]

        assert await harness.ack(0, 1, ACCEPT) is NONE
        assert harness.persister.writes == []
        await harness.shares.write_dirty()

        assert harness.start() == 2

    run(scenario)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH])
def test_a_fenced_write_ends_the_window(code: ErrorCode) -> None:
    async def scenario() -> None:
        harness = Harness()
        append(harness.partition, *[b"v"] * 4)
        await harness.fetch()
        harness.persister.faults = [code]

        assert await harness.ack(0, 1, ACCEPT) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert got(await harness.fetch("m2")) == [(0, 3, 1)], "as persisted"

    run(scenario)


# -- where a group begins, and what it may see ----------------------------------------------


@pytest.mark.parametrize(
    ("reset", "start"),
    [("earliest", 0), ("latest", 4), ("by_duration:PT30S", 2), ("by_duration:PT1H", 0)],
)
def test_share_group_starts_at_its_configured_offset(reset: str, start: int) -> None:
    async def scenario() -> None:
        harness = Harness(ShareGroupConfig(reset=reset))
        for age_s in (60, 59, 20, 1):
            records = [Record(Offset(0), Millis(NOW - age_s * 1000), None, b"v")]
            harness.partition.append(build_batch(records), now=NOW)
        harness.persister.found = Persisted(NONE, 0, -1)

        fetched = await harness.fetch()

        found = [first for first, _, _ in got(fetched)] or [4]
        assert found[0] == start

    run(scenario)


def transactional(harness: Harness, *values: bytes, sequence: int = 0) -> None:
    records = [Record(Offset(at), NOW, None, each) for at, each in enumerate(values)]
    producer = Producer(7, 0, sequence)
    batch = build_batch(records, producer=producer, is_transactional=True)
    harness.partition.append(batch, now=NOW)


def end(harness: Harness, *, is_commit: bool) -> None:
    marker = EndTxnMarker(is_commit, 0)
    harness.partition.append(
        build_end_txn_marker(marker, Producer(7, 0), NOW), now=NOW, from_client=False
    )


def test_a_group_that_reads_committed_sees_neither_open_nor_aborted_records() -> None:
    async def scenario() -> None:
        harness = Harness(ShareGroupConfig(reset="earliest", is_read_committed=True))
        append(harness.partition, b"plain")
        transactional(harness, b"aborted", b"too")
        assert got(await harness.fetch()) == [(0, 0, 1)], "what is open is not seen"
        end(harness, is_commit=False)
        transactional(harness, b"committed", sequence=2)
        end(harness, is_commit=True)

        fetched = await harness.fetch()

        seen = [offset for first, last, _ in got(fetched) for offset in range(first, last + 1)]
        assert 4 in seen
        assert not {1, 2} & set(seen), "an aborted record is nobody's"
        assert await harness.ack(0, 0, ACCEPT) is NONE
        assert await harness.ack(seen[0], seen[-1], ACCEPT) is NONE
        assert harness.start() >= 5, "and holds nobody up"

    run(scenario)


# -- damaged batches ------------------------------------------------------------------------


def flip_batch(partition: Partition, number: int) -> None:
    """Flip a bit of a value; all batches have the same size."""
    segment = partition.log.segments[0]
    size = segment.size // int(partition.log.log_end_offset)
    position = (number + 1) * size - 2
    (byte,) = segment.file.pread(1, position)
    segment.file.pwrite(bytes([byte ^ 1]), position)


def test_share_fetch_ends_before_a_damaged_batch_and_has_it_checked() -> None:
    async def scenario() -> None:
        harness = Harness()
        for _ in range(3):
            append(harness.partition, b"v")
        flip_batch(harness.partition, 1)

        first = await harness.fetch()

        assert got(first) == [(0, 0, 1)]
        assert [record.offset for record in read_records(first.records)] == [0]
        assert harness.machine.fake_host.suspected == [("orders-0", 1)]
        assert (await harness.fetch()).code is ErrorCode.CORRUPT_MESSAGE
        assert len(harness.machine.fake_host.suspected) == 2

    run(scenario)


def test_share_group_that_starts_by_time_has_damage_checked() -> None:
    harness = Harness()
    append(harness.partition, b"v")
    harness.partition.log.segments[0].file.pwrite(b"\xff", 16)
    with pytest.raises(CorruptBatch):
        start_for(harness.partition, ShareGroupConfig(reset="by_duration:PT1H"), Millis(NOW))
    assert harness.machine.fake_host.suspected == [("orders-0", 0)]


def test_damaged_record_does_not_become_a_dead_letter() -> None:
    async def scenario() -> None:
        harness = Harness(ShareGroupConfig(reset="earliest", dead_letters=DEAD))
        for _ in range(3):
            append(harness.partition, b"v")
        await harness.fetch()
        await harness.ack(0, 2, REJECT)
        flip_batch(harness.partition, 1)

        await harness.shares.write_dead_letters()
        await harness.shares.write_dead_letters()

        assert [record.value for record in harness.letters.written] == [b"v"]
        assert harness.machine.fake_host.suspected[0] == ("orders-0", 1)

    run(scenario)


# -- dead letters ---------------------------------------------------------------------------


DEAD = DeadLetterConfig("dlq.t", copies_record=True)


RECORDS = [Record(Offset(0), NOW, None, b"0", ())]


def dead_letter_harness(remote: RemoteReader | None = None, **limits: int) -> Harness:
    terms = ShareGroupConfig(reset="earliest", dead_letters=DEAD)
    harness = Harness(terms, remote, **limits)
    append(harness.partition, *[str(number).encode() for number in range(6)])
    return harness


def test_dead_letter_is_written_before_the_record_is_archived() -> None:
    async def scenario() -> None:
        harness = dead_letter_harness()
        await harness.fetch()
        await harness.ack(0, 2, REJECT)
        assert [batch.state for batch in harness.persister.writes[-1].batches] == [3]
        assert harness.start() == 0, "a leader that takes over finds it"

        await harness.shares.write_dead_letters()

        assert [record.value for record in harness.letters.written] == [b"0", b"1", b"2"]
        reasons = {Header("__dlq.errors.message", b"Offset rejected by client.")}
        assert all(reasons <= set(record.headers) for record in harness.letters.written)
        assert harness.start() == 3
        await harness.shares.write_dead_letters()
        assert len(harness.letters.written) == 3

    run(scenario)


def test_pending_dead_letters_are_written_by_the_next_leader() -> None:
    async def scenario() -> None:
        harness = dead_letter_harness()
        batches = (StateBatch(Offset(1), Offset(1), 3, 2), StateBatch(Offset(4), Offset(4), 3, 5))
        harness.persister.found = Persisted(NONE, 0, 1, batches)
        assert got(await harness.fetch()) == [(2, 3, 1), (5, 5, 1)]

        await harness.shares.write_dead_letters()
        harness.clock.pass_ms(SETTLE_MS - 1)
        await harness.shares.write_dead_letters()
        assert harness.letters.searches == [], "a write of the leader before may be on the way"
        harness.clock.pass_ms(1)
        await harness.shares.write_dead_letters()

        assert harness.letters.searches == [True]
        assert [record.value for record in harness.letters.written] == [b"1", b"4"]
        replies = [
            dict(record.headers)["__dlq.errors.message"] for record in harness.letters.written
        ]
        assert replies == [
            b"Offset rejected by client.",
            b"Offset delivery count exceeded the threshold.",
        ]

    run(scenario)


def test_letter_is_written_once_although_its_window_is_reloaded_before_its_state_is_stored() -> (
    None
):
    """The next window does not know that the record was rejected: it is delivered once more."""

    async def scenario() -> None:
        harness = dead_letter_harness()
        await harness.fetch()
        harness.persister.faults = [CoordinatorNotAvailable("nobody")] * 2
        await harness.ack(0, 0, REJECT)
        await harness.shares.write_dead_letters()
        assert harness.letters.written == [], "a letter follows the state that tells of it"

        harness.shares.forget(KEY)
        assert got(await harness.fetch()) == [(0, 5, 1)]
        await harness.ack(0, 0, REJECT)
        await harness.shares.write_dead_letters()
        assert [letter.value for letter in harness.letters.written] == [b"0"]

    run(scenario)


def test_letters_of_an_earlier_leader_are_looked_for_in_every_piece() -> None:
    async def scenario() -> None:
        harness = dead_letter_harness()
        append(harness.partition, *[b"v"] * (4 * DEAD_RUNS_MAX))
        dead = [StateBatch(Offset(n), Offset(n), 3, 1) for n in range(0, 3 * DEAD_RUNS_MAX, 2)]
        harness.persister.found = Persisted(NONE, 0, 0, tuple(dead))
        await harness.fetch()
        harness.clock.pass_ms(SETTLE_MS)
        for _ in range(2):
            await harness.shares.write_dead_letters()
        await harness.ack(1, 1, REJECT)
        await harness.shares.write_dead_letters()
        assert harness.letters.searches == [True, True, False]
        assert len(harness.letters.written) == len(dead) + 1

    run(scenario)


def test_a_lock_that_expires_for_the_last_time_makes_a_dead_letter() -> None:
    async def scenario() -> None:
        harness = dead_letter_harness(deliveries_max=1)
        await harness.fetch()
        harness.clock.pass_ms(30_001)
        harness.shares.expire_locks()
        await harness.shares.write_dead_letters()
        assert len(harness.letters.written) == 6
        assert harness.start() == 6

    run(scenario)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ],
)
def test_dead_letters_wait_until_their_topic_can_be_written(code: ErrorCode) -> None:
    async def scenario() -> None:
        harness = dead_letter_harness()
        assert got(await harness.fetch(records=1, member="m1"))
        await harness.ack(0, 0, REJECT)
        harness.letters.codes = [code] * 20
        for _ in range(20):
            await harness.shares.write_dead_letters()
            harness.clock.pass_ms(30_000)
        assert harness.start() == 0
        assert harness.letters.written == [], "nothing is lost, and nothing is written twice"
        append(harness.partition, b"more")
        assert got(await harness.fetch()), "the share partition goes on"
        await harness.shares.write_dead_letters()
        assert [record.value for record in harness.letters.written] == [b"0"]

    run(scenario)


def test_failed_writes_of_dead_letters_are_repeated_with_growing_pauses() -> None:
    async def scenario() -> None:
        harness = dead_letter_harness()
        await harness.fetch()
        await harness.ack(0, 0, REJECT)
        harness.letters.codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 100
        for _ in range(600):
            await harness.shares.write_dead_letters()
            harness.clock.pass_ms(200)
        assert 100 - len(harness.letters.codes) == 8, "after 0, 1, 3, 7, 15, 31, 61 and 91 s"

    run(scenario)


def test_waiting_dead_letters_never_fill_the_window() -> None:
    async def scenario() -> None:
        harness = dead_letter_harness(in_flight_max=6)
        await harness.fetch()
        await harness.ack(0, 5, REJECT)
        harness.letters.codes = [ErrorCode.INVALID_CONFIG] * 2
        await harness.shares.write_dead_letters()
        assert harness.letters.lost_offsets == [((0, 2), 3)], "the oldest of them"
        assert harness.start() == 3
        harness.clock.pass_ms(30_000)
        await harness.shares.write_dead_letters()
        harness.clock.pass_ms(30_000)
        await harness.shares.write_dead_letters()
        assert [record.value for record in harness.letters.written] == [b"3", b"4", b"5"]
        assert harness.start() == 6

    run(scenario)


@pytest.mark.parametrize(
    ("failure", "may_exist"),
    [
        (NotLeader("no answer"), True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
    ],
)
def test_letters_of_an_unconfirmed_write_are_looked_for(
    failure: ErrorCode | NotLeader, may_exist: bool
) -> None:
    async def scenario() -> None:
        harness = dead_letter_harness()
        await harness.fetch()
        await harness.ack(0, 0, REJECT)
        harness.letters.codes = [failure]
        await harness.shares.write_dead_letters()
        harness.clock.pass_ms(30_000)
        await harness.shares.write_dead_letters()
        assert harness.letters.searches == [False, may_exist]

    run(scenario)


def test_record_that_is_too_large_becomes_a_dead_letter_without_its_value() -> None:
    async def scenario() -> None:
        harness = dead_letter_harness()
        await harness.fetch()
        await harness.ack(1, 1, REJECT)
        harness.letters.codes = [ErrorCode.MESSAGE_TOO_LARGE]
        await harness.shares.write_dead_letters()
        (letter,) = harness.letters.written
        assert letter.value is None
        assert dict(letter.headers)["__dlq.errors.offset"] == b"1"

    run(scenario)


def test_window_of_a_group_without_members_stays_until_its_letters_are_written() -> None:
    async def scenario() -> None:
        harness = dead_letter_harness()
        await harness.fetch()
        await harness.ack(0, 5, REJECT)
        harness.letters.codes = [ErrorCode.NOT_ENOUGH_REPLICAS]
        harness.shares.let_go("g", "m1", is_last=True)

        await harness.shares.drop_left()
        await harness.shares.write_dead_letters()
        await harness.shares.drop_left()
        assert len(harness.shares.windows()) == 1

        harness.clock.pass_ms(1000)
        await harness.shares.write_dead_letters()
        assert len(harness.letters.written) == 6
        await harness.shares.drop_left()
        assert harness.shares.windows() == []

    run(scenario)


def test_pending_dead_letters_of_a_reloaded_group_are_written_without_a_fetch() -> None:
    """The member that arrives may fetch other partitions only."""

    async def scenario() -> None:
        harness = dead_letter_harness()
        await harness.fetch()
        await harness.ack(0, 1, REJECT)
        harness.shares.let_go("g", "m1", is_last=True)
        await harness.shares.drop_left()
        dead = (StateBatch(Offset(0), Offset(1), 3, 1),)
        harness.persister.found = Persisted(NONE, 0, 0, dead)

        await harness.shares.refresh("g")
        assert harness.persister.reads == 2, "an operator may have reset the group"
        harness.clock.pass_ms(SETTLE_MS)
        await harness.shares.write_dead_letters()
        await harness.shares.drop_left()

        assert len(harness.letters.written) == 2
        assert len(harness.shares.windows()) == 1, "the group has a member again"

    run(scenario)


def test_dead_records_that_retention_deletes_are_counted_as_lost() -> None:
    async def scenario() -> None:
        harness = dead_letter_harness()
        await harness.fetch()
        await harness.ack(0, 1, REJECT)
        await harness.ack(3, 4, REJECT)
        harness.letters.codes = [ErrorCode.NOT_ENOUGH_REPLICAS]
        await harness.shares.write_dead_letters()
        harness.partition.delete_records(Offset(4))

        await harness.fetch("m2")
        await harness.fetch("m2")

        assert harness.letters.lost_offsets == [((0, 3), 3)]
        harness.clock.pass_ms(1000)
        await harness.shares.write_dead_letters()
        assert [letter.value for letter in harness.letters.written] == [b"4"]

    run(scenario)


@pytest.mark.parametrize(
    ("code", "lost"), [(ErrorCode.NOT_ENOUGH_REPLICAS, [((0, 1), 2), ((2, 2), 1)]), (NONE, [])]
)
def test_dead_records_deleted_during_their_write_are_lost_if_it_fails(
    code: ErrorCode, lost: list[tuple[tuple[int, int], int]]
) -> None:
    async def scenario() -> None:
        harness = dead_letter_harness(in_flight_max=6)
        await harness.fetch()
        await harness.ack(0, 5, REJECT)

        async def delete() -> None:
            append(harness.partition, b"6")
            harness.partition.delete_records(Offset(2))
            await harness.fetch("m2")

        harness.letters.codes = [code]
        harness.letters.during_write = delete
        await harness.shares.write_dead_letters()

        assert harness.letters.lost_offsets == lost

    run(scenario)


def test_letters_too_large_for_one_batch_are_written_in_several() -> None:
    async def scenario() -> None:
        harness = dead_letter_harness()
        append(harness.partition, b"large", b"7")
        await harness.fetch()
        await harness.ack(0, 7, REJECT)
        harness.letters.bytes_max = 2

        await harness.shares.write_dead_letters()

        values = [letter.value for letter in harness.letters.written]
        assert values == [b"0", b"1", b"2", b"3", b"4", b"5", None, b"7"]
        offsets = [
            dict(letter.headers)["__dlq.errors.offset"] for letter in harness.letters.written
        ]
        assert offsets == [str(number).encode() for number in range(8)]
        assert harness.start() == 8

    run(scenario)


def test_letters_written_before_a_later_batch_fails_are_looked_for() -> None:
    async def scenario() -> None:
        harness = dead_letter_harness()
        await harness.fetch()
        await harness.ack(0, 1, REJECT)
        harness.letters.codes = [
            ErrorCode.MESSAGE_TOO_LARGE,
            NONE,
            ErrorCode.NOT_ENOUGH_REPLICAS,
        ]
        await harness.shares.write_dead_letters()
        harness.clock.pass_ms(1000)
        await harness.shares.write_dead_letters()
        assert harness.letters.searches == [False, False, False, True]
        assert harness.start() == 2

    run(scenario)


def test_record_that_was_deleted_becomes_a_dead_letter_without_its_value() -> None:
    async def scenario() -> None:
        harness = dead_letter_harness()
        await harness.fetch()
        await harness.ack(0, 1, REJECT)
        append(harness.partition, b"6")
        harness.partition.delete_records(Offset(6))
        await harness.shares.write_dead_letters()
        assert [letter.value for letter in harness.letters.written] == [None, None]
        offsets = [
            dict(letter.headers)["__dlq.errors.offset"] for letter in harness.letters.written
        ]
        assert offsets == [b"0", b"1"]

    run(scenario)


def test_pending_dead_letters_are_archived_when_the_topic_is_removed() -> None:
    async def scenario() -> None:
        harness = dead_letter_harness()
        await harness.fetch()
        await harness.ack(0, 0, REJECT)
        harness.terms = ShareGroupConfig(reset="earliest")
        await harness.shares.write_dead_letters()
        assert harness.letters.written == []
        assert harness.start() == 1
        await harness.ack(1, 1, REJECT)
        assert harness.start() == 2, "and later ones at once"

    run(scenario)


def test_leader_that_lost_the_partition_writes_no_dead_letters() -> None:
    async def scenario() -> None:
        harness = dead_letter_harness()
        await harness.fetch()
        await harness.ack(0, 0, REJECT)
        writes = len(harness.persister.writes)
        harness.partition.apply(registration(leader=1, epoch=1, replicas=(0, 1), partition_epoch=1))
        await harness.shares.write_dead_letters()
        assert len(harness.persister.writes) == writes

    run(scenario)


@pytest.mark.parametrize("code", [NONE, ErrorCode.INVALID_CONFIG])
def test_record_rejected_during_a_write_of_dead_letters_waits_for_the_next(
    code: ErrorCode,
) -> None:
    async def scenario() -> None:
        harness = dead_letter_harness(in_flight_max=6)
        await harness.fetch()
        await harness.ack(0, 0, REJECT)
        await harness.ack(2, 5, REJECT)
        harness.letters.codes = [code]
        harness.letters.during_write = lambda: harness.ack(1, 1, REJECT)
        await harness.shares.write_dead_letters()

        harness.clock.pass_ms(60_000)
        await harness.shares.write_dead_letters()

        lost = sum(count for _, count in harness.letters.lost_offsets)
        values = [record.value for record in harness.letters.written]
        assert b"1" in values
        assert len(values) + lost == 6
        assert harness.start() == 6

    run(scenario)


def test_dead_letters_above_the_high_watermark_wait_for_it() -> None:
    """The high watermark of a new leader is behind until its followers have fetched."""

    async def scenario() -> None:
        harness = Harness(ShareGroupConfig(reset="earliest", dead_letters=DEAD))
        harness.partition.apply(registration(epoch=1, replicas=(0, 1), partition_epoch=1))
        append(harness.partition, b"0", b"1", b"2")
        dead = (StateBatch(Offset(1), Offset(1), 3, 2),)
        harness.persister.found = Persisted(NONE, 0, 1, dead)
        await harness.fetch()
        harness.clock.pass_ms(SETTLE_MS)

        await harness.shares.write_dead_letters()

        assert harness.letters.written == []
        (window,) = harness.shares.windows()
        assert len(window.acquisition.dead()) == 1

        caught_up = registration(epoch=1, replicas=(0, 1), isr=(0,), partition_epoch=2)
        harness.partition.apply(caught_up)
        harness.clock.pass_ms(1000)
        await harness.shares.write_dead_letters()
        assert [record.value for record in harness.letters.written] == [b"1"]

    run(scenario)


class RemoteOnly:
    """Remote storage whose reads return these batches, one for each."""

    is_throttled = False

    def __init__(self, *reads: bytes) -> None:
        self.reads = list(reads)

    def fetch(self, *args: object, is_committed: bool) -> "asyncio.Future[RemoteRecords]":
        future: asyncio.Future[RemoteRecords] = asyncio.get_running_loop().create_future()
        future.set_result(RemoteRecords(self.reads.pop(0), []))
        return future


def test_empty_remote_read_does_not_archive_dead_records(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        harness = dead_letter_harness(remote=RemoteOnly(b"", bytes(build_batch(RECORDS))))
        await harness.fetch()
        await harness.ack(0, 0, REJECT)

        def moved(*_: object) -> None:
            raise OffsetMovedToTieredStorage("only there")

        monkeypatch.setattr(harness.partition, "read", moved)
        await harness.shares.write_dead_letters()
        assert (harness.start(), harness.letters.written) == (0, [])

        harness.clock.pass_ms(1000)
        await harness.shares.write_dead_letters()
        assert [record.value for record in harness.letters.written] == [b"0"]

    run(scenario)


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), RuntimeError("a defect")])
def test_one_window_that_cannot_be_read_does_not_end_the_service(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async def scenario() -> None:
        harness = dead_letter_harness()
        await harness.fetch()
        await harness.ack(0, 0, REJECT)

        def fail(*_: object) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(harness.partition, "read", fail)
            await harness.shares.write_dead_letters()
            await harness.shares.write_dead_letters()
        assert harness.start() == 0
        assert len(caplog.messages) == 1, "it waits before the next attempt"

        harness.clock.pass_ms(1000)
        await harness.shares.write_dead_letters()
        assert [record.value for record in harness.letters.written] == [b"0"]

    run(scenario)


def test_dead_letter_without_copy_has_only_the_origin_headers() -> None:
    async def scenario() -> None:
        harness = dead_letter_harness()
        harness.terms = ShareGroupConfig(reset="earliest", dead_letters=DeadLetterConfig("dlq.t"))
        await harness.fetch()
        await harness.ack(5, 5, REJECT)
        await harness.shares.write_dead_letters()
        (letter,) = harness.letters.written
        assert (letter.key, letter.value, letter.offset) == (None, None, 0)
        assert dict(letter.headers) == {
            "__dlq.errors.group": b"g",
            "__dlq.errors.topic": b"orders",
            "__dlq.errors.partition": b"0",
            "__dlq.errors.offset": b"5",
            "__dlq.errors.delivery.count": b"1",
            "__dlq.errors.message": b"Offset rejected by client.",
        }

    run(scenario)


def test_dead_letter_batch_is_readable() -> None:
    letters = [Record(Offset(0), NOW, None, None, (Header("k", b"v"),))]
    (found,) = read_records(bytes(build_batch(letters)))
    assert found.headers == (Header("k", b"v"),)


def test_asking_a_broker_that_does_not_lead() -> None:
    async def scenario() -> None:
        harness = Harness()
        harness.partition.apply(registration(leader=1, epoch=1, replicas=(0, 1), partition_epoch=1))
        assert (await harness.fetch()).code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await harness.ack(0, 0, ACCEPT) is NotLeader.code

    run(scenario)
