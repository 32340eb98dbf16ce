"""Histories of a classic group: the log equals the live state, and every request is answered.

A small group (at most four members, two of them static, two transactions) makes collisions, and so
bugs, likely.
"""

from typing import Any

from classic_harness import Harness, lenient
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinators.groups.classic.group import ClassicGroup, ClassicState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import NotEnoughReplicas, NotLeader

MEMBERS = st.integers(0, 2)
JOIN = st.tuples(
    st.just("join"),
    st.integers(0, 4),
    st.sampled_from([(3, None), (4, None), (9, "i1"), (5, "i2")]),
    st.sampled_from(["range", "other range"]),
)
SYNC = st.tuples(st.just("sync"), MEMBERS, st.sampled_from([0, 0, 0, -1]))
ROUND = st.tuples(st.just("round"), st.integers(0, 2))
SETTLE = st.tuples(st.just("settle"))
HEARTBEAT = st.tuples(st.just("heartbeat"), MEMBERS, st.integers(-1, 0))
LEAVE = st.tuples(st.just("leave"), MEMBERS)
OFFSET = st.tuples(st.just("offset"), MEMBERS, st.integers(0, 3), st.integers(-1, 0))
TXN = st.tuples(st.just("txn"), st.integers(0, 1), st.integers(0, 3))
END = st.tuples(st.just("end"), st.integers(0, 1), st.booleans())
MOMENT = st.tuples(st.just("time"), st.sampled_from([500, 3000]))
RARE = st.one_of(
    st.tuples(st.just("time"), st.sampled_from([11_000, 31_000, 120_000])),
    st.tuples(st.just("delete")),
    st.tuples(st.just("refuse"), st.booleans()),
    st.tuples(st.just("lag"), st.booleans()),
    st.tuples(st.just("lose"), st.booleans()),
)
# Steps that keep a group together are drawn more often; `sampled_from`, since `one_of` would count
# the rare ones one by one.
STEPS = st.sampled_from(
    [JOIN, JOIN, SYNC, SYNC, SYNC, ROUND, SETTLE, HEARTBEAT, LEAVE, OFFSET, TXN, END, MOMENT, RARE]
).flatmap(lambda kind: kind)


