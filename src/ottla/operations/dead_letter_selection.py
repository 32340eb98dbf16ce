"""Which dead letters are meant, by reason, group, topic of origin or place. Pure."""

import msgspec

from ottla.operations.dead_letter_headers import DeadLetter


class LetterFilter(msgspec.Struct, frozen=True):
    """The conditions that a letter fulfils; None is no condition.

    ``place`` is the partition and offset of the letter itself.
    """

    reason: str | None = None
    group: str | None = None
    origin: str | None = None
    place: tuple[int, int] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it selects every letter."""
        return self == LetterFilter()

    def selects(self, letter: DeadLetter) -> bool:
        """Say whether a letter is meant."""
        return (
            (self.reason is None or self.reason in letter.reason)
            and (self.group is None or self.group == letter.group)
            and (self.origin is None or self.origin == letter.topic)
            and (self.place is None or self.place == (letter.at.partition, letter.record.offset))
        )


def parse_place(text: str) -> tuple[int, int]:
    """Parse ``PARTITION:OFFSET``. Raises ValueError."""
    partition, _, offset = text.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise ValueError(f"{text}: must be PARTITION:OFFSET")
    return int(partition), int(offset)
