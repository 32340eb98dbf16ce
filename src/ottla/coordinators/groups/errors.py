"""Why a group rejects a request; each with its error code."""

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault


class InvalidHeartbeat(Fault):
    """A request that violates the protocol."""

    code = ErrorCode.INVALID_REQUEST


class InvalidGroupId(Fault):
    """A group id that no group can have."""

    code = ErrorCode.INVALID_GROUP_ID


class GroupIdNotFound(Fault):
    """No such group, or one of another kind that cannot be replaced."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class GroupNotEmpty(Fault):
    """The group has members, which would not notice the change."""

    code = ErrorCode.NON_EMPTY_GROUP


class GroupMaxSizeReached(Fault):
    """The group accepts no more members."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class UnknownMember(Fault):
    """No such member: it must join again."""

    code = ErrorCode.UNKNOWN_MEMBER_ID


class FencedMemberEpoch(Fault):
    """The member's epoch differs from the coordinator's: it must abandon all and join again."""

    code = ErrorCode.FENCED_MEMBER_EPOCH


class FencedInstanceId(Fault):
    """Another member has taken over the instance id."""

    code = ErrorCode.FENCED_INSTANCE_ID


class UnreleasedInstanceId(Fault):
    """The instance id still belongs to a member that has not left."""

    code = ErrorCode.UNRELEASED_INSTANCE_ID


class UnsupportedAssignor(Fault):
    """An assignor that is not configured on this broker."""

    code = ErrorCode.UNSUPPORTED_ASSIGNOR


class InvalidTopology(Fault):
    """A streams topology that cannot run, whatever topics exist."""

    code = ErrorCode.STREAMS_INVALID_TOPOLOGY


# -- classic members in consumer groups ----------------------------------------------------


class IllegalGeneration(Fault):
    """A classic member sent another generation than the current one."""

    code = ErrorCode.ILLEGAL_GENERATION


class InconsistentProtocol(Fault):
    """A classic member supports no protocol that all others support."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class RebalanceInProgress(Fault):
    """A classic member has to join again."""

    code = ErrorCode.REBALANCE_IN_PROGRESS
