"""Computes a partition's next state: ISR, leader, replicas and ELR, as one record.

A caller says what to change; the rules here work out the consequences:

    1. a reassignment whose target replicas are all in sync is completed
    2. eligible leader replicas (KIP-966) are maintained: a replica that was in sync when the ISR
       fell below min.insync.replicas has every committed record, and may lead an empty ISR
    3. the leader stays if it may, else a new one is elected
    4. the leader epoch rises when the leader changes, and when a replica leaves the assignment, so
       that its later requests are fenced

`PartitionChangeRecord` contains only what differs; without a difference there is no record. Every
record raises the partition epoch by one.
"""

import enum
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from ottla.metadata.metadata_versions import MetadataVersion
from ottla.metadata.replay_topics import NO_LEADER_CHANGE, NO_RECOVERY_CHANGE
from ottla.metadata.topics import LeaderRecoveryState, PartitionRegistration
from ottla.protocol.internal.metadata_topics import PartitionChangeRecord
from ottla.protocol.types import NO_LEADER, TopicIdPartition, Uuid

Replicas = tuple[int, ...]


class Election(enum.Enum):
    """Which replicas are considered when the leader cannot stay, or need not."""

    PREFERRED = "preferred"  # the first replica, even in place of a valid leader
    ONLINE = "online"  # in sync, or eligible
    UNCLEAN = "unclean"  # if none of those is alive, another replica: records may be lost


class PartitionUpdate(msgspec.Struct, frozen=True):
    """The requested change of a partition; None keeps a part as it is.

    ``directories`` are for single replicas. ``lost`` is a replica, -1 for none, that may have lost
    records since it was in sync, and so is not in the ELR. ``most_complete`` is the leader if the
    election has to be unclean; -1 takes the first replica that is alive.
    """

    isr: Replicas | None = None
    replicas: Replicas | None = None
    adding: Replicas | None = None
    removing: Replicas | None = None
    recovery_state: LeaderRecoveryState | None = None
    directories: Mapping[int, Uuid] = msgspec.field(default_factory=dict)
    lost: int = NO_LEADER
    most_complete: int = NO_LEADER
    election: Election = Election.ONLINE


class Rules(msgspec.Struct, frozen=True):
    """The rules for a partition: ``min_isr`` of its topic, possible leaders, directories."""

    level: MetadataVersion
    is_elr_enabled: bool
    min_isr: int
    may_lead: Callable[[int], bool]
    default_directory: Callable[[int], Uuid]


class ElectionResult(NamedTuple):
    """The result of an election; leader -1 means none."""

    leader: int
    is_unclean: bool


class _Target(msgspec.Struct):
    """The state of the partition that is being computed."""

    isr: Replicas
    replicas: Replicas
    adding: Replicas
    removing: Replicas
    elr: Replicas


def plan_change(
    at: TopicIdPartition, old: PartitionRegistration, update: PartitionUpdate, rules: Rules
) -> PartitionChangeRecord | None:
    """Return the record that makes a partition as `update` asks; None if it is so already."""
    target = _Target(
        isr=_or(update.isr, old.isr),
        replicas=_or(update.replicas, old.replicas),
        adding=_or(update.adding, old.adding_replicas),
        removing=_or(update.removing, old.removing_replicas),
        elr=old.elr,
    )
    record = PartitionChangeRecord(partition_id=at.partition, topic_id=at.topic_id)
    _complete_reassignment(target)
    _keep_up_elr(target, old, update, rules)
    elected = _elect(target, old, update, rules)
    _set_leader(record, target, old, elected)
    _set_isr(record, target, old, rules)
    _set_elr(record, target, old, rules, elected)
    _set_assignment(record, target, old, update, rules)
    state = update.recovery_state
    if state is not None and state is not old.leader_recovery_state and not elected.is_unclean:
        record.leader_recovery_state = int(state)
    return None if _is_nothing(record) else record


def _complete_reassignment(target: _Target) -> None:
    """Drop the removed replicas once all others are in sync, and end the reassignment (KIP-455)."""
    if not target.adding and not target.removing:
        return
    replicas = _without(target.replicas, target.removing)
    isr = _without(target.isr, target.removing)
    if replicas and isr and set(replicas) <= set(isr):
        target.replicas, target.isr = replicas, isr
        target.adding = target.removing = ()


def _keep_up_elr(
    target: _Target, old: PartitionRegistration, update: PartitionUpdate, rules: Rules
) -> None:
    """Keep a replica that leaves an ISR below the minimum eligible.

    With the minimum in sync, records are committed that the other replicas do not have: none of
    them is eligible. Only a replica of the partition can be.
    """
    if not rules.is_elr_enabled or len(target.isr) >= rules.min_isr:
        target.elr = ()
        return
    candidates = sorted({*old.isr, *old.elr})
    excluded = {*target.isr, update.lost}
    target.elr = tuple(r for r in candidates if r not in excluded and r in target.replicas)


