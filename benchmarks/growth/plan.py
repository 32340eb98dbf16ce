"""What to measure, in which order, and how long it may take.

Every round goes through all dimensions before the next round begins, so a run that ends early has
fewer rounds of everything. A series is the sizes of one dimension on one broker, which grows.
"""

import resource
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.growth.saved import Saved, rounds

BROKERS = ("Ottla", "Kafka")
SIZES = {
    "partitions": (10, 100, 1_000, 10_000, 20_000),
    "connections": (10, 100, 1_000, 5_000, 10_000),
    "groups": (1, 10, 100, 1_000, 5_000),
    "members": (2, 20, 200, 1_000, 2_000),
    "topics": (1, 10, 100, 1_000, 5_000, 20_000),
    "fail_over": (10, 100, 1_000),
    "segments": (10, 100, 1_000),
}
QUICK_SIZES = {
    "partitions": (10, 1_000),
    "connections": (10, 100),
    "groups": (10, 300),
    "members": (2, 50),
    "topics": (10, 1_000),
    "fail_over": (10,),
    "segments": (10, 100),
}
# Apache Kafka takes so long for these sizes and larger ones that they are measured in one round.
ONE_ROUND_OF_KAFKA_FROM = {
    "partitions": 10_000,
    "groups": 1_000,
    "topics": 5_000,
    "fail_over": 10,
    "segments": 1_000,
}
# Dimensions in which Apache Kafka keeps a file open for each unit, besides some hundred others.
FILE_FOR_EACH = ("partitions", "topics")
OTHER_FILES = 1_000
SECONDS_UNKNOWN = {"Ottla": 8.0, "Kafka": 15.0}
# To stop a broker after its last size and remove its files.
SECONDS_OF_STOP = {"Ottla": 2.0, "Kafka": 3.0}


@dataclass(frozen=True, slots=True)
class Series:
    """Sizes that one broker of one dimension is measured at, ascending."""

    round: int
    dimension: str
    broker: str
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        sizes = ", ".join(f"{size:,}" for size in self.sizes)
        return f"round {self.round}, {self.dimension}, {self.broker}: {sizes}"


def open_files_max() -> int:
    """Return the number of files that a process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def rounds_wanted(dimension: str, broker: str, size: int, count: int, files_max: int) -> int:
    """Return in how many of ``count`` rounds a size is measured; 0 if the broker cannot hold it."""
    if broker != "Kafka":
        return count
    if dimension in FILE_FOR_EACH and size + OTHER_FILES > files_max:
        return 0
    first = ONE_ROUND_OF_KAFKA_FROM.get(dimension)
    return min(count, 1) if first is not None and size >= first else count


def missing(
    saved: Saved,
    sizes: dict[str, tuple[int, ...]],
    count: int,
    files_max: int,
    brokers: Sequence[str] = BROKERS,
) -> Iterator[Series]:
    """Yield the series that are not saved yet, each as of the moment it is asked for."""
    for number in range(1, count + 1):
        for dimension, every in sizes.items():
            for broker in brokers:
                wanted = tuple(
                    size
                    for size in sorted(every)
                    if len(rounds(saved, dimension, broker, size)) < number
                    and rounds_wanted(dimension, broker, size, count, files_max) >= number
                )
                if wanted:
                    yield Series(number, dimension, broker, wanted)


def seconds_expected(sources: Sequence[Saved], series: Iterable[Series]) -> float:
    """Estimate how long series take, from the first source that has the seconds of a size."""
    return sum(
        SECONDS_OF_STOP[each.broker]
        + sum(_seconds_of(sources, each.dimension, each.broker, size) for size in each.sizes)
        for each in series
    )


def _seconds_of(sources: Sequence[Saved], dimension: str, broker: str, size: int) -> float:
    for source in sources:
        measured = rounds(source, dimension, broker, size)
        taken = [each.seconds for each in measured if each.seconds is not None]
        if taken:
            return median(taken)
    return SECONDS_UNKNOWN[broker]
