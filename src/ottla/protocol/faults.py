"""The only exceptions that may cross a room, and what each means to a client.

A ``Fault`` is an expected failure of the world or of a peer. What the protocol itself refuses
is a value in a pure module, not a fault; a bug of ours is neither and takes the node down.
The message of a fault is for operators and may name what it concerns; a client sees the code.
"""

from typing import ClassVar

from ottla.protocol.errors import ErrorCode


class Fault(Exception):
    """An expected failure that a client is told about. Subclasses set ``code``."""

    code: ClassVar[ErrorCode]


# -- bytes that make no sense ------------------------------------------------


class ProtocolFault(Fault):
    """Bytes that are no message of this protocol; the connection they came by is closed."""

    code = ErrorCode.INVALID_REQUEST


class UnsupportedVersion(ProtocolFault):
    """A known message in a version that is not served."""

    code = ErrorCode.UNSUPPORTED_VERSION


class CorruptBatch(Fault):
    """A record batch whose lengths, counts or CRC contradict each other."""

    code = ErrorCode.CORRUPT_MESSAGE


class UnsupportedMagic(Fault):
    """A record batch in message format 0 or 1, which Kafka 4 no longer takes."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class UnsupportedCompression(Fault):
    """A compression that this topic, version or node does not take."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class InvalidRecord(Fault):
    """A well-formed record that a rule of its topic forbids, as a null key under compaction."""

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
    """A producer that wants other acknowledgements than none, the leader's or everybody's."""

    code = ErrorCode.INVALID_REQUIRED_ACKS


class InvalidTopic(Fault):
    """A topic's name that nobody may use, or an internal topic that the client may not change."""

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
    """A batch that is damaged in this replica, while another one may have it: try again."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class LogDirNotFound(Fault):
    """A path that is none of this broker's ``log.dirs``."""

    code = ErrorCode.LOG_DIR_NOT_FOUND


class ReplicaNotAvailable(Fault):
    """A partition that has no replica on this broker, or none yet."""

    code = ErrorCode.REPLICA_NOT_AVAILABLE


class OffsetOutOfRange(Fault):
    """An offset below the log's start or above what the reader may see."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class OffsetNotAvailable(Fault):
    """The new leader does not know its high watermark yet."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class UnexpectedAppendOffset(Fault):
    """Replicated batches that begin below the end of this log, or go back among themselves."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class InconsistentTopicId(Fault):
    """The log on disk belongs to another topic of the same name."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID


# -- producers and transactions ----------------------------------------------


class OutOfOrderSequence(Fault):
    """A batch whose first sequence does not follow the last one of its producer."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpoch(Fault):
    """A batch of a producer incarnation that a newer one has replaced."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTransactionState(Fault):
    """A step of a transaction that does not follow from the one before."""

    code = ErrorCode.INVALID_TXN_STATE


class TransactionCoordinatorFenced(Fault):
    """A marker sent by a transaction coordinator that has been replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


# -- who leads, who coordinates ----------------------------------------------


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
    """The peer speaks of a leader epoch that is over."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(Fault):
    """The peer speaks of a leader epoch that this node has not heard of yet."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class NotController(Fault):
    """This node is not the active controller."""

    code = ErrorCode.NOT_CONTROLLER


class NotCoordinator(Fault):
    """This node does not coordinate the group or transactional id."""

    code = ErrorCode.NOT_COORDINATOR


class CoordinatorLoading(Fault):
    """This node will coordinate the group or transactional id once its state is read."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailable(Fault):
    """Nobody coordinates at the moment: no topic yet, no leader, or no majority to write to."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class NotEnoughReplicas(Fault):
    """Fewer replicas in sync than ``min.insync.replicas``; nothing was written."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppend(Fault):
    """Written and replicated to who was left, which is fewer than ``min.insync.replicas``."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class PolicyViolated(Fault):
    """What a topic's configuration does not let anybody do, as deleting from a compacted log."""

    code = ErrorCode.POLICY_VIOLATION


class RequestTimedOut(Fault):
    """The condition the request waited for did not come true in time."""

    code = ErrorCode.REQUEST_TIMED_OUT


# -- who may -----------------------------------------------------------------


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
    """The code a client is told for ``error``; what nobody planned is an unknown server error."""
    return error.code if isinstance(error, Fault) else ErrorCode.UNKNOWN_SERVER_ERROR
