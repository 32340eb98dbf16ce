"""docs/growth.md and its pictures, from the figures measured so far."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from textwrap import fill

from benchmarks.broker.brokers import ROOT
from benchmarks.growth.drawing import draw, short
from benchmarks.growth.plan import BROKERS
from benchmarks.growth.saved import Saved, Value, recorded, rounds, values

PAGE = ROOT / "docs" / "growth.md"
PICTURES = ROOT / "docs" / "growth"
NOTES = PICTURES / "notes.md"
# From this exponent on, a figure grows faster than its input: time ~ size ** exponent.
EXPONENT_MAX = 1.1
# A machine is quiet if other processes use at most so much of one core.
QUIET_PERCENT_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a dimension: the key under which it is saved, and its title."""

    key: str
    title: str
    is_cost: bool = True


@dataclass(frozen=True, slots=True)
class Section:
    """The figures of one dimension."""

    dimension: str
    title: str
    x_label: str
    text: str
    figures: tuple[Figure, ...]


LOAD = (
    Figure("rate", "small Produce requests per second", is_cost=False),
    Figure("p99_ms", "p99 of a small Produce, ms"),
    Figure("cpu_us", "CPU of a small Produce, us"),
)
SECTIONS = (
    Section(
        "partitions",
        "Partitions on one node",
        "partitions",
        "Topics of up to 5,000 partitions are created, and the times of all steps up to a size are "
        "added; a partition counts as led when ListOffsets "
        "answers for it. Then 4 connections write to one other partition; the node rests for 6 s, "
        "of which the last 5 are counted, with a write of the checkpoints; and it is stopped and "
        "started again.",
        (
            Figure("create_reply_s", "CreateTopics answered after, s"),
            Figure("create_led_s", "created until all are led, s"),
            Figure("restart_s", "restart until all are led, s"),
            Figure("stop_s", "clean stop, s"),
            Figure("idle_percent", "CPU of the idle node, % of a core"),
            Figure("rss_mb", "RSS, MB"),
            *LOAD,
        ),
    ),
    Section(
        "connections",
        "Connections",
        "connections",
        "Opened 32 at a time, so that the listen backlog (50 by default, in both) does not "
        "overflow. Then one small Produce request is in flight on each connection: the rate being "
        "the same, a request waits in proportion to their number.",
        (*LOAD, Figure("rss_mb", "RSS, MB")),
    ),
    Section(
        "groups",
        "Groups",
        "groups",
        "Each group commits one offset, one after the other over one connection; then the node is "
        "started again, until all groups are listed. On another node with as many groups, 4 "
        "connections commit for one of them.",
        (
            Figure("commit_rate", "commits of new groups per second", is_cost=False),
            Figure("rate", "commits per second over 4 connections", is_cost=False),
            Figure("p99_ms", "p99 of a commit, ms"),
            Figure("list_ms", "ListGroups, ms"),
            Figure("restart_s", "restart until all groups are loaded, s"),
            Figure("rss_mb", "RSS, MB"),
        ),
    ),
    Section(
        "members",
        "Members of one group",
        "members",
        "A classic group, from the first JoinGroup until every member is synced. "
        "`group.initial.rebalance.delay.ms` is 0.5 s instead of 3 s in both, and is waited for at "
        "least twice.",
        (
            Figure("stable_s", "until the group is stable, s"),
            Figure("stable_cpu_s", "CPU until the group is stable, s"),
            Figure("rss_mb", "RSS, MB"),
        ),
    ),
    Section(
        "topics",
        "Topics in one Metadata",
        "topics",
        "Topics of one partition, created 500 per request, the next request after the reply to the "
        "previous one; the times of all steps up to a size are added. Then Metadata for all "
        "topics, one request after the other.",
        (
            Figure("create_reply_s", "CreateTopics answered after, s"),
            Figure("create_led_s", "created until all are led, s"),
            Figure("metadata_ms", "Metadata of all topics, p50, ms"),
            Figure("metadata_p99_ms", "Metadata of all topics, p99, ms"),
            Figure("metadata_cpu_ms", "CPU of a Metadata, ms"),
            Figure("rss_mb", "RSS, MB"),
        ),
    ),
    Section(
        "segments",
        "Segments and retained bytes of one partition",
        "segments of 1 MiB",
        "rdkafka writes records of 1 KiB with acks=1, then reads all of them; then the node is "
        "started again.",
        (
            Figure("write_mb_s", "write, MB/s", is_cost=False),
            Figure("read_mb_s", "read, MB/s", is_cost=False),
            Figure("cpu_s_gb", "CPU per GB written or read, s"),
            Figure("restart_s", "restart until led, s"),
            Figure("rss_mb", "RSS, MB"),
        ),
    ),
    Section(
        "fail_over",
        "Fail-over by partitions",
        "partitions",
        "Three nodes, three replicas of each partition. A broker that is not the active "
        "controller is killed; it led a third of a new topic. The time until the others lead and "
        "serve all.",
        (Figure("fail_over_s", "kill until all are led, s"),),
    ),
)

INTRODUCTION = """# Growth

How Ottla and Apache Kafka 4.2.1 change as one number grows and everything else stays the same. Each
series of points is one new node of each, which grows from size to size, pinned to one core, the
client on the other. A load begins when the rate has stopped rising, or after 2 s: Kafka's compiler
may not be done by then. Both axes are logarithmic. A flat line costs nothing; a line that doubles
with its input is as good as it can be; a line that grows faster is listed below.

Written by `make bench growth` from [figures.json](growth/figures.json), which has every round;
`QUICK=1` measures fewer sizes in one round. A run that is interrupted is resumed: what is in the
file is not measured again, unless `ANEW=1` says so. The files of all nodes are removed at the end:
ext4 does not use an inode again for minutes, and searching for others makes creating files slow.

"""


