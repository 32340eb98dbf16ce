"""The shape of every decision: state and request in, records and a reply out.

    decide_x(image, request, ...) -> Decision(records, reply)

No decision reads a clock, draws by itself or keeps state: what it needs comes as a parameter.
It is made against the newest state, which contains records that are not committed yet; its
reply may leave only when its own records are.

The records of one decision are appended as one batch and hold or fall together. An operation
that a user asked for and that would need more than `RECORDS_MAX` of them is refused, with
POLICY_VIOLATION, as Kafka does; creation is bounded by partitions instead. The controller's own
work, such as fencing a broker with many partitions, may need more than fits one batch: `parts`
cuts it, and each part by itself leaves a valid state.
"""

from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from ottla.controller.partition_index import PartitionIndex, follow, index_of
from ottla.metadata.delta import Delta
from ottla.metadata.image import EMPTY, Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.schema import Message

# As many as Kafka lets one operation of a user write.
RECORDS_MAX = 10_000
# As many as go into one batch: 10,000 partitions and the topics and configurations they belong
# to fit, in some three megabytes.
BATCH_RECORDS_MAX = 20_000

Reply = TypeVar("Reply", bound=Message | None, covariant=True)


class Decision(msgspec.Struct, Generic[Reply], frozen=True):
    """What to write, in this order, and what to answer when it is committed.

    ``reply`` is None where nobody asked: the controller's own periodic work.
    """

    records: list[Versioned]
    reply: Reply


class Refusal(NamedTuple):
    """Why something asked for is not done: Kafka's code, and a sentence for the one who asked."""

    code: ErrorCode
    message: str


class ControllerState(msgspec.Struct, frozen=True):
    """The newest image, with records that are not committed, and the index that belongs to it."""

    image: Image = EMPTY
    index: PartitionIndex = msgspec.field(default_factory=PartitionIndex)

    @classmethod
    def of(cls, image: Image) -> "ControllerState":
        """Return the state of an image, at the cost of a look at all of its partitions."""
        return cls(image, index_of(image))

    def after(self, delta: Delta) -> "ControllerState":
        """Return the state after a change of its image, at the cost of the change."""
        assert delta.old is self.image, "a change of another image"
        return ControllerState(delta.new, follow(self.index, delta))


def parts(records: Sequence[Versioned]) -> Iterator[Sequence[Versioned]]:
    """Yield records in order, in as few batches as `BATCH_RECORDS_MAX` allows."""
    for start in range(0, len(records), BATCH_RECORDS_MAX):
        yield records[start : start + BATCH_RECORDS_MAX]
