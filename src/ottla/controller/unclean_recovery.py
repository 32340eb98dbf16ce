"""Chooses the leader if no complete replica is left: the most complete one (KIP-966).

A partition has lost its in-sync and its eligible replicas, and its topic allows unclean election,
or an operator requested it. The live replicas are then asked for the ends of their logs:

    partitions_to_recover(state)   partitions to recover, and the replicas to ask
    most_complete(answers)         the last leader epoch decides, then the end of the log
    decide_recoveries(...)         the records, if nothing changed since the replicas were asked

The epoch comes first: a long log of an old epoch has records that a later leader truncated.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.controller.decision import ControllerState, Decision
from ottla.controller.decision_settings import DecisionSettings
from ottla.controller.draft import Draft
from ottla.controller.leader_and_isr import Election, PartitionUpdate
from ottla.metadata.image import Image
from ottla.protocol.types import NO_EPOCH, NO_LEADER, TopicIdPartition

ASKED_MAX: Final = 100
"""Partitions that a broker is asked about at once: each response contains a batch of each."""


class LeaderlessPartition(NamedTuple):
    """A partition to recover, as it was when it was found without a leader.

    ``candidates`` are the live replicas, each with its broker's registered epoch.
    """

    at: TopicIdPartition
    topic: str
    partition_epoch: int
    candidates: Mapping[int, int]


class LogState(NamedTuple):
    """The end of a replica's log. ``last_epoch`` is that of its last batch, -1 if unknown."""

    last_epoch: int
    end_offset: int


class Recovery(NamedTuple):
    """The chosen leader, and the epochs that must not have changed for it to be valid."""

    partition_epoch: int
    leader: int
    broker_epoch: int


Answers = Mapping[int, Mapping[TopicIdPartition, LogState]]
"""The log ends that each broker reported; brokers that did not answer are left out."""


def partitions_to_recover(
    state: ControllerState, settings: DecisionSettings
) -> list[LeaderlessPartition]:
    """Return the leaderless partitions whose topics allow unclean election."""
    if not state.index.leaderless:
        return []
    draft = Draft(state.image, settings)
    found: list[LeaderlessPartition] = []
    for at in sorted(state.index.leaderless):
        if draft.policies.is_unclean_enabled(state.image.topics.by_id[at.topic_id]):
            leaderless = _leaderless(draft, at)
            if leaderless is not None:
                found.append(leaderless)
    return found


def leaderless_among(
    image: Image, partitions: Iterable[TopicIdPartition], settings: DecisionSettings
) -> list[LeaderlessPartition]:
    """Return the given partitions that have no leader and at least one live replica."""
    draft = Draft(image, settings)
    return [found for at in partitions if (found := _leaderless(draft, at)) is not None]


def _leaderless(draft: Draft, at: TopicIdPartition) -> LeaderlessPartition | None:
    topic = draft.image.topics.by_id.get(at.topic_id)
    partition = None if topic is None else topic.partitions.get(at.partition)
    if topic is None or partition is None or partition.has_leader():
        return None
    brokers = draft.image.cluster.brokers
    live = {r: brokers[r].epoch for r in partition.replicas if draft.may_lead(partition, r)}
    return LeaderlessPartition(at, topic.name, partition.partition_epoch, live) if live else None


def poll_batches(leaderless: Sequence[LeaderlessPartition]) -> list[Sequence[LeaderlessPartition]]:
    """Split the partitions into portions that are polled one after the other."""
    return [leaderless[at : at + ASKED_MAX] for at in range(0, len(leaderless), ASKED_MAX)]


def polls_by_broker(
    leaderless: Iterable[LeaderlessPartition],
) -> dict[int, list[LeaderlessPartition]]:
    """Return the partitions to ask each broker about."""
    found: dict[int, list[LeaderlessPartition]] = {}
    for each in leaderless:
        for broker_id in each.candidates:
            found.setdefault(broker_id, []).append(each)
    return found


def recoveries(
    leaderless: Iterable[LeaderlessPartition], answers: Answers
) -> dict[TopicIdPartition, Recovery]:
    """Choose a leader for each partition of which at least one replica answered."""
    found: dict[TopicIdPartition, Recovery] = {}
    for each in leaderless:
        states = {
            broker_id: answers[broker_id][each.at]
            for broker_id in each.candidates
            if each.at in answers.get(broker_id, {})
        }
        leader = most_complete(tuple(each.candidates), states)
        if leader != NO_LEADER:
            found[each.at] = Recovery(each.partition_epoch, leader, each.candidates[leader])
    return found


def most_complete(replicas: Sequence[int], states: Mapping[int, LogState]) -> int:
    """Return the most complete replica, of equals the first of ``replicas``; -1 if none answered.

    If the last batch of a log was deleted (by retention, for example), its last epoch is unknown.
    Only the ends are then compared: an unknown epoch must not count as an old one.
    """
    answered = [replica for replica in replicas if replica in states]
    if not answered:
        return NO_LEADER
    are_known = all(s.last_epoch != NO_EPOCH or s.end_offset == 0 for s in states.values())

    def completeness(replica: int) -> tuple[int, int]:
        state = states[replica]
        return (state.last_epoch if are_known else NO_EPOCH, state.end_offset)

    return max(answered, key=completeness)


def decide_recoveries(
    image: Image, found: Mapping[TopicIdPartition, Recovery], settings: DecisionSettings
) -> Decision[None]:
    """Elect the chosen leaders that are still needed and still have the same broker epoch."""
    draft = Draft(image, settings)
    for at in sorted(found):
        recover(draft, at, found[at])
    return Decision(draft.records, None)


def recover(draft: Draft, at: TopicIdPartition, recovery: Recovery) -> bool:
    """Elect one leader; return whether it was. Not after any change of the partition."""
    topic = draft.image.topics.by_id.get(at.topic_id)
    partition = None if topic is None else draft.partition(topic, at.partition)
    if topic is None or partition is None or partition.has_leader():
        return False
    if partition.partition_epoch != recovery.partition_epoch:
        return False
    if draft.image.cluster.broker_epoch(recovery.leader) != recovery.broker_epoch:
        return False
    update = PartitionUpdate(election=Election.UNCLEAN, most_complete=recovery.leader)
    return draft.change(topic, at.partition, update) is not None