def exponent(points: list[tuple[int, float]]) -> float | None:
    """Return the growth between the last two sizes: 1 is linear; None if there are not two."""
    if len(points) < 2:
        return None
    (a, first), (b, last) = points[-2:]
    return math.log(last / first) / math.log(b / a) if min(first, last) > 0 and b > a else None


def cell(value: Value | None) -> str:
    """Return the median of the rounds and their spread, or the limit that was exceeded."""
    if value is None:
        return ""
    if value.is_limit:
        return f"> {short(value.median)}"
    least, most = short(value.least), short(value.most)
    return short(value.median) + (f" ({least} to {most})" if least != most else "")


def _table(saved: Saved, section: Section) -> Iterator[str]:
    sizes = _sizes(saved, section)
    yield "| | " + " | ".join(f"{size:,}" for size in sizes) + " |"
    yield "|---|" + "---:|" * len(sizes)
    for figure in section.figures:
        for broker in BROKERS:
            found = values(saved, section.dimension, broker, figure.key)
            if found:
                cells = [cell(found.get(size)) for size in sizes]
                yield f"| {figure.title}, {broker} | " + " | ".join(cells) + " |"
    for broker in BROKERS:
        counts = [len(rounds(saved, section.dimension, broker, size)) for size in sizes]
        yield f"| rounds, {broker} | " + " | ".join(map(str, counts)) + " |"


def _sizes(saved: Saved, section: Section) -> list[int]:
    return sorted({size for each in saved[section.dimension].values() for size in each})


def steep(saved: Saved) -> list[str]:
    """Return a line for every cost of ours that grows faster than its input."""
    found = []
    for section in SECTIONS:
        for figure in section.figures:
            every = values(saved, section.dimension, "Ottla", figure.key)
            points = [(size, value.median) for size, value in every.items()]
            grown = exponent(points)
            if figure.is_cost and grown is not None and grown > EXPONENT_MAX:
                (a, first), (b, last) = points[-2:]
                found.append(
                    f"- {section.title}: {figure.title}: {short(first)} at {a:,}, "
                    f"{short(last)} at {b:,} (exponent {grown:.2f})"
                )
    return found


def conditions(saved: Saved) -> str:
    """Return in how many rounds the points were measured, and what else the machine did."""
    parts = []
    for broker in BROKERS:
        counts = [
            len(measured)
            for brokers in saved.values()
            for measured in brokers.get(broker, {}).values()
        ]
        if counts:
            parts.append(f"{broker}: {_rounds_text(counts)}.")
    for text, found in (
        (
            "The load average of the minute before a point, which counts the previous point",
            [each for b in BROKERS for each in recorded(saved, b, lambda r: r.load_average)],
        ),
        (
            "The CPU time of all other processes during a point, in percent of one core",
            [each for b in BROKERS for each in recorded(saved, b, lambda r: r.others_percent)],
        ),
    ):
        if found:
            parts.append(f"{text}: median {short(median(found))}, at most {short(max(found))}.")
    every = [m for brokers in saved.values() for sizes in brokers.values() for m in sizes.values()]
    unknown = sum(each.load_average is None for measured in every for each in measured)
    if unknown:
        parts.append(
            f"For {unknown} of {sum(map(len, every))} measurements it was not recorded what else "
            "the machine did."
        )
    others = [each for b in BROKERS for each in recorded(saved, b, lambda r: r.others_percent)]
    if others and median(others) > QUIET_PERCENT_MAX:
        parts.append(
            "The machine was not quiet: times, rates, and what grows faster than its input may be "
            "those of the other processes."
        )
    return "A point is the median of its rounds, with the least and the most. " + " ".join(parts)


def _rounds_text(counts: list[int]) -> str:
    """Say how many points have how many rounds, most rounds first."""
    kinds = sorted(set(counts), reverse=True)
    texts = [
        f"{_counted(counts.count(kind), 'point')} in {_counted(kind, 'round')}" for kind in kinds
    ]
    return ", ".join(texts)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def write(saved: Saved, machine: str, page: Path = PAGE) -> None:
    """Write the page and its pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    parts = [INTRODUCTION, fill(f"{machine}. {conditions(saved)}", 100) + "\n"]
    if NOTES.exists():
        notes = NOTES.read_text().strip().replace("](../", "](")  # links as seen from the page
        parts.append(f"\n{notes}\n")
    grown = steep(saved) or ["Nothing, in the sizes measured."]
    parts.append("\n## What grows faster than its input\n\n" + "\n".join(grown) + "\n")
    for section in SECTIONS:
        if saved.get(section.dimension):
            parts.append(f"\n## {section.title}\n\n{section.text}\n\n")
            parts += _pictures(saved, section)
            parts.append("\n" + "\n".join(_table(saved, section)) + "\n")
    page.write_text("".join(parts))


def _pictures(saved: Saved, section: Section) -> Iterator[str]:
    for figure in section.figures:
        lines = {
            broker: [
                (float(size), value.least, value.median, value.most)
                for size, value in values(saved, section.dimension, broker, figure.key).items()
            ]
            for broker in BROKERS
        }
        if any(len(points) > 1 for points in lines.values()):
            name = f"{section.dimension}-{figure.key}.svg"
            (PICTURES / name).write_text(draw(figure.title, section.x_label, lines))
            yield f"![{figure.title}](growth/{name})\n"