def _elect(
    target: _Target, old: PartitionRegistration, update: PartitionUpdate, rules: Rules
) -> ElectionResult:
    eligible = target.isr or target.elr

    def is_good(replica: int) -> bool:
        return replica in eligible and rules.may_lead(replica)

    candidates = (old.leader, *target.replicas)
    if update.election is Election.PREFERRED:
        candidates = (target.replicas[0], *candidates)
    for replica in candidates:
        if is_good(replica):
            return ElectionResult(replica, False)
    chosen = update.most_complete
    if chosen != NO_LEADER:
        is_possible = chosen in target.replicas and rules.may_lead(chosen)
        return ElectionResult(chosen, True) if is_possible else ElectionResult(NO_LEADER, False)
    if rules.is_elr_enabled and not eligible and len(old.last_known_elr) == 1:
        # No replica is known to have all records: the last leader is the best guess (KIP-966).
        (last,) = old.last_known_elr
        if last in target.replicas and rules.may_lead(last):
            return ElectionResult(last, True)
    if update.election is Election.UNCLEAN:
        for replica in target.replicas:
            if rules.may_lead(replica):
                return ElectionResult(replica, True)
    return ElectionResult(NO_LEADER, False)


def _set_leader(
    record: PartitionChangeRecord,
    target: _Target,
    old: PartitionRegistration,
    elected: ElectionResult,
) -> None:
    if elected.leader != old.leader:
        record.leader = elected.leader
        if elected.is_unclean:
            target.isr, target.elr = (elected.leader,), ()
            if old.leader_recovery_state is not LeaderRecoveryState.RECOVERING:
                record.leader_recovery_state = int(LeaderRecoveryState.RECOVERING)
        elif elected.leader in target.elr:
            target.isr = (elected.leader,)
            target.elr = _without(target.elr, target.isr)
    elif not set(old.replicas) <= set(target.replicas):
        # The same leader in a new epoch: fences the replicas that were removed.
        record.leader = old.leader


def _set_isr(
    record: PartitionChangeRecord, target: _Target, old: PartitionRegistration, rules: Rules
) -> None:
    # Without ELR, the last member of an ISR stays in it, to record which replica is complete.
    if target.isr != old.isr and (target.isr or rules.is_elr_enabled):
        record.isr = list(target.isr)
        is_shrunk = not set(old.isr) <= set(target.isr)
        if (
            is_shrunk
            and record.leader == NO_LEADER_CHANGE
            and rules.level.is_leader_epoch_bump_required_on_isr_shrink()
        ):
            record.leader = old.leader


def _set_elr(
    record: PartitionChangeRecord,
    target: _Target,
    old: PartitionRegistration,
    rules: Rules,
    elected: ElectionResult,
) -> None:
    if not rules.level.is_elr_supported():
        return
    if target.elr != old.elr:
        record.eligible_leader_replicas = list(target.elr)
    if not rules.is_elr_enabled:
        return
    # The last leader, recorded when the partition loses it and cleared when it has one again.
    if elected.leader == NO_LEADER:
        if old.has_leader() and not old.last_known_elr:
            record.last_known_elr = [old.leader]
    elif record.leader != NO_LEADER_CHANGE and old.last_known_elr:
        record.last_known_elr = []


def _set_assignment(
    record: PartitionChangeRecord,
    target: _Target,
    old: PartitionRegistration,
    update: PartitionUpdate,
    rules: Rules,
) -> None:
    is_moved = target.replicas != old.replicas or bool(update.directories)
    if is_moved and rules.level.is_directory_assignment_supported():
        directories = [_directory(r, old, update, rules) for r in target.replicas]
        if directories != list(old.directories):
            record.directories = directories
    if target.replicas != old.replicas:
        record.replicas = list(target.replicas)
    if target.removing != old.removing_replicas:
        record.removing_replicas = list(target.removing)
    if target.adding != old.adding_replicas:
        record.adding_replicas = list(target.adding)


def _directory(
    replica: int, old: PartitionRegistration, update: PartitionUpdate, rules: Rules
) -> Uuid:
    if replica in update.directories:
        return update.directories[replica]
    known = old.directory(replica)
    return rules.default_directory(replica) if known is None else known


def _is_nothing(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == NO_LEADER_CHANGE
        and record.leader_recovery_state == NO_RECOVERY_CHANGE
        and record.isr is None
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.directories is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
    )


def _or(new: Replicas | None, old: Replicas) -> Replicas:
    return old if new is None else new


def _without(replicas: Replicas, others: Replicas) -> Replicas:
    return tuple(replica for replica in replicas if replica not in others)