class History:
    def __init__(self) -> None:
        self.harness = Harness(settings=lenient(max_size=3, offsets_retention_ms=50_000))
        self.futures: list[Any] = []
        self.assigned: dict[tuple[int, str, str], bytes] = {}
        self.leaderships = 0

    @property
    def group(self) -> ClassicGroup | None:
        return self.harness.machine.classic("g")

    def member(self, number: int) -> str:
        """Return a member of the group by number, or an unknown one."""
        group = self.group
        known = [] if group is None else [*group.members, *sorted(group.pending_join)]
        return known[number] if number < len(known) else "ghost"

    def generation(self, back: int = 0) -> int:
        return 0 if self.group is None else self.group.generation + back

    def step(self, kind: str, *args: Any) -> None:
        getattr(self, f"on_{kind}")(*args)
        self.harness.shard.on_due()

    def on_join(self, number: int, how: tuple[int, str | None], protocols: str) -> None:
        version, instance = how
        member = "" if number == 4 or instance is not None else self.member(number)
        self.harness.join(member, version=version, instance=instance, protocols=protocols)

    def on_sync(self, number: int, back: int) -> None:
        group = self.group
        ids = [] if group is None else list(group.members)
        member, generation = self.member(number), self.generation(back)
        given = {each: f"{generation}/{each}".encode() for each in ids}
        future = self.harness.sync(member, generation, **given)
        self.futures.append((future, generation, member))

    def on_round(self, newcomers: int) -> None:
        """All members rejoin, and some new ones join.

        Few histories would get this far otherwise.
        """
        group = self.group
        for member in [] if group is None else list(group.members):
            self.harness.join(member, protocols="range")
        for _ in range(newcomers):
            self.harness.join(protocols="range")
        self.harness.pass_ms(3000)

    def on_settle(self) -> None:
        """All members send SyncGroup, the leader last."""
        for number in reversed(range(3)):
            self.on_sync(number, 0)

    def on_heartbeat(self, number: int, back: int) -> None:
        self.harness.log.follows = True
        self.harness.log.commit()
        self.harness.heartbeat(self.member(number), self.generation(back))

    def on_leave(self, number: int) -> None:
        from ottla.coordinators.groups.requests import decide_leave
        from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

        request = LeaveGroupRequest("g", members=[MemberIdentity(self.member(number))])
        self.harness.submit(lambda m, now, _: decide_leave(m, request, now))

    def on_offset(self, number: int, offset: int, back: int) -> None:
        member = self.member(number)
        generation = -1 if member in ("", "ghost") else self.generation(back)
        self.harness.commit(offset, "" if generation < 0 else member, generation)

    def on_txn(self, producer: int, offset: int) -> None:
        self.harness.txn_commit(producer, offset)

    def on_end(self, producer: int, is_commit: bool) -> None:
        self.harness.end_txn(producer, is_commit=is_commit)

    def on_time(self, ms: int) -> None:
        self.harness.pass_ms(ms)

    def on_delete(self) -> None:
        from ottla.coordinators.groups.requests import decide_delete_groups

        self.harness.submit(lambda m, now, _: decide_delete_groups(m, ["g"]))

    def on_refuse(self, is_refusing: bool) -> None:
        self.harness.log.fault = NotEnoughReplicas("too few") if is_refusing else None

    def on_lag(self, is_lagging: bool) -> None:
        self.harness.log.follows = not is_lagging
        if not is_lagging:
            self.harness.log.commit()

    def on_lose(self, by_write: bool) -> None:
        harness = self.harness
        if by_write:
            harness.log.fault = NotLeader("another")
            harness.commit(1)
        harness.shard.close()
        for future in harness.futures:
            assert future.is_done, "forgotten when leadership was lost"
        harness.log.fault = None
        self.harness = harness.reload()
        self.harness.ids = harness.ids
        self.futures.clear()
        self.leaderships += 1

    # -- what always holds -------------------------------------------------------

    def check(self) -> None:
        harness = self.harness
        again = Harness(harness.log, harness.machine.settings, harness.clock)
        assert again.machine.offsets.committed == harness.machine.offsets.committed
        assert again.machine.offsets.pending == harness.machine.offsets.pending
        assert set(again.machine.groups) == set(harness.machine.groups)
        assert again.shard.committed().offsets == harness.shard.committed().offsets
        live, loaded = self.group, again.machine.classic("g")
        assert harness.machine.new_groups == {}
        if live is not None and loaded is not None:
            assert live.durable == loaded.durable or loaded.durable is None
            self.check_group(live, loaded)
        self.check_assignments()
        again.shard.close()

    def check_group(self, live: ClassicGroup, loaded: ClassicGroup) -> None:
        assert live.leader_id is None or live.leader_id in live.members
        assert set(live.static.values()) <= set(live.members)
        # Members that have yet to rejoin are not counted during a rebalance.
        assert live.awaiting_join_count() <= 3
        if live.state is ClassicState.STABLE:
            assert loaded.state is ClassicState.STABLE
            assert loaded.generation == live.generation
            assert loaded.leader_id == live.leader_id
            found = {each.member_id: each.assignment for each in loaded.members.values()}
            assert found == {each.member_id: each.assignment for each in live.members.values()}
        if live.state is not ClassicState.PREPARING_REBALANCE:
            assert all(each.awaiting_join is None for each in live.members.values())
        if live.state is not ClassicState.COMPLETING_REBALANCE:
            assert all(each.awaiting_sync is None for each in live.members.values())

    def check_assignments(self) -> None:
        """A generation has one assignment, that of the leader."""
        is_committed = self.harness.log.high_watermark == self.harness.log.log_end
        for future, generation, member in self.futures:
            if not future.is_done and is_committed:
                assert self.generation() == generation, "waits for a generation that is over"
            if not future.is_done or future.fault is not None or not future.reply.assignment:
                continue
            expected = f"{generation}/".encode()
            assert future.reply.error_code == ErrorCode.NONE
            assert future.reply.assignment.startswith(expected) or self.leaderships
            key = (self.leaderships, member, str(generation))
            seen = self.assigned.setdefault(key, future.reply.assignment)
            assert seen == future.reply.assignment


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, min_size=8, max_size=25))
def test_replayed_log_equals_the_state_and_every_request_is_answered(
    steps: list[tuple[Any, ...]],
) -> None:
    history = History()
    history.step("round", 2)
    for step in steps:
        history.step(*step)
        history.check()
    harness = history.harness
    harness.log.fault = None
    harness.log.follows = True
    harness.log.commit()
    harness.pass_ms(700_000)
    for future in harness.futures:
        assert future.is_done, "a request was never answered"
