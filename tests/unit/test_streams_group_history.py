"""Histories of streams groups: no task runs twice, epochs never decrease, all converges.

Clients are modelled by the tasks they really run, which lag behind their assignment. Replies may be
lost, the coordinator may be replaced, the log may reject writes, topics grow, threads of several
processes join and leave, and standbys are turned on and off.
"""

from collections.abc import Mapping
from typing import Any

from classic_harness import lenient
from controller_images import GROUP, config
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from streams_harness import StreamsHarness, image_of_sums, sums, tasks_of

from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.member import StreamsMember
from ottla.coordinators.groups.streams.settings import StreamsSettings
from ottla.coordinators.groups.streams.tasks import TaskId
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault, NotEnoughReplicas
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse

NAMES = ["a", "b", "c", "d"]
PROCESSES = {"a": "p", "b": "p", "c": "q", "d": "r"}
STANDBY = "streams.num.standby.replicas"
FENCED = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


class Client:
    """A thread's own view. ``assigned`` is its assignment, the others are what it runs."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.process = PROCESSES[name]
        self.member_id = f"{name}{number}"
        self.reset()

    def reset(self) -> None:
        self.epoch, self.must_tell_all = 0, True
        self.assigned: tuple[set[int], set[int]] = (set(), set())
        self.active: set[int] = set()
        self.standby: set[int] = set()

    def receive(self, reply: StreamsGroupHeartbeatResponse) -> None:
        """Start new tasks; tasks to revoke run for a while longer."""
        active, standby = tasks_of(reply.active_tasks), tasks_of(reply.standby_tasks)
        assert active is not None
        assert standby is not None
        self.assigned = set(active.get("0", ())), set(standby.get("0", ()))
        self.active |= self.assigned[0]
        self.standby |= self.assigned[1]

    def give_up(self) -> None:
        self.active &= self.assigned[0]
        self.standby &= self.assigned[1]


class StreamsGroups(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from([0, 3000]))
    def begin(self, delay_ms: int) -> None:
        self.count, self.standby = 3, 0
        streams = StreamsSettings(initial_rebalance_delay_ms=delay_ms)
        # A group is kept when it is empty: otherwise its epochs would start over.
        kept = lenient(offsets_retention_check_interval_ms=10**9)
        self.harness = StreamsHarness(None, kept, None, streams, image_of_sums(self.count))
        self.clients: dict[str, Client] = {}
        self.epochs: dict[str, int] = {}
        self.group_epoch = 0
        self.joins = 0

    # -- clients ---------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES))
    def join(self, name: str) -> None:
        if name not in self.clients:
            self.joins += 1
            self.clients[name] = Client(name, self.joins)
            self.step(self.clients[name])

    @rule(name=st.sampled_from(NAMES), is_lost=st.booleans(), says_owned=st.booleans())
    def heartbeat(self, name: str, is_lost: bool, says_owned: bool) -> None:
        client = self.clients.get(name)
        if client is not None:
            self.step(client, is_lost=is_lost, says_owned=says_owned)

    @rule(is_given_up=st.booleans())
    def everybody_sends_a_heartbeat(self, is_given_up: bool) -> None:
        for client in list(self.clients.values()):
            if is_given_up:
                client.give_up()
            self.step(client)

    @rule(name=st.sampled_from(NAMES))
    def give_up(self, name: str) -> None:
        if name in self.clients:
            self.clients[name].give_up()

    @rule(name=st.sampled_from(NAMES))
    def leave(self, name: str) -> None:
        client = self.clients.pop(name, None)
        if client is not None and client.member_id in self.members():
            self.harness.beat(client.member_id, -1)

    @rule(name=st.sampled_from(NAMES))
    def commit(self, name: str) -> None:
        """A client may commit for every active task it runs, at the epoch it knows."""
        client = self.clients.get(name)
        if client is None or client.member_id not in self.members():
            return
        for partition in sorted(client.active & client.assigned[0]):
            code = self.harness.commit_code(1, client.member_id, client.epoch, partition=partition)
            assert code == ErrorCode.NONE

    def members(self) -> Mapping[str, StreamsMember]:
        group = self.harness.machine.groups.get("g")
        return group.members if isinstance(group, StreamsGroup) else {}

    def step(self, client: Client, *, is_lost: bool = False, says_owned: bool = True) -> None:
        fields: dict[str, Any] = {}
        if client.must_tell_all:
            fields = {"rebalance_timeout_ms": 10_000, "process_id": client.process}
        if client.epoch == 0:
            fields["topology"] = sums()
        active: dict[str, list[int]] | None = None
        if says_owned or client.must_tell_all:
            active = {"0": sorted(client.active)} if client.active else {}
        standby = {"0": sorted(client.standby)} if client.standby else {}
        try:
            reply = self.harness.beat(client.member_id, client.epoch, active, standby, **fields)
        except Fault as fault:
            if fault.code not in FENCED:
                raise
            if fault.code is ErrorCode.NOT_ENOUGH_REPLICAS:
                client.must_tell_all = True
            else:
                client.reset()
            return
        if is_lost:
            client.must_tell_all = True
            return
        client.epoch, client.must_tell_all = reply.member_epoch, False
        if reply.active_tasks is not None:
            client.receive(reply)

    # -- the harness ---------------------------------------------------------------

    @rule()
    def replace_coordinator(self) -> None:
        before = self.harness.machine.groups.get("g")
        self.harness = self.harness.reload()
        assert self.harness.machine.groups.get("g") == before, "a log brings back what was live"

    @rule(name=st.sampled_from(NAMES))
    def refuse_a_write(self, name: str) -> None:
        client = self.clients.get(name)
        if client is not None:
            self.harness.log.fault = NotEnoughReplicas("none")
            self.step(client)
            self.harness.log.fault = None

    @precondition(lambda self: self.count < 6)
    @rule()
    def grow(self) -> None:
        self.count += 1
        self.new_image()

    @rule(count=st.integers(0, 2))
    def set_standbys(self, count: int) -> None:
        self.standby = count
        self.new_image()

    def new_image(self) -> None:
        setting = config(GROUP, "g", STANDBY, str(self.standby))
        self.harness.image = image_of_sums(self.count, setting)

    @rule(ms=st.sampled_from([1000, 3000, 10_000, 44_000, 46_000]))
    def let_time_pass(self, ms: int) -> None:
        """Removed members stop running: clients have session timeouts of their own."""
        self.harness.pass_ms(ms)
        members = self.members()
        for client in self.clients.values():
            if client.member_id not in members:
                client.reset()

    # -- promises ----------------------------------------------------------------

    @invariant()
    def no_task_is_active_twice(self) -> None:
        seen: dict[int, str] = {}
        for client in self.clients.values():
            for task in client.active:
                assert task not in seen, f"{task} is run by {client.name} and {seen[task]}"
                seen[task] = client.name

    @invariant()
    def a_process_has_a_task_once(self) -> None:
        seen: dict[tuple[str, int], str] = {}
        for client in self.clients.values():
            assert not client.active & client.standby
            for task in client.active | client.standby:
                place = client.process, task
                assert place not in seen, f"{place} is held by {client.name} and {seen[place]}"
                seen[place] = client.name

    @invariant()
    def owners_are_who_holds(self) -> None:
        group = self.harness.machine.groups.get("g")
        if not isinstance(group, StreamsGroup):
            return
        held: list[tuple[TaskId, str]] = []
        for member in group.members.values():
            tasks = (*member.assigned.active, *member.pending_revocation.active)
            held += [(task, member.member_id) for task in tasks]
            assert set(member.task_epochs) == set(tasks)
        assert len(dict(held)) == len(held), "two members hold one task"
        assert dict(held) == dict(group.owners.items())
        assert set(group.targets) <= set(group.members)

    @invariant()
    def epochs_never_fall(self) -> None:
        group = self.harness.machine.groups.get("g")
        if not isinstance(group, StreamsGroup):
            return
        assert group.epoch >= max(self.group_epoch, group.assignment_epoch)
        self.group_epoch = group.epoch
        for member in group.members.values():
            assert member.epoch >= self.epochs.get(member.member_id, 0)
            assert member.epoch <= group.epoch
            self.epochs[member.member_id] = member.epoch

    @precondition(lambda self: self.clients)
    @rule()
    def converge(self) -> None:
        """Without further events every member gets its target."""
        self.let_time_pass(3000)
        for _ in range(10):
            for client in self.clients.values():
                client.give_up()
                self.step(client)
            self.harness.pass_ms(1000)
        assert self.harness.app().state_name() == "Stable"
        run = sorted(task for client in self.clients.values() for task in client.active)
        assert run == list(range(self.count))
        processes = {client.process for client in self.clients.values()}
        copies = min(self.standby, len(processes) - 1)
        kept = sorted(task for client in self.clients.values() for task in client.standby)
        assert kept == sorted(list(range(self.count)) * copies)

    def teardown(self) -> None:
        if getattr(self, "clients", None):
            self.converge()


TestStreamsGroups = StreamsGroups.TestCase
TestStreamsGroups.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, report_multiple_bugs=False
)
