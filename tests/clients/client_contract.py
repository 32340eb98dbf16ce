"""What the scenarios ask of a client, whatever it is written in."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# What a client may be able to do. A scenario names what it needs.
ADMIN = "admin"
CONFIGS = "configs"
DELETE_RECORDS = "delete records"
HEADERS = "headers"
NULL_HEADERS = "null headers"
BINARY_HEADERS = "binary headers"
IDEMPOTENCE = "idempotence"
OFFSETS = "offsets"
TIMES = "times"
TOMBSTONES = "tombstones"
LARGE = "large"
GROUPS = "groups"
PARTITIONS = "partitions"
TRANSACTIONS = "transactions"
CONSUMER_GROUPS = "consumer groups"
EVERYTHING = frozenset(
    {ADMIN, CONFIGS, DELETE_RECORDS, HEADERS, NULL_HEADERS, IDEMPOTENCE, OFFSETS, TIMES}
    | {TOMBSTONES, LARGE, GROUPS, PARTITIONS, BINARY_HEADERS}
)


class Refused(Exception):
    """The broker said no. ``code`` is Kafka's error code."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(f"{code} {text}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Record:
    """A record as sent or as received. ``timestamp`` in milliseconds."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int = 0
    offset: int = -1

    @property
    def content(self) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
        return self.key, self.value, self.headers


@dataclass(frozen=True, slots=True)
class Sending:
    """How to send. ``acks`` is 0, 1 or -1."""

    codec: str = "none"
    acks: int = -1
    idempotent: bool = False


PLAIN = Sending()


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin: an offset, the first offset at or after a time, else the beginning."""

    offset: int | None = None
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic to be made."""

    name: str
    partitions: int = 1
    config: dict[str, str] = field(default_factory=dict)


class Client(Protocol):
    """One client library or tool, at one address. Everything blocks."""

    name: str
    can: frozenset[str]
    codecs: tuple[str, ...]

    def create_topic(self, topic: Topic) -> None: ...

    def delete_topic(self, name: str) -> None: ...

    def topics(self) -> set[str]: ...

    def produce(
        self, topic: str, records: Sequence[Record], how: Sending = PLAIN
    ) -> list[tuple[int, int]]:
        """Return partition and offset of each; offsets are -1 for acks=0. Raises Refused."""
        ...

    def consume(self, topic: str, partition: int, start: Start, count: int) -> list[Record]: ...

    def consume_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        """Join a group, read, commit what was read, leave."""
        ...

    def consume_in_consumer_group(self, topic: str, group: str, count: int) -> list[Record]:
        """The same by the protocol of KIP-848. Only asked of who can do `CONSUMER_GROUPS`."""
        ...

    def transact(
        self, topic: str, transactional_id: str, records: Sequence[Record], *, commit: bool
    ) -> None:
        """Send records in one transaction. Only asked of who can do `TRANSACTIONS`."""
        ...

    def consume_committed(self, topic: str, partition: int, count: int) -> list[Record]:
        """Read from the beginning what is committed. Only asked of who can do `TRANSACTIONS`."""
        ...

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the earliest and the latest offset."""
        ...

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        """Return the first offset at or after a time, -1 where there is none."""
        ...

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Return the new earliest offset."""
        ...

    def config(self, topic: str) -> dict[str, str]: ...

    def set_config(self, topic: str, key: str, value: str) -> None: ...

    def close(self) -> None: ...
