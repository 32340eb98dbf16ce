"""Compare a coordinator's state with the state that its log replays to.

A shard of any node, at any time, has the state of a fresh machine that has replayed its log. State
of classic groups outside the log, such as members waiting for a rebalance, is not compared.
"""

from collections.abc import Callable, Iterator
from typing import Any

from ottla.coordinators.batches import MarkerFound, read_batches
from ottla.coordinators.groups.classic.group import ClassicGroup
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.machine import GroupMachine, GroupsView
from ottla.coordinators.groups.offsets.committed import offsets_in
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.shard import Shard
from ottla.coordinators.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.coordinators.transactions.machine import TransactionMachine
from ottla.node.broker.coordinators import CoordinatorServices
from ottla.protocol.internal.group_records import decode_group_record
from ottla.protocol.internal.transaction_records import decode_transaction_record
from ottla.protocol.types import Offset
from ottla.replication.hosted_partitions import Partitions
from ottla.replication.partition import Partition
from simulation.cluster_watch import TOPIC, batches_of
from simulation.coordinator_watch import GROUP, CoordinatorWatch
from simulation.ledger import InvariantBroken


def check_shards(
    name: str, services: CoordinatorServices, partitions: Partitions, watch: CoordinatorWatch
) -> None:
    """Check every shard that a node has loaded; called in the context of the node's process."""
    for index, shard in services.groups.coordinator.runtime.active():
        partition = partitions.get(CONSUMER_OFFSETS, index)
        if _is_readable(shard, partition):
            assert partition is not None
            fresh = GroupMachine(shard.machine.settings, shard.machine.kinds)
            _replay(fresh, partition, shard.end, decode_group_record)
            _compare(f"{name} {shard.name}", _groups(shard.machine), _groups(fresh))
            _check_groups(f"{name} {shard.name}", shard.machine)
        _note_offsets(shard, watch)
    for index, txns in services.transactions.coordinator.runtime.active():
        partition = partitions.get(TRANSACTION_STATE, index)
        if _is_readable(txns, partition):
            assert partition is not None
            ids = TransactionMachine(txns.machine.settings)
            _replay(ids, partition, txns.end, decode_transaction_record)
            _compare(f"{name} {txns.name}", txns.machine.view(), ids.view())


def _is_readable(shard: Shard[Any], partition: Partition | None) -> bool:
    if partition is None or partition.offline is not None or partition.is_closed:
        return False
    # A partition that is no longer led may have been truncated before its shard is notified.
    return partition.log.log_end_offset == shard.end and not partition.log.is_failed


def _replay(
    machine: GroupMachine | TransactionMachine,
    partition: Partition,
    end: Offset,
    decode: Callable[..., Any],
) -> None:
    start = int(partition.log.log_start_offset)
    for base, _, data in batches_of(partition, start, int(end)):
        for batch in read_batches(data, Offset(base), decode):
            for found in batch.found:
                if isinstance(found, MarkerFound):
                    machine.on_marker(found.producer, found.marker, found.offset)
                else:
                    machine.replay(found.record, found.origin)


def _groups(machine: GroupMachine) -> Iterator[tuple[str, object]]:
    """Yield the groups and offsets in the log."""
    yield "committed", machine.offsets.committed
    yield "pending", machine.offsets.pending
    for group_id in sorted(machine.groups):
        group = machine.groups[group_id]
        yield group_id, group.durable if isinstance(group, ClassicGroup) else group


def _compare(where: str, live: Any, replayed: Any) -> None:  # noqa: ANN401 - of either machine
    held, read = list(live), list(replayed)
    if held != read:
        raise InvariantBroken(f"{where}: holds {held}, its log replays to {read}")


def _check_groups(where: str, machine: GroupMachine) -> None:
    """Check that each partition has one owner in every consumer group, and each task in every
    streams group.

    No member has a standby task of a task that it runs: its process has the state already.
    """
    for group in machine.groups.values():
        if isinstance(group, StreamsGroup):
            _check_streams(where, group)
        if isinstance(group, ConsumerGroup):
            held = [place for member in group.members.values() for place in group.held_by(member)]
            if len(held) != len(set(held)) or set(held) != set(group.owners):
                raise InvariantBroken(f"{where}: two members own a partition of {group}")


def _check_streams(where: str, group: StreamsGroup) -> None:
    run = [task for member in group.members.values() for task in member.held().active]
    if len(run) != len(set(run)) or set(run) != set(group.owners):
        raise InvariantBroken(f"{where}: two members run a task of {group}")
    for member in group.members.values():
        if member.assigned.active & member.assigned.standby:
            raise InvariantBroken(f"{where}: {member} has an active and a standby task")


def _note_offsets(shard: Shard[GroupMachine], watch: CoordinatorWatch) -> None:
    if not shard.is_caught_up:
        return  # a read of now is answered later
    view = shard.committed()
    assert isinstance(view, GroupsView)
    for (topic, index), found in offsets_in(view.offsets, GROUP).items():
        if topic == TOPIC:
            watch.is_committed(shard.epoch, topic, index, found.offset)
