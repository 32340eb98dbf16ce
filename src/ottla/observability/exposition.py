"""Metrics in the text format of Prometheus, version 0.0.4.

    # HELP name what it is
    # TYPE name counter
    name{label="value",other="value"} 12

Pure. Every component with metrics is a `Source`, which is called when metrics are scraped, so that
a counter on a hot path is a plain integer of its owner. A source that walks over thousands of
things yields None every `WALKED_PER_STEP` of them, and the samples of a large family may be an
iterator over values taken by then: collecting and rendering happen in pieces, with other work of
the node in between.
"""

import enum
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final

import msgspec

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Kind(enum.Enum):
    """The type of a metric family."""

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"
    UNTYPED = "untyped"


Labels = tuple[tuple[str, str], ...]


PIECE_LINES: Final = 500
"""The lines of one piece of a page: well below a millisecond of work."""


PARTITION_LABELS_MAX: Final = 1 << 16
"""The label texts of partitions that are kept, about 10 MB."""


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One number. ``suffix`` is ``_count`` or ``_sum`` of a summary, else empty.

    ``labels`` are pairs, or the text of `label_text`, which families of the same labels share.
    """

    labels: Labels | str
    value: float
    suffix: str = ""


class Column(msgspec.Struct, frozen=True):
    """Samples of a large family as pairs of a label text and a number; can be read once.

    A page of 200,000 lines is rendered from such pairs several times as fast as from samples.
    """

    pairs: Iterable[tuple[str, float]]

    def __iter__(self) -> Iterator[Sample]:
        return (Sample(labels, value) for labels, value in self.pairs)


class Family(msgspec.Struct, frozen=True):
    """All samples of one name. An iterator of samples can be rendered once."""

    name: str
    kind: Kind
    help: str
    samples: Iterable[Sample]


Source = Callable[[], Iterable[Family | None]]
"""Yields families, and None where other work may go on."""

WALKED_PER_STEP: Final = 256
"""What a source looks at between two yields: about a millisecond of work."""


def gauge(name: str, help_text: str, value: float, labels: Labels = ()) -> Family:
    """Return a gauge of one sample."""
    return Family(name, Kind.GAUGE, help_text, (Sample(labels, value),))


def counter(name: str, help_text: str, value: float, labels: Labels = ()) -> Family:
    """Return a counter of one sample."""
    return Family(name, Kind.COUNTER, help_text, (Sample(labels, value),))


class Registry(msgspec.Struct, frozen=True):
    """The sources of one node. Each node of a process has its own."""

    sources: Sequence[Source]

    def render(self) -> bytes:
        """Call every source and return the whole page."""
        return b"".join(self.pieces())

    def collect(self) -> Generator[None, None, list[Family]]:
        """Call every source, in steps; return all families, sorted by name."""
        found: dict[str, Family] = {}
        for source in self.sources:
            for family in source():
                if family is not None:
                    assert family.name not in found, f"{family.name} comes from two sources"
                    found[family.name] = family
                yield
        return [found[name] for name in sorted(found)]

    def pieces(self) -> Iterator[bytes]:
        """Call every source, then yield the page in pieces of about `PIECE_LINES` lines.

        Pieces are empty while sources are called.
        """
        families: list[Family] = []

        def collect() -> Iterator[None]:
            families.extend((yield from self.collect()))

        for _ in collect():
            yield b""
        lines: list[str] = []
        for family in families:
            for some in _lines(family):
                lines += some
                if len(lines) >= PIECE_LINES:
                    yield "".join(lines).encode()
                    lines.clear()
        yield "".join(lines).encode()


def label_text(labels: Labels) -> str:
    """Return labels as they stand between braces."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)


@lru_cache(PARTITION_LABELS_MAX)
def partition_labels(topic: str, partition: int) -> str:
    """Return the text of the labels ``topic`` and ``partition``, which dozens of families share."""
    return label_text((("topic", topic), ("partition", str(partition))))


def _lines(family: Family) -> Iterator[list[str]]:
    """Yield the lines of a family, at most `PIECE_LINES` at a time; none without samples."""
    name, samples = family.name, family.samples
    lines = (
        _column_lines(name, samples)
        if isinstance(samples, Column)
        else (_sample_lines(name, samples))
    )
    first = next(lines, [])
    if first:
        help_text = _escaped(family.help, quotes=False)
        yield [f"# HELP {name} {help_text}\n", f"# TYPE {name} {family.kind.value}\n", *first]
    yield from lines


def _column_lines(name: str, column: Column) -> Iterator[list[str]]:
    pairs = iter(column.pairs)
    while some := list(islice(pairs, PIECE_LINES)):
        yield [
            f"{name}{{{text}}} {value if type(value) is int else _number(value)}\n"
            for text, value in some
        ]


def _sample_lines(name: str, samples: Iterable[Sample]) -> Iterator[list[str]]:
    rest = iter(samples)
    while some := [_line(name, sample) for sample in islice(rest, PIECE_LINES)]:
        yield some


def _line(name: str, sample: Sample) -> str:
    labels, value = sample.labels, sample.value
    text = labels if isinstance(labels, str) else label_text(labels)
    number = value if type(value) is int else _number(value)
    braces = f"{{{text}}}" if text else ""
    return f"{name}{sample.suffix}{braces} {number}\n"


def _escaped(text: str, *, quotes: bool = True) -> str:
    """Escape text for one line: names of topics and clients are untrusted."""
    if text.isprintable() and "\\" not in text and '"' not in text:
        return text
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    text = text.replace('"', '\\"') if quotes else text
    return "".join(char if char.isprintable() else "?" for char in text)


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
