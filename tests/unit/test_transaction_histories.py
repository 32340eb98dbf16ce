"""Simulated transactions: crashes between any two steps, delayed requests and markers."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transaction_harness import P0, P1, Harness, Transactor, check, settle

from ottla.coordinators.transactions.stale_end_txn import Client
from ottla.coordinators.transactions.transaction import Status
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.types import TopicPartition

pytestmark = pytest.mark.slow

VERSIONS = pytest.mark.parametrize("version", [0, 2])


def until_ready(client: Transactor) -> None:
    """Initialize as clients do: retry while an earlier transaction is being ended."""
    for _ in range(4):
        if client.init() is ErrorCode.NONE:
            return
        client.harness.pump()
    raise AssertionError("never ready")


# -- crashes between any two steps -----------------------------------------------------


def script(harness: Harness, client: Transactor, commit: bool) -> list[Callable[[], object]]:
    """One transaction over two partitions, step by step, markers among them."""

    def mark(number: int) -> None:
        for ended in harness.due():
            places = sorted(ended.partitions)
            if number < len(places):
                harness.mark(ended, places[number])

    def complete() -> None:
        for ended in harness.due():
            harness.complete(ended)

    return [
        client.init,
        lambda: client.produce(P0, "a"),
        lambda: client.produce(P1, "b"),
        lambda: client.end(commit),
        lambda: mark(0),
        lambda: mark(1),
        complete,
    ]


@VERSIONS
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("at", range(8))
@pytest.mark.parametrize("commits", [True, False])
def test_coordinator_killed_between_any_two_steps_loses_nothing(
    version: int, commit: bool, at: int, commits: bool
) -> None:
    """The step before the crash is committed or not; then its reply is lost, too."""
    harness = Harness()
    client = Transactor(harness, version)
    steps = script(harness, client, commit)
    for number, step in enumerate(steps):
        if number + 1 == at:
            harness.log.follows = commits
            step()
            harness.crash()
            if not commits and number < 4:
                break
        else:
            step()
    if not client.is_dead and client.ending is not None:
        # The reply was lost: the client retries until it gets one.
        for _ in range(3):
            if client.end(commit) is not ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            harness.pump()
    settle(harness)
    check(harness, [client])
    # Whatever happened before, the next producer of the id can continue.
    after = Transactor(harness, version)
    until_ready(after)
    assert after.produce(P0, "z") is ErrorCode.NONE
    assert after.end(True) is ErrorCode.NONE
    settle(harness)
    check(harness, [client, after])
    assert "z" in harness.visible()


# -- the regression list ---------------------------------------------------------------


@VERSIONS
def test_a_transaction_that_was_begun_is_known_to_the_next_coordinator(version: int) -> None:
    harness = Harness()
    client = Transactor(harness, version)
    until_ready(client)
    client.produce(P0, "a")
    harness.crash()
    assert harness.state().status is Status.ONGOING
    assert client.end(True) is ErrorCode.NONE
    harness.pump()
    assert harness.visible() == {"a"}


def test_a_delayed_end_cannot_reach_a_later_transaction_under_version_2() -> None:
    harness = Harness()
    client = Transactor(harness, 2)
    until_ready(client)
    client.produce(P0, "a")
    late = client.request(True)
    assert client.end(False) is ErrorCode.NONE
    harness.pump()
    client.produce(P0, "b")
    assert harness.end(late, client.client).error_code == ErrorCode.PRODUCER_FENCED
    assert harness.state().status is Status.ONGOING
    client.end(False)
    settle(harness)
    assert harness.visible() == set()


@pytest.mark.parametrize("commit", [True, False])
def test_a_delayed_end_cannot_reach_a_later_transaction_of_an_older_client(
    commit: bool,
) -> None:
    harness = Harness()
    client = Transactor(harness, 0)
    until_ready(client)
    client.produce(P0, "a")
    late, left = client.request(commit), client.client
    client.reconnect()
    assert client.end(commit) is ErrorCode.NONE
    harness.pump()
    client.produce(P0, "b")
    assert harness.end(late, left).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert harness.state().status is Status.ONGOING
    assert client.end(not commit) is ErrorCode.NONE
    settle(harness)
    check(harness, [client])


def test_delayed_end_txn_is_detected_after_a_shard_is_reloaded() -> None:
    harness = Harness()
    client = Transactor(harness, 0)
    until_ready(client)
    client.produce(P0, "a")
    late, left = client.request(True), client.client
    client.reconnect()
    assert client.end(True) is ErrorCode.NONE
    harness.pump()
    harness.crash()
    client.produce(P0, "b")
    assert harness.end(late, left).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert harness.state().status is Status.ONGOING


def test_end_txn_retried_over_an_old_connection_is_accepted() -> None:
    harness = Harness()
    client = Transactor(harness, 0)
    until_ready(client)
    one = client.client
    client.produce(P0, "a")
    client.reconnect()
    other = client.client
    client.produce(P1, "b")
    request = client.request(True)
    assert harness.end(request, one).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert harness.end(request, one).error_code == ErrorCode.NONE
    harness.pump()
    assert harness.visible() == {"a", "b"}
    assert one != other


@VERSIONS
def test_nothing_of_an_open_or_aborted_transaction_is_seen(version: int) -> None:
    harness = Harness()
    client = Transactor(harness, version)
    until_ready(client)
    client.produce(P0, "a")
    other = Transactor(harness, version, "y")
    until_ready(other)
    other.produce(P0, "b")
    other.end(True)
    harness.pump()
    # Committed, and after everything that is still open.
    assert harness.slots[P0].last_stable == 0
    assert harness.visible() == set()
    client.end(False)
    harness.pump()
    assert harness.visible() == {"b"}


@VERSIONS
def test_an_abort_that_comes_again_cannot_hit_a_newer_transaction(version: int) -> None:
    harness = Harness()
    client = Transactor(harness, version)
    until_ready(client)
    client.produce(P0, "a")
    # A second producer of the same id: the first is fenced and its transaction aborted.
    after = Transactor(harness, version)
    assert after.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    harness.pump()
    until_ready(after)
    after.produce(P0, "b")
    assert harness.end(client.request(False), client.client).error_code == ErrorCode.PRODUCER_FENCED
    harness.late_marker(0)
    assert after.end(True) is ErrorCode.NONE
    settle(harness)
    check(harness, [after])
    assert harness.visible() == {"b"}


@VERSIONS
def test_fenced_producer_cannot_write(version: int) -> None:
    harness = Harness()
    client = Transactor(harness, version)
    until_ready(client)
    client.produce(P0, "a")
    assert client.producer is not None
    zombie = client.producer
    after = Transactor(harness, version)
    assert after.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    harness.pump()
    until_ready(after)
    assert client.produce(P1, "b") is ErrorCode.PRODUCER_FENCED
    assert harness.verify("x", zombie, P0) is ErrorCode.PRODUCER_FENCED
    settle(harness)
    assert harness.visible() == set()


# -- any order ---------------------------------------------------------------------------

# Whole transactions among single steps: few histories would reach a second one otherwise.
WHO, PLACE = st.sampled_from([0, 0, 0, 1]), st.sampled_from([P0, P1])
OPS = st.one_of(
    st.tuples(st.just("produce"), WHO, PLACE),
    st.tuples(st.just("end"), WHO, st.booleans()),
    st.tuples(st.just("whole"), WHO, st.booleans()),
    st.tuples(st.just("repeated"), WHO, st.booleans()),
    st.tuples(st.just("unheard"), WHO, st.booleans(), st.booleans()),
    st.tuples(st.just("held end"), WHO, st.booleans()),
    st.tuples(st.just("init"), WHO),
    st.tuples(st.just("late end"), st.integers(0, 3)),
    st.tuples(st.just("late marker"), st.integers(0, 7)),
    st.tuples(st.just("mark one"), st.integers(0, 1)),
    st.tuples(st.just("pump")),
    st.tuples(st.just("crash"), st.booleans()),
    st.tuples(st.just("time out")),
)


class Story:
    """Two producers of one transactional id, and everything that may happen between them."""

    def __init__(self, version: int) -> None:
        self.harness = Harness()
        self.version = version
        self.clients = [Transactor(self.harness, version), Transactor(self.harness, version)]
        self.past: list[Transactor] = []
        self.held: list[tuple[EndTxnRequest, Client, Transactor]] = []
        self.values = 0

    def step(self, op: tuple[object, ...]) -> None:
        name, *rest = op
        getattr(self, "_" + str(name).replace(" ", "_"))(*rest)

    def _usable(self, number: int) -> Transactor | None:
        client = self.clients[number]
        if client.is_dead:
            self.past.append(client)
            client = self.clients[number] = Transactor(self.harness, self.version)
        if client.producer is None:
            client.init()
        return client if client.producer is not None else None

    def _init(self, number: int) -> None:
        client = self._usable(number)
        if client is not None and client.txn is None and client.ending is None:
            client.init()

    def _produce(self, number: int, place: TopicPartition) -> None:
        client = self._usable(number)
        if client is not None and client.ending is None:
            self.values += 1
            client.produce(place, f"v{self.values}")

    def _whole(self, number: int, commit: bool) -> None:
        self._produce(number, P0)
        self._produce(number, P1)
        self._end(number, commit)
        self._pump()

    def _repeated(self, number: int, commit: bool) -> None:
        """The EndTxn is delayed, and repeated over another connection."""
        self._produce(number, P0)
        self._held_end(number, commit)
        self._end(number, commit)
        self._pump()

    def _unheard(self, number: int, commit: bool, lose: bool) -> None:
        """The coordinator crashes before the reply."""
        self.harness.log.follows = False
        self._end(number, commit)
        self._crash(lose)

    def _end(self, number: int, commit: bool) -> None:
        client = self._usable(number)
        if client is not None and client.txn is not None:
            client.end(commit if client.ending is None else client.ending)

    def _held_end(self, number: int, commit: bool) -> None:
        """The request is in flight; the client abandons the connection and retries."""
        client = self._usable(number)
        if client is not None and client.txn is not None:
            wanted = commit if client.ending is None else client.ending
            client.ending = wanted
            self.held.append((client.request(wanted), client.client, client))
            client.reconnect()

    def _late_end(self, number: int) -> None:
        if self.held:
            request, by, _ = self.held.pop(number % len(self.held))
            self.harness.end(request, by)

    def _late_marker(self, number: int) -> None:
        if self.version >= 2:  # before, a repeated marker cannot be recognised
            self.harness.late_marker(number)

    def _mark_one(self, number: int) -> None:
        for ended in self.harness.due():
            places = sorted(ended.partitions)
            if number < len(places):
                self.harness.mark(ended, places[number])

    def _pump(self) -> None:
        self.harness.pump()

    def _crash(self, lose: bool) -> None:
        self.harness.crash(lose=lose)

    def _time_out(self) -> None:
        self.harness.wait(70_000)


@pytest.mark.parametrize("version", [0, 2])
@settings(max_examples=200, deadline=None)
@given(ops=st.lists(OPS, min_size=10, max_size=25))
def test_every_transaction_is_all_or_nothing_in_any_order(
    version: int, ops: list[tuple[object, ...]]
) -> None:
    story = Story(version)
    for op in ops:
        story.step(op)
    for client in story.clients:
        for _ in range(4):
            if client.is_dead or client.ending is None or client.txn is None:
                break
            client.end(client.ending)
            story.harness.pump()
    settle(story.harness)
    check(story.harness, [*story.past, *story.clients])


def rebuilt(harness: Harness) -> Harness:
    other = Harness()
    other.log = harness.log
    other.crash(lose=False)
    return other


@settings(max_examples=60, deadline=None)
@given(ops=st.lists(OPS, min_size=3, max_size=25))
def test_replaying_the_log_gives_the_live_state(ops: list[tuple[object, ...]]) -> None:
    story = Story(2)
    for op in ops:
        story.step(op)
    harness = story.harness
    assert rebuilt(harness).machine.view() == harness.machine.view()
