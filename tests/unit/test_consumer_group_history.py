"""Histories of consumer groups: one owner per partition, epochs never decrease, all converges.

Clients are modelled by the partitions they really read, which lag behind their assignment. Replies
may be lost, the coordinator may be replaced, topics grow, members of both protocols join and leave.
"""

from collections.abc import Mapping
from typing import Any

from consumer_harness import ConsumerHarness, image_with, named, subscribed, topic_id
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.coordinators.groups.classic.group import ClassicGroup
from ottla.coordinators.groups.consumer.classic_protocol import read_assignment
from ottla.coordinators.groups.consumer.group import ConsumerGroup, places
from ottla.coordinators.groups.consumer.member import ConsumerMember
from ottla.coordinators.groups.consumer.settings import ConsumerSettings, MigrationPolicy
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault

NAMES = ["a", "b", "c"]
SESSION_MS = 45_000
FENCED = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)


class Client:
    """A member's own view. ``assigned`` is its assignment, ``reads`` what it reads."""

    def __init__(self, name: str, topics: list[str], *, is_classic: bool) -> None:
        self.name = name
        self.topics = topics
        self.is_classic = is_classic
        self.member_id = name
        self.epoch = 0
        self.must_tell_all = True
        self.assigned: set[tuple[str, int]] = set()
        self.reads: set[tuple[str, int]] = set()

    def owned(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for topic, number in sorted(self.reads):
            found.setdefault(topic, []).append(number)
        return found

    def receive(self, partitions: dict[str, list[int]]) -> None:
        """Begin to read new partitions; partitions to revoke are read for a while longer."""
        self.assigned = {(topic, each) for topic, numbers in partitions.items() for each in numbers}
        self.reads |= self.assigned

    def give_up(self) -> None:
        self.reads &= self.assigned

    def reset(self) -> None:
        self.epoch, self.must_tell_all = 0, True
        self.assigned, self.reads = set(), set()


class ConsumerGroups(RuleBasedStateMachine):
    @initialize(assignor=st.sampled_from(["uniform", "range"]))
    def begin(self, assignor: str) -> None:
        # A group that stays a consumer group: other tests cover downgrades.
        policy = MigrationPolicy.UPGRADE
        consumer = ConsumerSettings(assignors=(assignor,), migration_policy=policy)
        self.counts = {"t": 3, "u": 2}
        self.harness = ConsumerHarness(consumer=consumer, image=image_with(**self.counts))
        self.clients: dict[str, Client] = {}
        self.epochs: dict[str, int] = {}
        self.group_epoch = 0
        self.joins = 0

    # -- clients ---------------------------------------------------------------

    @rule(
        name=st.sampled_from(NAMES),
        topics=st.sampled_from([["t"], ["t", "u"], ["u"]]),
        is_classic=st.booleans(),
    )
    def join(self, name: str, topics: list[str], is_classic: bool) -> None:
        if name in self.clients:
            return
        self.joins += 1
        client = Client(name, topics, is_classic=is_classic)
        client.member_id = f"{name}{self.joins}"
        if is_classic and not self.members():
            return  # it would create a classic group
        self.clients[name] = client
        self.step(client)

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

    @rule(name=st.sampled_from(NAMES), topics=st.sampled_from([["t"], ["t", "u"], ["u"]]))
    def resubscribe(self, name: str, topics: list[str]) -> None:
        client = self.clients.get(name)
        if client is not None:
            client.topics, client.must_tell_all = topics, True

    @rule(name=st.sampled_from(NAMES))
    def leave(self, name: str) -> None:
        client = self.clients.pop(name, None)
        if client is None:
            return
        client.reset()
        if client.is_classic:
            self.harness.leave(client.member_id)
        elif client.member_id in self.members():
            self.harness.beat(client.member_id, -1)

    def members(self) -> Mapping[str, ConsumerMember]:
        group = self.harness.machine.groups.get("g")
        return group.members if isinstance(group, ConsumerGroup) else {}

    def step(self, client: Client, *, is_lost: bool = False, says_owned: bool = True) -> None:
        if client.is_classic:
            self.classic_step(client, is_lost=is_lost)
        else:
            self.consumer_step(client, is_lost=is_lost, says_owned=says_owned)

    def consumer_step(self, client: Client, *, is_lost: bool, says_owned: bool) -> None:
        fields: dict[str, Any] = {}
        if client.must_tell_all:
            fields = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": client.topics}
        owned = client.owned() if says_owned or client.must_tell_all else None
        try:
            reply = self.harness.beat(client.member_id, client.epoch, owned, **fields)
        except Fault as fault:
            if fault.code not in FENCED:
                raise
            client.reset()
            return
        if is_lost:
            client.must_tell_all = True
            return
        client.epoch, client.must_tell_all = reply.member_epoch, False
        if reply.assignment is not None:
            client.receive(named(reply))

    def classic_step(self, client: Client, *, is_lost: bool) -> None:
        if client.epoch:
            code = self.harness.heartbeat(client.member_id, client.epoch)
            if code == ErrorCode.NONE and not client.must_tell_all:
                return
            if code not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                client.reset()
        data = {"cooperative-sticky": subscribed(*client.topics, owned=client.owned())}
        joined = self.harness.join(client.member_id, protocols=data).reply
        assert joined.error_code == ErrorCode.NONE
        if is_lost:
            client.reset()
            return
        client.epoch, client.must_tell_all = joined.generation_id, False
        synced = self.harness.sync(client.member_id, client.epoch).reply
        if synced.error_code != ErrorCode.NONE:
            client.must_tell_all = True
            return
        partitions = read_assignment(synced.assignment, self.harness.image.topics)
        names = {topic_id(name): name for name in self.counts}
        client.receive({names[each]: sorted(partitions[each]) for each in partitions})
        if client.reads != client.assigned:
            client.must_tell_all = True  # it revokes, then rejoins

    # -- the harness ---------------------------------------------------------------

    @rule()
    def replace_coordinator(self) -> None:
        before = self.harness.machine.groups.get("g")
        self.harness = self.harness.reload()
        assert self.harness.machine.groups.get("g") == before, "the log is the state"

    @rule(topic=st.sampled_from(["t", "u"]))
    def add_partitions(self, topic: str) -> None:
        if self.counts[topic] < 5:
            self.counts[topic] += 1
            self.harness.image = image_with(**self.counts)
            # Heartbeats of classic members do not check topics, as in Kafka: without other members,
            # new partitions are noticed when a member rejoins.
            for client in self.clients.values():
                client.must_tell_all = client.must_tell_all or client.is_classic

    @rule(ms=st.sampled_from([3_000, 11_000, SESSION_MS]))
    def let_time_pass(self, ms: int) -> None:
        """Removed members stop reading: clients have session timeouts of their own."""
        self.harness.pass_ms(ms)
        members = self.members()
        for client in list(self.clients.values()):
            if client.member_id in members:
                continue
            client.reset()
            if client.is_classic:
                del self.clients[client.name]

    # -- promises ----------------------------------------------------------------

    @invariant()
    def nobody_shares_a_partition(self) -> None:
        seen: dict[tuple[str, int], str] = {}
        for client in self.clients.values():
            for place in client.reads:
                assert place not in seen, f"{place} is read by {client.name} and {seen[place]}"
                seen[place] = client.name

    @invariant()
    def owners_are_who_holds(self) -> None:
        group = self.harness.machine.groups.get("g")
        assert not isinstance(group, ClassicGroup)
        if not isinstance(group, ConsumerGroup):
            return
        held = [
            (place, member.member_id)
            for member in group.members.values()
            for held in (member.assigned, member.pending_revocation)
            for place in places(held)
        ]
        assert len(dict(held)) == len(held), "two members hold one partition"
        assert dict(held) == dict(group.owners.items())
        assert set(group.targets) <= set(group.members)

    @invariant()
    def epochs_never_fall(self) -> None:
        group = self.harness.machine.groups.get("g")
        if not isinstance(group, ConsumerGroup):
            self.group_epoch, self.epochs = 0, {}
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
        for _ in range(8):
            for client in self.clients.values():
                client.give_up()
                self.step(client)
        group = self.harness.consumers()
        assert group.state_name() == "Stable"
        wanted = {topic for client in self.clients.values() for topic in client.topics}
        read = [place for client in self.clients.values() for place in client.reads]
        assert sorted(read) == sorted(
            (topic, number) for topic in wanted for number in range(self.counts[topic])
        )

    def teardown(self) -> None:
        if getattr(self, "clients", None):
            self.harness.pass_ms(1)
            self.let_time_pass(1)
            self.converge()


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, report_multiple_bugs=False
)
