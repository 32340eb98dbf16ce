"""Periodically moves leadership back to the preferred replicas of imbalanced brokers.

Partitions are placed so that first replicas are spread evenly; after failures their leaders are
not. A broker is imbalanced if other brokers lead more than leader.imbalance.per.broker.percentage
of the partitions whose first replica it is (KIP-460, as in Kafka before KRaft; Kafka 4 moves all of
them back, which is what a percentage of 0 does).
"""

from collections import Counter

from ottla.controller.decision import ControllerState, Decision
from ottla.controller.decision_settings import DecisionSettings
from ottla.controller.draft import Draft
from ottla.controller.elect_leaders import ELECTIONS_MAX
from ottla.controller.leader_and_isr import Election, PartitionUpdate
from ottla.metadata.image import Image
from ottla.protocol.types import TopicIdPartition


def decide_rebalance(
    state: ControllerState, imbalance_percent_max: int, settings: DecisionSettings
) -> Decision[None]:
    """Elect preferred leaders for imbalanced brokers, a bounded number at a time."""
    draft = Draft(state.image, settings)
    for at in _imbalanced(state, imbalance_percent_max):
        if len(draft.records) >= ELECTIONS_MAX:
            break
        topic = state.image.topics.by_id[at.topic_id]
        draft.change(topic, at.partition, PartitionUpdate(election=Election.PREFERRED))
    return Decision(draft.records, None)


def _imbalanced(state: ControllerState, percent_max: int) -> list[TopicIdPartition]:
    preferred = {at: _first(state.image, at) for at in sorted(state.index.imbalanced)}
    lost = Counter(preferred.values())
    over = {
        broker_id
        for broker_id in lost
        if 100 * lost[broker_id] > percent_max * _preferred_count(state.image, broker_id)
    }
    return [at for at, broker_id in preferred.items() if broker_id in over]


def _first(image: Image, at: TopicIdPartition) -> int:
    return image.topics.by_id[at.topic_id].partitions[at.partition].preferred_leader()


def _preferred_count(image: Image, broker_id: int) -> int:
    return sum(
        partition.preferred_leader() == broker_id
        for _, partition in image.topics.replicas_on(broker_id)
    )
