"""Transactions in a small world: crashes between any two steps, requests and markers come late."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transaction_world import P0, P1, Transactor, World, check, settle

from ottla.coordinators.transactions.stale_end_txn import Client
from ottla.coordinators.transactions.transaction import Status
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.types import TopicPartition

VERSIONS = pytest.mark.parametrize("version", [0, 2])


def until_ready(client: Transactor) -> None:
    """Init as clients do: again while an earlier transaction is being ended."""
    for _ in range(4):
        if client.init() is ErrorCode.NONE:
            return
        client.world.pump()
    raise AssertionError("never ready")


# -- crashes between any two steps -----------------------------------------------------


def script(world: World, client: Transactor, commit: bool) -> list[Callable[[], object]]:
    """One transaction over two partitions, step by step, markers among them."""

    def mark(number: int) -> None:
        for ended in world.due():
            places = sorted(ended.partitions)
            if number < len(places):
                world.mark(ended, places[number])

    def complete() -> None:
        for ended in world.due():
            world.complete(ended)

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
    """The step before the crash is committed or not; then its answer is lost, too."""
    world = World()
    client = Transactor(world, version)
    steps = script(world, client, commit)
    for number, step in enumerate(steps):
        if number + 1 == at:
            world.log.follows = commits
            step()
            world.crash()
            if not commits and number < 4:
                break
        else:
            step()
    if not client.is_dead and client.ending is not None:
        # The answer was lost: the client asks again until it is told.
        for _ in range(3):
            if client.end(commit) is not ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            world.pump()
    settle(world)
    check(world, [client])
    # Whatever came before, the next producer of the id can go on.
    after = Transactor(world, version)
    until_ready(after)
    assert after.produce(P0, "z") is ErrorCode.NONE
    assert after.end(True) is ErrorCode.NONE
    settle(world)
    check(world, [client, after])
    assert "z" in world.visible()


# -- the regression list ---------------------------------------------------------------


@VERSIONS
def test_a_transaction_that_was_begun_is_known_to_the_next_coordinator(version: int) -> None:
    world = World()
    client = Transactor(world, version)
    until_ready(client)
    client.produce(P0, "a")
    world.crash()
    assert world.state().status is Status.ONGOING
    assert client.end(True) is ErrorCode.NONE
    world.pump()
    assert world.visible() == {"a"}


def test_a_delayed_end_cannot_reach_a_later_transaction_under_version_2() -> None:
    world = World()
    client = Transactor(world, 2)
    until_ready(client)
    client.produce(P0, "a")
    late = client.request(True)
    assert client.end(False) is ErrorCode.NONE
    world.pump()
    client.produce(P0, "b")
    assert world.end(late, client.client).error_code == ErrorCode.PRODUCER_FENCED
    assert world.state().status is Status.ONGOING
    client.end(False)
    settle(world)
    assert world.visible() == set()


@pytest.mark.parametrize("commit", [True, False])
def test_a_delayed_end_cannot_reach_a_later_transaction_of_an_older_client(
    commit: bool,
) -> None:
    world = World()
    client = Transactor(world, 0)
    until_ready(client)
    client.produce(P0, "a")
    late, left = client.request(commit), client.client
    client.reconnect()
    assert client.end(commit) is ErrorCode.NONE
    world.pump()
    client.produce(P0, "b")
    assert world.end(late, left).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.state().status is Status.ONGOING
    assert client.end(not commit) is ErrorCode.NONE
    settle(world)
    check(world, [client])


def test_delayed_end_txn_is_detected_after_a_shard_is_reloaded() -> None:
    world = World()
    client = Transactor(world, 0)
    until_ready(client)
    client.produce(P0, "a")
    late, left = client.request(True), client.client
    client.reconnect()
    assert client.end(True) is ErrorCode.NONE
    world.pump()
    world.crash()
    client.produce(P0, "b")
    assert world.end(late, left).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.state().status is Status.ONGOING


def test_end_txn_retried_over_an_old_connection_is_accepted() -> None:
    world = World()
    client = Transactor(world, 0)
    until_ready(client)
    one = client.client
    client.produce(P0, "a")
    client.reconnect()
    other = client.client
    client.produce(P1, "b")
    request = client.request(True)
    assert world.end(request, one).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.end(request, one).error_code == ErrorCode.NONE
    world.pump()
    assert world.visible() == {"a", "b"}
    assert one != other


@VERSIONS
def test_nothing_of_an_open_or_aborted_transaction_is_seen(version: int) -> None:
    world = World()
    client = Transactor(world, version)
    until_ready(client)
    client.produce(P0, "a")
    other = Transactor(world, version, "y")
    until_ready(other)
    other.produce(P0, "b")
    other.end(True)
    world.pump()
    # Committed, and behind what is still open.
    assert world.slots[P0].last_stable == 0
    assert world.visible() == set()
    client.end(False)
    world.pump()
    assert world.visible() == {"b"}


@VERSIONS
def test_an_abort_that_comes_again_cannot_hit_a_newer_transaction(version: int) -> None:
    world = World()
    client = Transactor(world, version)
    until_ready(client)
    client.produce(P0, "a")
    # A second producer of the same id: the first is fenced and its transaction aborted.
    after = Transactor(world, version)
    assert after.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    world.pump()
    until_ready(after)
    after.produce(P0, "b")
    assert world.end(client.request(False), client.client).error_code == ErrorCode.PRODUCER_FENCED
    world.late_marker(0)
    assert after.end(True) is ErrorCode.NONE
    settle(world)
    check(world, [after])
    assert world.visible() == {"b"}


@VERSIONS
def test_fenced_producer_cannot_write(version: int) -> None:
    world = World()
    client = Transactor(world, version)
    until_ready(client)
    client.produce(P0, "a")
    assert client.producer is not None
    zombie = client.producer
    after = Transactor(world, version)
    assert after.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    world.pump()
    until_ready(after)
    assert client.produce(P1, "b") is ErrorCode.PRODUCER_FENCED
    assert world.verify("x", zombie, P0) is ErrorCode.PRODUCER_FENCED
    settle(world)
    assert world.visible() == set()


# -- any order ---------------------------------------------------------------------------

# Whole transactions among single steps: else hardly a story gets as far as a second one.
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
    """Two producers of one transactional id, and everything that may come between them."""

    def __init__(self, version: int) -> None:
        self.world = World()
        self.version = version
        self.clients = [Transactor(self.world, version), Transactor(self.world, version)]
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
            client = self.clients[number] = Transactor(self.world, self.version)
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
        """The end is held up, and done again over another connection."""
        self._produce(number, P0)
        self._held_end(number, commit)
        self._end(number, commit)
        self._pump()

    def _unheard(self, number: int, commit: bool, lose: bool) -> None:
        """The coordinator dies over the answer."""
        self.world.log.follows = False
        self._end(number, commit)
        self._crash(lose)

    def _end(self, number: int, commit: bool) -> None:
        client = self._usable(number)
        if client is not None and client.txn is not None:
            client.end(commit if client.ending is None else client.ending)

    def _held_end(self, number: int, commit: bool) -> None:
        """The request is under way, the client gives up on the connection and asks again."""
        client = self._usable(number)
        if client is not None and client.txn is not None:
            wanted = commit if client.ending is None else client.ending
            client.ending = wanted
            self.held.append((client.request(wanted), client.client, client))
            client.reconnect()

    def _late_end(self, number: int) -> None:
        if self.held:
            request, by, _ = self.held.pop(number % len(self.held))
            self.world.end(request, by)

    def _late_marker(self, number: int) -> None:
        if self.version >= 2:  # before, a marker that comes again cannot be told apart
            self.world.late_marker(number)

    def _mark_one(self, number: int) -> None:
        for ended in self.world.due():
            places = sorted(ended.partitions)
            if number < len(places):
                self.world.mark(ended, places[number])

    def _pump(self) -> None:
        self.world.pump()

    def _crash(self, lose: bool) -> None:
        self.world.crash(lose=lose)

    def _time_out(self) -> None:
        self.world.wait(70_000)


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
            story.world.pump()
    settle(story.world)
    check(story.world, [*story.past, *story.clients])


def rebuilt(world: World) -> World:
    other = World()
    other.log = world.log
    other.crash(lose=False)
    return other


@settings(max_examples=60, deadline=None)
@given(ops=st.lists(OPS, min_size=3, max_size=25))
def test_replaying_the_log_gives_the_live_state(ops: list[tuple[object, ...]]) -> None:
    story = Story(2)
    for op in ops:
        story.step(op)
    world = story.world
    assert rebuilt(world).machine.view() == world.machine.view()
