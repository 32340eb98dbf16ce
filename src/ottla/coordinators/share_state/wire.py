"""Requests to the share coordinator about one share partition, as brokers send them."""

from ottla.coordinators.share_state.rules import StateWrite
from ottla.coordinators.share_state.state import ShareKey
from ottla.protocol.messages import delete_share_group_state as delete
from ottla.protocol.messages import initialize_share_group_state as initialize
from ottla.protocol.messages import read_share_group_state as read
from ottla.protocol.messages import read_share_group_state_summary as summary
from ottla.protocol.messages import write_share_group_state as write_messages
from ottla.protocol.types import NO_EPOCH


def initialize_request(
    key: ShareKey, state_epoch: int, start_offset: int
) -> initialize.InitializeShareGroupStateRequest:
    """InitializeShareGroupState."""
    partition = initialize.PartitionData(key.partition, state_epoch, start_offset)
    topic = initialize.InitializeStateData(key.topic_id, [partition])
    return initialize.InitializeShareGroupStateRequest(key.group_id, [topic])


def read_request(key: ShareKey, leader_epoch: int) -> read.ReadShareGroupStateRequest:
    """ReadShareGroupState."""
    partition = read.PartitionData(key.partition, leader_epoch)
    topic = read.ReadStateData(key.topic_id, [partition])
    return read.ReadShareGroupStateRequest(key.group_id, [topic])


def write_request(key: ShareKey, write: StateWrite) -> write_messages.WriteShareGroupStateRequest:
    """WriteShareGroupState."""
    partition = write_messages.PartitionData(
        partition=key.partition,
        state_epoch=write.state_epoch,
        leader_epoch=write.leader_epoch,
        start_offset=write.start_offset,
        delivery_complete_count=write.delivery_complete_count,
        state_batches=[write_messages.StateBatch(*run) for run in write.runs],
    )
    topic = write_messages.WriteStateData(key.topic_id, [partition])
    return write_messages.WriteShareGroupStateRequest(key.group_id, [topic])


def delete_request(key: ShareKey) -> delete.DeleteShareGroupStateRequest:
    """DeleteShareGroupState."""
    topic = delete.DeleteStateData(key.topic_id, [delete.PartitionData(key.partition)])
    return delete.DeleteShareGroupStateRequest(key.group_id, [topic])


def summary_request(key: ShareKey) -> summary.ReadShareGroupStateSummaryRequest:
    """ReadShareGroupStateSummary."""
    partition = summary.PartitionData(key.partition, NO_EPOCH)
    topic = summary.ReadStateSummaryData(key.topic_id, [partition])
    return summary.ReadShareGroupStateSummaryRequest(key.group_id, [topic])
