"""The form of every decision: state and request in, records and a reply out.

    decide_x(image, request, ...) -> Decision(records, reply)

A decision reads no clock, draws no random numbers and keeps no state: everything it needs is a
parameter. It is made against the newest state, which includes uncommitted records; its reply may be
sent only when its own records are committed.

The records of one decision are appended as one batch and are committed together or not at all. A
user's operation that would need more than `RECORDS_MAX` records is rejected with POLICY_VIOLATION,
as in Kafka; topic creation is bounded by partitions instead. The controller's own work, such as
fencing a broker with many partitions, may need more than fits one batch: `parts` splits it, and
each part on its own leaves a valid state. Such work is also decided in slices (`Decision.then`), as
deciding all of it at once would block the event loop.

A request with thousands of rows is decided in steps (`Steps`), with other work of the node in
between. The state does not change meanwhile: no other decision is made until its records are
appended.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from ottla.controller.partition_index import PartitionIndex, follow, index_of
from ottla.metadata.delta import Delta
from ottla.metadata.image import EMPTY, Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.schema import Message

# The limit that Kafka puts on one operation of a user.
RECORDS_MAX = 10_000
# The most records in one batch: 10,000 partitions with their topics and configurations fit, in
# about three megabytes.
BATCH_RECORDS_MAX = 20_000

# Rows of a request, or records, that are handled before other work of the node goes on: a few
# milliseconds.
ROWS_PER_STEP = 500

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""Work that yields after `ROWS_PER_STEP` rows and returns its result."""

Reply = TypeVar("Reply", bound=Message | None, covariant=True)


class Decision(msgspec.Struct, Generic[Reply], frozen=True):
    """The records to write, in this order, and the reply to send when they are committed.

    ``reply`` is None if there is no request: the controller's own periodic tasks. ``then`` decides
    the next slice by the state after this one. No other decision is made in between.
    """

    records: list[Versioned]
    reply: Reply
    then: "Callable[[Image], Decision[None]] | None" = None


class Refusal(NamedTuple):
    """Why a request is rejected: Kafka's error code, and a message for the client."""

    code: ErrorCode
    message: str


class ControllerState(msgspec.Struct, frozen=True):
    """The newest image, including uncommitted records, and its index."""

    image: Image = EMPTY
    index: PartitionIndex = msgspec.field(default_factory=PartitionIndex)

    @classmethod
    def of(cls, image: Image) -> "ControllerState":
        """Return the state of an image, at the cost of reading all of its partitions."""
        return cls(image, index_of(image))

    def after(self, delta: Delta) -> "ControllerState":
        """Return the state after a change of its image, at the cost of the change."""
        assert delta.old is self.image, "the delta is of another image"
        return ControllerState(delta.new, follow(self.index, delta))


def finish(steps: Steps[T]) -> T:
    """Run ``steps`` to the end in one go and return the result."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result


def parts(records: Sequence[Versioned]) -> Iterator[Sequence[Versioned]]:
    """Yield records in order, in as few batches as `BATCH_RECORDS_MAX` allows."""
    for start in range(0, len(records), BATCH_RECORDS_MAX):
        yield records[start : start + BATCH_RECORDS_MAX]
