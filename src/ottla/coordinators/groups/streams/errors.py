"""Why a streams group refuses a request, where consumer groups have no such reason."""

from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault


class InvalidTopology(Fault):
    """A topology that cannot be run, whatever topics there are."""

    code = ErrorCode.STREAMS_INVALID_TOPOLOGY
