"""The only exceptions that may cross package boundaries, each with its error code.

A ``Fault`` is an expected failure of the environment or of a peer. An error that a pure module
decides is a value, not a fault; a bug is neither and stops the node. The message of a fault is for
operators and may contain names; a client gets the code.
"""

from typing import ClassVar

from ottla.protocol.errors import ErrorCode


class Fault(Exception):
    """An expected failure that is returned to a client. Subclasses set ``code``."""

    code: ClassVar[ErrorCode]


# -- malformed bytes ---------------------------------------------------------


class ProtocolFault(Fault):
    """Bytes that are not a message of this protocol; their connection is closed."""

    code = ErrorCode.INVALID_REQUEST


class UnsupportedVersion(ProtocolFault):
    """A known message in a version that is not served."""

    code = ErrorCode.UNSUPPORTED_VERSION


class CorruptBatch(Fault):
    """A record batch whose lengths, counts or CRC contradict each other."""

    code = ErrorCode.CORRUPT_MESSAGE


class UnsupportedMagic(Fault):
    """A record batch in message format 0 or 1, which Kafka 4 no longer accepts."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class UnsupportedCompression(Fault):
    """A compression that this topic, version or node does not support."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class InvalidRecord(Fault):
    """A well-formed record that its topic rejects, such as a null key in a compacted topic."""

    code = ErrorCode.INVALID_RECORD


class InvalidTimestamp(Fault):
    """A record whose timestamp is further from the broker's clock than its topic allows."""

    code = ErrorCode.INVALID_TIMESTAMP


class RecordTooLarge(Fault):
    """A batch above ``max.message.bytes``."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class BatchTooLargeForSegment(Fault):
    """A batch that no segment of this log could hold."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class InvalidRequiredAcks(Fault):
    """A value of ``acks`` other than 0, 1 and -1 (all)."""

    code = ErrorCode.INVALID_REQUIRED_ACKS


class InvalidTopic(Fault):
    """An invalid topic name, or an internal topic that the client may not change."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


# -- the log -----------------------------------------------------------------


class StorageFailed(Fault):
    """A log directory is offline; raised from ``OSError`` at the disk boundary.

    ``directory`` is its path. Nothing written since the last successful fsync may be
    acknowledged, and the directory stays offline until the node restarts.
    """

    code = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(self, directory: str, reason: str = "offline") -> None:
        super().__init__(f"log directory {directory}: {reason}")
        self.directory = directory
        self.reason = reason


class ReplicaDamaged(Fault):
    """A batch that is damaged in this replica; another replica may have it, so retry."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class LogDirNotFound(Fault):
    """A path that is not one of this broker's ``log.dirs``."""

    code = ErrorCode.LOG_DIR_NOT_FOUND


class InvalidReplicaAssignment(Fault):
    """A replica cannot be where it is assigned to."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class ReplicaNotAvailable(Fault):
    """A partition that has no replica on this broker, or none yet."""

    code = ErrorCode.REPLICA_NOT_AVAILABLE


class OffsetOutOfRange(Fault):
    """An offset below the log start or above the end that the reader may read."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class OffsetMovedToTieredStorage(Fault):
    """An offset that is only in remote storage any more (KIP-405)."""

    code = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE


class OffsetNotAvailable(Fault):
    """The new leader does not know its high watermark yet."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class UnexpectedAppendOffset(Fault):
    """Replicated batches that begin below the end of this log, or are out of order."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class InconsistentTopicId(Fault):
    """The log on disk belongs to another topic of the same name."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID


# -- producers and transactions ----------------------------------------------


class OutOfOrderSequence(Fault):
    """A batch whose first sequence does not follow the last one of its producer."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpoch(Fault):
    """A batch of a producer epoch that a newer one has fenced."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTransactionState(Fault):
    """An invalid transition of a transaction's state."""

    code = ErrorCode.INVALID_TXN_STATE


class TransactionCoordinatorFenced(Fault):
    """A marker sent by a transaction coordinator that has been replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


# -- leaders and coordinators ------------------------------------------------


class NotLeader(Fault):
    """This node does not lead (or, where any replica would do, does not host) the partition."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class UnknownTopicOrPartition(Fault):
    """No such topic or partition in the metadata of this node."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class UnknownTopicId(Fault):
    """No topic with this id in the metadata of this node."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class FencedLeaderEpoch(Fault):
    """The peer has an old leader epoch."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(Fault):
    """The peer has a leader epoch that this node does not know yet."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class NotController(Fault):
    """This node is not the active controller."""

    code = ErrorCode.NOT_CONTROLLER


class NotCoordinator(Fault):
    """This node does not coordinate the group or transactional id."""

    code = ErrorCode.NOT_COORDINATOR


class CoordinatorLoading(Fault):
    """This node will coordinate the group or transactional id once its state is loaded."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailable(Fault):
    """No coordinator is available: no topic yet, no leader, or too few replicas to write."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotEnoughReplicas(Fault):
    """Fewer in-sync replicas than ``min.insync.replicas``; nothing was written."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppend(Fault):
    """Written, but replicated to fewer replicas than ``min.insync.replicas``."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class PolicyViolated(Fault):
    """An operation that the topic's configuration forbids, such as DeleteRecords if compacted."""

    code = ErrorCode.POLICY_VIOLATION


class RequestTimedOut(Fault):
    """The condition that the request waited for was not met in time."""

    code = ErrorCode.REQUEST_TIMED_OUT


# -- access ------------------------------------------------------------------


class NotAuthorized(Fault):
    """The principal may not do this to a group; subclasses name other resources."""

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class TopicNotAuthorized(NotAuthorized):
    """The principal may not do this to a topic."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class ClusterNotAuthorized(NotAuthorized):
    """The principal may not do this to the cluster."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class TransactionalIdNotAuthorized(NotAuthorized):
    """The principal may not use this transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def code_of(error: Exception) -> ErrorCode:
    """Return the error code for ``error``; an unexpected one is UNKNOWN_SERVER_ERROR."""
    return error.code if isinstance(error, Fault) else ErrorCode.UNKNOWN_SERVER_ERROR
