"""Why a consumer group refuses a request; each with its code."""

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault


class InvalidHeartbeat(Fault):
    """A request that no client of the protocol sends."""

    code = ErrorCode.INVALID_REQUEST


class GroupIdNotFound(Fault):
    """No such group, or one of another kind that does not give way."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class UnknownMember(Fault):
    """No such member: it must join again."""

    code = ErrorCode.UNKNOWN_MEMBER_ID


class FencedMemberEpoch(Fault):
    """A member at another epoch than the coordinator knows: it must give up all and join again."""

    code = ErrorCode.FENCED_MEMBER_EPOCH


class FencedInstanceId(Fault):
    """Another member has taken over the instance id."""

    code = ErrorCode.FENCED_INSTANCE_ID


class UnreleasedInstanceId(Fault):
    """The instance id still belongs to a member that has not left."""

    code = ErrorCode.UNRELEASED_INSTANCE_ID


class UnsupportedAssignor(Fault):
    """An assignor that is not configured here."""

    code = ErrorCode.UNSUPPORTED_ASSIGNOR


class GroupMaxSizeReached(Fault):
    """The group takes no more members."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class IllegalGeneration(Fault):
    """A classic member of another generation."""

    code = ErrorCode.ILLEGAL_GENERATION


class InconsistentProtocol(Fault):
    """A classic member whose protocols do not suit the others."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class RebalanceInProgress(Fault):
    """A classic member has to join again."""

    code = ErrorCode.REBALANCE_IN_PROGRESS
