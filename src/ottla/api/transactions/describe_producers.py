"""DescribeProducers: the producer state of partitions hosted here (KIP-664).

Any replica answers, not only the leader: to find a hanging transaction, an operator compares the
state of all of them.
"""

import msgspec

from ottla.api.groups.group_access import May, everybody
from ottla.api.surface.replies import ROWS_MAX, ReplyTooLong, Steps, collect
from ottla.api.surface.routes import Caller
from ottla.protocol.faults import Fault, InvalidTopic, TopicNotAuthorized
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.replication.hosted_partitions import Partitions
from ottla.storage.directory.partition_names import is_topic_name
from ottla.storage.log.producer_state import ProducerEntry


class DescribeProducersHandler(msgspec.Struct, frozen=True):
    """Serves DescribeProducers."""

    partitions: Partitions
    may_read: May = everybody

    def describe_steps(
        self, caller: Caller, request: DescribeProducersRequest, version: int
    ) -> Steps[DescribeProducersResponse]:
        """Describe the producers of every listed partition.

        Raises:
            ReplyTooLong: the partitions have too many producers: one may be listed any number
                of times.
        """
        topics: list[TopicResponse] = []
        count = 0
        for topic in request.topics:
            partitions: list[PartitionResponse] = []
            for index in topic.partition_indexes:
                partition = yield from self._partition(caller, topic.name, index)
                partitions.append(partition)
                count += len(partition.active_producers)
                if count > ROWS_MAX:
                    raise ReplyTooLong
            topics.append(TopicResponse(topic.name, partitions))
            yield
        return DescribeProducersResponse(topics=topics)

    def _partition(self, caller: Caller, topic: str, index: int) -> Steps[PartitionResponse]:
        yield
        try:
            if not is_topic_name(topic):
                raise InvalidTopic(f"no topic may be called {topic!r}")
            if not self.may_read(caller, topic):
                raise TopicNotAuthorized(f"{caller.principal} may not read {topic!r}")
            found = self.partitions.find(topic, index)
        except (InvalidTopic, TopicNotAuthorized) as fault:
            return PartitionResponse(index, fault.code, error_message=str(fault))
        except Fault as fault:
            return PartitionResponse(index, fault.code)
        producers = yield from collect(map(_described, found.log.producers.entries()))
        return PartitionResponse(index, active_producers=producers)


def _described(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.txn_first_offset,
    )
