"""Measure one broker at one size, one function per dimension. Each begins with a new broker."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep

from benchmarks.broker.brokers import Broker, kafka, ottla
from benchmarks.broker.comparison import small_request
from benchmarks.broker.programs import measure
from benchmarks.cluster import Three, running, three_of
from benchmarks.coordinator_load import (
    Line,
    Members,
    asked_again,
    commit_frame,
    frame_of,
    make_topic,
    wait_coordinator,
    wait_groups,
)
from benchmarks.growth.saved import Figures
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import Fault
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.schema import Message

MB = 1e6
WAIT_S_MAX = 300.0
POLL_S = 0.05
CONNECTIONS = 4
LATEST = -1
# Kafka refuses a request that creates more partitions.
PARTITIONS_PER_TOPIC_MAX = 5_000
TOPICS_PER_REQUEST = 500
RECORD_BYTES = 1024
SEGMENT_BYTES = 1 << 20
FAIL_OVER_TOPIC = "kept"
# So many groups are spread over all 50 partitions of __consumer_offsets.
GROUPS_OF_ALL_COORDINATORS = 500


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a load runs, and how long the CPU time of an idle broker is counted."""

    load_s: float
    settle_s: float
    idle_s: float


FULL = Effort(load_s=5.0, settle_s=10.0, idle_s=20.0)
QUICK = Effort(load_s=1.5, settle_s=3.0, idle_s=5.0)


@contextmanager
def started(name: str) -> Iterator[Broker]:
    """Run a new broker that is not fenced any more."""
    with tempfile.TemporaryDirectory(prefix="ottla-growth-") as folder:
        make = ottla if name == "Ottla" else kafka
        broker = make(Path(folder) / name.lower())
        broker.format()
        try:
            broker.start()
            make_topic(broker, "load", 1)
            yield broker
        finally:
            broker.stop()


def _load(broker: Broker, frame: bytes, connections: int, effort: Effort) -> Figures:
    """Send a request over and over; return its rate, p99 and CPU time."""
    path = broker.root / "frame"
    path.write_bytes(frame)
    arguments = ("127.0.0.1", broker.port, path, connections, effort.load_s)
    measure("requests", *arguments[:-1], 0.5)  # warms up
    before = broker.cpu_seconds()
    found = measure("requests", *arguments)
    used = broker.cpu_seconds() - before
    return {
        "rate": found["rate"],
        "p99_ms": found["p99"] * 1e3,
        "cpu_us": used * 1e6 / (found["rate"] * effort.load_s),
    }


def _idle_share(broker: Broker, effort: Effort) -> float:
    """Return the share of a core that the broker uses without requests, in percent."""
    sleep(effort.settle_s)
    before = broker.cpu_seconds()
    sleep(effort.idle_s)
    return max(0.01, (broker.cpu_seconds() - before) / effort.idle_s * 100)


def _restart(broker: Broker, is_whole: Callable[[Line], bool]) -> Figures:
    """Stop and start a broker; return the seconds of the stop, and of the start until whole."""
    began = perf_counter()
    broker.stop()
    stopped = perf_counter() - began
    began = perf_counter()
    broker.begin()
    _until(broker, is_whole)
    return {"stop_s": stopped, "restart_s": perf_counter() - began}


def _until(broker: Broker, is_whole: Callable[[Line], bool]) -> None:
    """Wait until a condition holds; a broker that does not answer yet is asked again."""
    deadline = perf_counter() + WAIT_S_MAX
    line: Line | None = None
    while True:
        try:
            line = line or Line(broker)
            if is_whole(line):
                line.close()
                return
        except (OSError, Fault):
            line = None
        assert perf_counter() < deadline, "the broker did not get ready"
        sleep(POLL_S)


# -- partitions --------------------------------------------------------------------------


