"""Simulated consumers of a share group, and the invariants of what they receive (KIP-932).

A record is finished once that is written to the share coordinator's log and committed: it is
accepted, rejected, or was delivered as often as allowed. From then on

* it stays finished, and no leader delivers it (a former leader may, not knowing it);
* the share partition's start offset never decreases;

and at any time no consumer sees more deliveries than allowed, and no more records are in flight
than allowed. A finished record was accepted or rejected by a consumer, or used up its deliveries.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ottla.coordinators.share_state.state import ShareState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import share_acknowledge as acknowledging
from ottla.protocol.messages import share_fetch as fetching
from ottla.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.sharing.acquisition import AckType, Acquisition
from ottla.sharing.spans import RecordState
from simulation.cluster_client import EXPECTED, FETCH_WAIT_MS
from simulation.cluster_watch import TOPIC
from simulation.coordinator_client import AGAIN, FOR_GROUP, CoordinatorClient
from simulation.coordinator_watch import CoordinatorWatch
from simulation.ledger import InvariantBroken
from simulation.simulation import Ports

GROUP: Final = "queue"
INDEX: Final = 0
DELIVERIES_MAX: Final = 4
IN_FLIGHT_MAX: Final = 100
LOCK_MS: Final = 1000
RECORDS_MAX: Final = 4
# Records taken and never acknowledged, more than may be in flight.
HOARD_MAX: Final = 80

_SESSION: Final = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.INVALID_RECORD_STATE,
        ErrorCode.FENCED_STATE_EPOCH,
    }
)
_OUT: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


@dataclass
class ShareWatch:
    """The history of one share partition, as consumers received it and as its state shows it."""

    start: int = 0
    finished: set[int] = field(default_factory=set)
    settled: set[int] = field(default_factory=set)  # a consumer wanted to accept or reject it
    accepted: int = 0
    again: int = 0  # delivered after it was accepted, before that was durable
    expired: int = 0
    deliveries: dict[int, int] = field(default_factory=dict)
    acknowledged: set[int] = field(default_factory=set)
    zombies: int = 0
    thefts: int = 0
    held: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # by whom
    is_kept: bool = False  # the share coordinator is up: acknowledged state is durable

    def look_at_state(self, state: ShareState) -> None:
        """Check that durable state never goes back, and is the result of a consumer's
        acknowledgement.
        """
        start = max(state.start_offset, 0)
        if start < self.start:
            raise InvariantBroken(f"the start went back from {self.start} to {start}")
        now = set(range(self.start, start))
        for run in state.runs:
            if run.deliveries > DELIVERIES_MAX:
                raise InvariantBroken(f"delivered too often: {run}")
            is_finished = RecordState(run.state).is_finished
            for offset in range(max(run.first, start), run.last + 1):
                self._count(offset, run.deliveries)
                if is_finished:
                    now.add(offset)
                elif offset in self.finished:
                    raise InvariantBroken(f"{offset} was finished, and is {run}")
        for offset in now - self.finished - self.settled:
            # The last delivery may not have reached any consumer.
            if self.deliveries.get(offset, 0) < DELIVERIES_MAX - 1:
                raise InvariantBroken(
                    f"{offset} is finished, and no consumer accepted or rejected it: {state}"
                )
        self.finished |= now
        self.start = start

    def look_at_window(self, window: Acquisition) -> None:
        """Check that no more records are in flight than allowed; note their delivery counts."""
        if window.in_flight > IN_FLIGHT_MAX:
            raise InvariantBroken(f"in flight: {window.in_flight}")
        for span in window.spans():
            if span.deliveries > DELIVERIES_MAX:
                raise InvariantBroken(f"delivered too often: {span}")
            for offset in range(span.first, span.last + 1):
                self._count(offset, span.deliveries)

    def _count(self, offset: int, deliveries: int) -> None:
        self.deliveries[offset] = max(self.deliveries.get(offset, 0), deliveries)

    def delivered(self, offset: int, count: int, done: set[int], *, is_leader: bool) -> None:
        """Check a record that a consumer received; ``done`` were finished when it fetched."""
        if not 1 <= count <= DELIVERIES_MAX:
            raise InvariantBroken(f"{offset} was delivered {count} times")
        self._count(offset, count)
        self.again += offset in self.acknowledged
        if offset in self.acknowledged and is_leader and self.is_kept:
            raise InvariantBroken(f"{offset} was accepted, and was delivered again")
        if offset in done:
            self.zombies += not is_leader
            if is_leader:
                raise InvariantBroken(f"{offset} is finished, and was delivered again")


class ShareConsumer(CoordinatorClient):
    """One member of the share group, in one process. ``reached`` says which step it has reached."""

    def __init__(
        self, name: str, ports: Ports, watch: CoordinatorWatch, shares: ShareWatch, start: int
    ) -> None:
        super().__init__(name, ports, watch, 3)
        self.member_id = f"{name}-{start}"
        self.shares = shares
        self.reached: set[str] = set()
        self.held: list[tuple[int, int]] = []
        self._given: set[int] = set()
        self._epoch = 0
        self._session = 0
        self._leader = -1

    async def run(
        self, choose: Callable[[int], AckType | None], is_leader: Callable[[int], bool]
    ) -> None:
        """Fetch and acknowledge records, as ``choose`` says, until all is drained."""
        rounds = 0
        while not self.watch.is_drained:
            if rounds % 5 == 0 or not self._epoch:
                await self._beat()
            rounds += 1
            self.reached = set()
            if self._epoch and await self._fetch(is_leader):
                await self.rest()
                await self._answer(choose)
                if self.ports.random.below(4) == 0:
                    await self._steal()
            await self.rest()
        await self._leave()

    async def _beat(self) -> None:
        names = [TOPIC] if not self._epoch else None
        request = ShareGroupHeartbeatRequest(GROUP, self.member_id, self._epoch, None, names)
        response = await self.ask_coordinator(FOR_GROUP, GROUP, request)
        if not isinstance(response, ShareGroupHeartbeatResponse):
            return
        error = ErrorCode(response.error_code)
        if error is ErrorCode.NONE:
            self._epoch = response.member_epoch
            return
        self.moved(FOR_GROUP, GROUP, error)
        self.check(error, AGAIN | _OUT, "ShareGroupHeartbeat")
        if error in _OUT:
            self._epoch = 0

    async def _leave(self) -> None:
        request = ShareGroupHeartbeatRequest(GROUP, self.member_id, -1)
        await self.ask_coordinator(FOR_GROUP, GROUP, request)

    # -- records ---------------------------------------------------------------

    async def _find_leader(self) -> bool:
        leader = await self.leader(INDEX)
        if leader is None:
            return False
        if leader.node_id != self._leader:
            self._leader, self._session = leader.node_id, 0
        return True

    def _start_over(self) -> None:
        self._session, self.held = 0, []
        self.forget(INDEX)

    async def _fetch(self, is_leader: Callable[[int], bool]) -> bool:
        """Fetch; return whether it received anything."""
        self.held = []
        if not await self._find_leader():
            return False
        is_hoard = self.ports.random.below(12) == 0
        partition = fetching.FetchPartition(INDEX)
        request = fetching.ShareFetchRequest(
            GROUP,
            self.member_id,
            self._session,
            FETCH_WAIT_MS,
            max_bytes=1 << 16,
            max_records=HOARD_MAX if is_hoard else RECORDS_MAX,
            share_acquire_mode=1,
            topics=[fetching.FetchTopic(self.topic_ids[TOPIC], [partition])],
        )
        done = set(self.shares.finished)
        self.reached.add("fetch requested")
        response = await self.ask(self._leader, request)
        rows = self._rows(response, fetching.ShareFetchResponse, "ShareFetch")
        for row in rows:
            assert isinstance(row, fetching.PartitionData)
            for got in row.acquired_records:
                self.held.append((got.first_offset, got.last_offset))
                for offset in range(got.first_offset, got.last_offset + 1):
                    self._given.add(offset)
                    leads = is_leader(self._leader)
                    self.shares.delivered(offset, got.delivery_count, done, is_leader=leads)
        self.shares.held[self.name] = list(self.held)
        if self.held:
            self.reached.add("delivered")
        return bool(self.held)

    def _rows(
        self, response: object, kind: type, what: str, also: frozenset[ErrorCode] = frozenset()
    ) -> list[object]:
        """Return the answers for partitions without an error; start over otherwise.

        ``also``: errors that this request may meet in addition to the common ones.
        """
        if not isinstance(response, kind):
            self._start_over()
            return []
        self._session += 1
        rows = [row for topic in response.responses for row in topic.partitions]  # type: ignore[attr-defined]
        for code in (response.error_code, *(row.error_code for row in rows)):  # type: ignore[attr-defined]
            if code:
                self.check(ErrorCode(code), AGAIN | EXPECTED | _SESSION | also, what)
                self._start_over()
                return []
        return rows

    async def _answer(self, choose: Callable[[int], AckType | None]) -> None:
        """Acknowledge the held records; some are left until their lock expires."""
        batches, mine = [], []
        for first, last in self.held:
            for offset in range(first, last + 1):
                kind = choose(offset)
                self.shares.expired += kind is None
                if kind is not None:
                    mine.append((offset, kind))
                    batches.append(acknowledging.AcknowledgementBatch(offset, offset, [kind]))
        if not batches:
            return
        good = {offset for offset, kind in mine if kind is not AckType.RELEASE}
        self.shares.settled |= good
        partition = acknowledging.AcknowledgePartition(INDEX, batches)
        request = acknowledging.ShareAcknowledgeRequest(
            GROUP,
            self.member_id,
            self._session,
            topics=[acknowledging.AcknowledgeTopic(self.topic_ids[TOPIC], [partition])],
        )
        self.reached.add("acknowledgement sent")
        response = await self.ask(self._leader, request)
        if self._rows(response, acknowledging.ShareAcknowledgeResponse, "ShareAcknowledge"):
            self.reached.add("acknowledgement answered")
            self.shares.acknowledged |= good
            self.shares.accepted += len(good)

    async def _steal(self) -> None:
        """Reject records that another consumer holds and this one never had.

        The request is rejected, unless the other consumer has finished the record. A new leader may
        never have delivered it.
        """
        others = [held for name, held in self.shares.held.items() if name != self.name]
        if not self._session or not others or not others[0]:
            return
        first, last = others[0][0]
        theirs = set(range(first, last + 1))
        if theirs & self._given:
            return
        stolen = [acknowledging.AcknowledgementBatch(first, last, [AckType.REJECT])]
        partition = acknowledging.AcknowledgePartition(INDEX, stolen)
        topic = acknowledging.AcknowledgeTopic(self.topic_ids[TOPIC], [partition])
        request = acknowledging.ShareAcknowledgeRequest(
            GROUP, self.member_id, self._session, topics=[topic]
        )
        response = await self.ask(self._leader, request)
        never_given = frozenset({ErrorCode.INVALID_REQUEST})
        answer = acknowledging.ShareAcknowledgeResponse
        rows = self._rows(response, answer, "ShareAcknowledge", never_given)
        self.shares.thefts += not rows
        theirs -= self.shares.settled
        if rows and any(self.shares.deliveries.get(at, 0) < DELIVERIES_MAX - 1 for at in theirs):
            raise InvariantBroken(f"{self.name} rejected {theirs}, which another holds")
