"""Compare the start of a node and its memory at rest with Apache Kafka."""

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.broker.brokers import kafka, ottla, stopped_after
from benchmarks.report import Figures, Row, Target, megabytes

AREA = "start"
ROUNDS = 5
RATIO_MAX, SECONDS_MAX = 0.1, 0.250
RSS_MAX = 60e6


def run() -> Iterator[Row]:
    """Yield the rows. Raises Missing."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as temporary:
        folder = Path(temporary)
        brokers = (ottla(folder / "ottla"), kafka(folder / "kafka"))
        times, memory = Figures(), Figures()
        with stopped_after(*brokers):
            for broker in brokers:
                broker.format()
                broker.start()  # not counted: the files of the programs are read from disk
                broker.stop()
            for turn in range(ROUNDS):
                for broker in brokers if turn % 2 == 0 else brokers[::-1]:
                    times.add(broker.name, broker.start())
                    memory.add(broker.name, float(broker.rss_bytes()))
                    broker.stop()
    ours, rss = statistics.median(times.ours), statistics.median(memory.ours)
    started = Target(
        f"at most {RATIO_MAX} and under {SECONDS_MAX * 1000:.0f} ms",
        lambda ratio: ratio <= RATIO_MAX and ours < SECONDS_MAX,
    )
    small = Target(f"under {megabytes(RSS_MAX)}", lambda _: rss < RSS_MAX)
    yield times.row(AREA, "start to first reply", lambda value: f"{value * 1000:,.0f} ms", started)
    yield memory.row(AREA, "RSS after start", megabytes, small)