def _topics_of(partitions: int) -> dict[str, int]:
    sizes = [PARTITIONS_PER_TOPIC_MAX] * (partitions // PARTITIONS_PER_TOPIC_MAX)
    rest = partitions % PARTITIONS_PER_TOPIC_MAX
    return {f"t{at}": size for at, size in enumerate([*sizes, rest] if rest else sizes)}


def _are_led(topics: dict[str, int], line: Line) -> bool:
    """Whether every partition answers a request that only its leader answers."""
    asked = [
        ListOffsetsTopic(
            topic, [ListOffsetsPartition(index, timestamp=LATEST) for index in range(count)]
        )
        for topic, count in topics.items()
    ]
    reply = line.ask(ListOffsetsRequest(-1, 0, asked), ListOffsetsResponse)
    return not any(each.error_code for topic in reply.topics for each in topic.partitions)


def _create(line: Line, topics: Sequence[CreatableTopic]) -> None:
    reply = line.ask(CreateTopicsRequest(list(topics), 120_000), CreateTopicsResponse)
    faults = [each for each in reply.topics if each.error_code != ErrorCode.NONE]
    assert not faults, faults[0]


def partitions(name: str, size: int, effort: Effort) -> Figures:
    """Create partitions on one node; write to one of them; let the node rest; restart it."""
    topics = _topics_of(size)
    with started(name) as broker:
        line = Line(broker)
        line.socket.settimeout(WAIT_S_MAX)
        began = perf_counter()
        for topic, count in topics.items():
            _create(line, [CreatableTopic(topic, count, 1)])
        replied = perf_counter() - began
        _until(broker, lambda each: _are_led(topics, each))
        led = perf_counter() - began
        figures = _load(broker, small_request("load"), CONNECTIONS, effort)
        figures |= {"create_reply_s": replied, "create_led_s": led}
        figures["idle_percent"] = _idle_share(broker, effort)
        figures["rss_mb"] = broker.rss_bytes() / MB
        return figures | _restart(broker, lambda each: _are_led(topics, each))


# -- connections and requests ------------------------------------------------------------


def connections(name: str, size: int, effort: Effort) -> Figures:
    """Write over so many connections at once, one small request in flight on each."""
    with started(name) as broker:
        figures = _load(broker, small_request("load"), size, effort)
        return figures | {"rss_mb": broker.rss_bytes() / MB}


def topics(name: str, size: int, effort: Effort) -> Figures:
    """Create topics of one partition; ask for the metadata of all of them."""
    with started(name) as broker:
        line = Line(broker)
        line.socket.settimeout(WAIT_S_MAX)
        began = perf_counter()
        for first in range(0, size, TOPICS_PER_REQUEST):
            last = min(size, first + TOPICS_PER_REQUEST)
            _create(line, [CreatableTopic(f"t{at}", 1, 1) for at in range(first, last)])
        created = perf_counter() - began
        # Both answer before all logs are created, which would be measured otherwise.
        _until(broker, lambda each: _are_led({f"t{at}": 1 for at in range(size)}, each))
        sleep(effort.settle_s)
        taken: list[float] = []
        before = broker.cpu_seconds()
        end = perf_counter() + effort.load_s
        while perf_counter() < end or len(taken) < 5:
            began = perf_counter()
            frame = _raw(line, MetadataRequest(topics=None))
            taken.append(perf_counter() - began)
        used = broker.cpu_seconds() - before
        taken.sort()
        return {
            "create_s": created,
            "metadata_ms": taken[len(taken) // 2] * 1e3,
            "metadata_p99_ms": taken[len(taken) * 99 // 100] * 1e3,
            "metadata_cpu_ms": max(0.01, used / len(taken) * 1e3),
            "reply_bytes": float(len(frame)),
            "rss_mb": broker.rss_bytes() / MB,
        }


def _raw(line: Line, request: Message) -> bytes:
    """Return a reply without decoding it, which takes longer than the broker needs."""
    assert MetadataResponse.SCHEMA.versions is not None
    line.socket.sendall(frame_of(request))
    return line.receive()


# -- groups ------------------------------------------------------------------------------


def groups(name: str, size: int, effort: Effort) -> Figures:
    """Commit an offset of each of so many groups; list them; restart until all are loaded."""
    with started(name) as broker:
        wait_coordinator(broker, "g0", 0)
        line = Line(broker)
        line.socket.settimeout(WAIT_S_MAX)
        wait_groups(line, [f"g{at}" for at in range(GROUPS_OF_ALL_COORDINATORS)])
        before, began = broker.cpu_seconds(), perf_counter()
        for at in range(size):
            line.socket.sendall(commit_frame(f"g{at}", "load", 1))
            line.receive()
        taken = perf_counter() - began
        figures = {
            "commit_rate": size / taken,
            "commit_cpu_us": max(1.0, (broker.cpu_seconds() - before) * 1e6 / size),
        }
        began = perf_counter()
        asked_again(line, ListGroupsRequest(), ListGroupsResponse)
        figures["list_ms"] = (perf_counter() - began) * 1e3
        figures |= _load(broker, commit_frame("g0", "load", 1), CONNECTIONS, effort)
        figures["rss_mb"] = broker.rss_bytes() / MB
        line.close()
        return figures | _restart(broker, lambda each: _are_loaded(each, size))


def _are_loaded(line: Line, count: int) -> bool:
    found = line.ask(
        FindCoordinatorRequest(key_type=0, coordinator_keys=["g0"]), FindCoordinatorResponse
    )
    if found.coordinators[0].error_code:
        return False
    reply = line.ask(ListGroupsRequest(), ListGroupsResponse)
    return not reply.error_code and len(reply.groups) >= count


def members(name: str, size: int, effort: Effort) -> Figures:
    """Form a classic group of so many members, from nothing to stable."""
    with started(name) as broker:
        wait_coordinator(broker, "group", 0)
        group = Members(broker, "group", size)
        before, began = broker.cpu_seconds(), perf_counter()
        group.join()
        taken, used = perf_counter() - began, broker.cpu_seconds() - before
        rss = broker.rss_bytes()
        group.close()
        return {"stable_s": taken, "stable_cpu_s": max(0.01, used), "rss_mb": rss / MB}


# -- segments ----------------------------------------------------------------------------


def segments(name: str, size: int, effort: Effort) -> Figures:
    """Fill so many segments of 1 MiB; read the oldest offset; restart."""
    with started(name) as broker:
        line = Line(broker)
        small = CreatableTopicConfig("segment.bytes", str(SEGMENT_BYTES))
        _create(line, [CreatableTopic("kept", 1, 1, configs=[small])])
        line.close()
        _until(broker, lambda each: _are_led({"kept": 1}, each))
        count = size * SEGMENT_BYTES // RECORD_BYTES
        before = broker.cpu_seconds()
        written = measure("rdload", "produce", broker.bootstrap, "kept", RECORD_BYTES, count, 1)
        read = measure("rdload", "consume", broker.bootstrap, "kept", count)
        used = broker.cpu_seconds() - before
        figures = {
            "write_mb_s": written["bytes"] / written["seconds"] / MB,
            "cpu_s_gb": used / (2 * written["bytes"]) * 1e9,
            "rss_mb": broker.rss_bytes() / MB,
        }
        # Reading is timed from the end of the first 10,000 records on, which may be nearly all.
        if read["bytes"] > written["bytes"] / 2:
            figures["read_mb_s"] = read["bytes"] / read["seconds"] / MB
        return figures | _restart(broker, lambda each: _are_led({"kept": 1}, each))


# -- fail-over ---------------------------------------------------------------------------


def fail_over(name: str, size: int, effort: Effort) -> Figures:
    """Kill a broker of three that leads a third of the partitions; wait until all are led."""
    with tempfile.TemporaryDirectory(prefix="ottla-growth-") as folder:
        three = three_of(name, Path(folder))
        with running(three):
            controller = three.controller()
            creating = CreateTopicsRequest([CreatableTopic(FAIL_OVER_TOPIC, size, 3)], 120_000)
            three.ask(controller, creating)
            _until_led(three, controller, size, without=-1)
            dead = next(node for node in three.nodes if node != controller)
            process = three.nodes[dead].process
            assert process is not None
            process.kill()
            began = perf_counter()
            process.wait()
            _until_led(three, controller, size, without=dead)
            taken = perf_counter() - began
            return {"fail_over_s": taken}


def _until_led(three: Three, asked: int, count: int, *, without: int) -> None:
    """Wait until brokers other than ``without`` lead all partitions, and answer as leaders."""
    deadline = perf_counter() + WAIT_S_MAX
    while True:
        leaders = _leaders(three, asked)
        others = {leader for leader in leaders.values()}
        is_led = len(leaders) == count and not others & {-1, without}
        if is_led and all(_do_lead(three, leader, leaders) for leader in others):
            return
        assert perf_counter() < deadline, "not all partitions are led"
        sleep(POLL_S)


def _leaders(three: Three, asked: int) -> dict[int, int]:
    reply = three.ask(asked, MetadataRequest(topics=None))
    found = [each for each in reply.topics if each.name == FAIL_OVER_TOPIC]
    if not found:
        return {}
    return {each.partition_index: each.leader_id for each in found[0].partitions}


def _do_lead(three: Three, leader: int, leaders: dict[int, int]) -> bool:
    asked = [
        ListOffsetsPartition(index, timestamp=LATEST)
        for index, each in leaders.items()
        if each == leader
    ]
    topic = ListOffsetsTopic(FAIL_OVER_TOPIC, asked)
    try:
        reply = three.ask(leader, ListOffsetsRequest(-1, 0, [topic]))
    except (OSError, Fault):
        return False
    return not any(each.error_code for each in reply.topics[0].partitions)
