"""Which partition: a topic's name and an index."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """Sorts by name, then by number."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"
