"""Measure one broker at several sizes, one function per dimension.

Each begins with a new broker, which grows from one size to the next. A figure that is the time to
create everything is the sum of the steps; all others are measured at each size.

The files of a broker are left in the folder that the caller gives, and removed after everything was
measured: ext4 does not use an inode again that was removed in the last minutes, and the search for
others makes the creation of files four times as expensive.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

from benchmarks.broker.brokers import Broker, kafka, ottla
from benchmarks.broker.line import Line, frame_of, make_topic
from benchmarks.broker.programs import measure
from benchmarks.broker.three import Three, running, three_of
from benchmarks.coordinator_load import (
    Members,
    asked_again,
    commit_frame,
    wait_coordinator,
    wait_groups,
)
from benchmarks.growth.saved import Figures
from benchmarks.requests import small_request
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
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.schema import Message

MB = 1e6
WAIT_S_MAX = 300.0
POLL_S = 0.05
CONNECTIONS = 4
LATEST = -1
# Kafka refuses a request that creates more partitions.
PARTITIONS_PER_TOPIC_MAX = 5_000
TOPICS_PER_REQUEST = 500
METADATA_REQUESTS_MIN = 5
LISTS = 5
RECORD_BYTES = 1024
SEGMENT_BYTES = 1 << 20
# From so many connections on, a request waits for so long that the load has to run longer.
CONNECTIONS_MANY = 5_000
WARM_CONNECTIONS_MAX = 100
# A broker is warm when its rate rises by less than this factor from one short load to the next.
WARM_FACTOR = 1.1
WARM_S = 0.5
WARM_LOADS_MAX = 4
# The default of 3 s, extended while members join, would be most of what is measured.
REBALANCE_DELAY_MS = 500
# So many groups are spread over all 50 partitions of __consumer_offsets.
GROUPS_OF_ALL_COORDINATORS = 500


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a load runs, and how long the CPU time of an idle broker is counted.

    ``limit_s`` is how long a broker may take to create or open everything.
    """

    load_s: float
    settle_s: float
    idle_s: float
    limit_s: float


# The CPU time of an idle broker is counted for 5 s: both write their checkpoints that often.
FULL = Effort(load_s=1.5, settle_s=1.0, idle_s=5.0, limit_s=60.0)
QUICK = Effort(load_s=1.0, settle_s=1.0, idle_s=5.0, limit_s=60.0)


@dataclass(frozen=True, slots=True)
class Point:
    """The figures of one size; ``more_than`` names those that are the limit, not a result."""

    size: int
    figures: Figures
    more_than: list[str] = field(default_factory=list)


class TooLong(Exception):
    """A broker did not get ready within the limit."""


@contextmanager
def started(
    name: str, folder: Path, settings: Mapping[str, object] | None = None
) -> Iterator[Broker]:
    """Run a new broker that is not fenced any more. Its files stay in ``folder``."""
    make = ottla if name == "Ottla" else kafka
    broker = make(folder / name.lower())
    with (broker.root / "server.properties").open("a") as file:
        file.writelines(f"{key}={value}\n" for key, value in (settings or {}).items())
    broker.format()
    try:
        broker.start()
        make_topic([broker], "load", 1)
        yield broker
    finally:
        if broker.process is not None:
            broker.process.kill()  # nobody starts it again: a clean stop would be wasted time
        broker.stop()


def _load(broker: Broker, frame: bytes, connections: int, seconds: float) -> Figures:
    """Send a request over and over; return its rate, p99 and CPU time, and the memory meanwhile."""
    assert broker.process is not None
    path = broker.root / "frame"
    path.write_bytes(frame)
    _warm_up(broker, path, min(connections, WARM_CONNECTIONS_MAX))
    arguments = ("127.0.0.1", broker.port, path, connections, seconds, broker.process.pid)
    found = measure("requests", *arguments)
    return {
        "rate": found["rate"],
        "p99_ms": found["p99"] * 1e3,
        "cpu_us": found["cpu"] * 1e6 / (found["rate"] * found["seconds"]),
        "rss_mb": found["rss"] / MB,
    }


def _warm_up(broker: Broker, frame: Path, connections: int) -> None:
    """Send a request over and over until the rate hardly rises, for at most 2 s."""
    last = 0.0
    for _ in range(WARM_LOADS_MAX):
        rate = measure("requests", "127.0.0.1", broker.port, frame, connections, WARM_S)["rate"]
        if rate < last * WARM_FACTOR:
            return
        last = rate


def _idle_share(broker: Broker, effort: Effort) -> float:
    """Return the share of a core that the broker uses without requests, in percent."""
    sleep(effort.settle_s)
    before = broker.cpu_seconds()
    sleep(effort.idle_s)
    return max(0.01, (broker.cpu_seconds() - before) / effort.idle_s * 100)


def _restart(broker: Broker, is_whole: Callable[[Line], bool], limit_s: float) -> Figures:
    """Stop and start a broker; return the seconds of the stop, and of the start until whole.

    Raises:
        TooLong: it was not whole within the limit.
    """
    began = perf_counter()
    broker.stop()
    stopped = perf_counter() - began
    began = perf_counter()
    broker.begin()
    _until(broker, is_whole, limit_s)
    return {"stop_s": stopped, "restart_s": perf_counter() - began}


def _until(broker: Broker, is_whole: Callable[[Line], bool], limit_s: float) -> None:
    """Wait until a condition holds; a broker that does not answer yet is asked again.

    The pause is as long as the answer took, so that questions are not what the broker works on.

    Raises:
        TooLong: it did not hold within the limit.
    """
    deadline = perf_counter() + limit_s
    line: Line | None = None
    while True:
        asked = perf_counter()
        try:
            line = line or Line(broker)
            if is_whole(line):
                line.close()
                return
        except (OSError, Fault):
            line = None
        now = perf_counter()
        if now > deadline:
            raise TooLong
        sleep(max(POLL_S, now - asked))


# -- partitions --------------------------------------------------------------------------


def _topics_of(partitions: int, prefix: str) -> dict[str, int]:
    sizes = [PARTITIONS_PER_TOPIC_MAX] * (partitions // PARTITIONS_PER_TOPIC_MAX)
    rest = partitions % PARTITIONS_PER_TOPIC_MAX
    every = [*sizes, rest] if rest else sizes
    return {f"{prefix}-{at}": size for at, size in enumerate(every)}


class _Led:
    """Whether every partition has answered a request that only its leader answers.

    A partition that has answered is not asked again.
    """

    def __init__(self, topics: Mapping[str, int]) -> None:
        self._waiting = {topic: list(range(count)) for topic, count in topics.items()}

    def __call__(self, line: Line) -> bool:
        asked = [
            ListOffsetsTopic(
                topic, [ListOffsetsPartition(index, timestamp=LATEST) for index in indexes]
            )
            for topic, indexes in self._waiting.items()
        ]
        reply = line.ask(ListOffsetsRequest(-1, 0, asked), ListOffsetsResponse)
        left = {
            topic.name: [each.partition_index for each in topic.partitions if each.error_code]
            for topic in reply.topics
        }
        self._waiting = {topic: indexes for topic, indexes in left.items() if indexes}
        return not self._waiting


def _create(line: Line, topics: Sequence[CreatableTopic]) -> None:
    reply = line.ask(CreateTopicsRequest(list(topics), 120_000), CreateTopicsResponse)
    faults = [each for each in reply.topics if each.error_code != ErrorCode.NONE]
    assert not faults, faults[0]


@dataclass(slots=True)
class _Creation:
    """The seconds that CreateTopics has taken in all steps: until its reply, until all are led."""

    replied_s: float = 0.0
    led_s: float = 0.0

    def add(
        self, broker: Broker, requests: Sequence[Sequence[CreatableTopic]], limit_s: float
    ) -> None:
        """Create topics, one request after the other. Raises TooLong."""
        line = Line(broker)
        line.socket.settimeout(WAIT_S_MAX)
        began = perf_counter()
        for topics in requests:
            _create(line, topics)
        self.replied_s += perf_counter() - began
        line.close()
        every = {topic.name: topic.num_partitions for topics in requests for topic in topics}
        try:
            _until(broker, _Led(every), limit_s)
        finally:
            self.led_s += perf_counter() - began

    def figures(self) -> Figures:
        return {"create_reply_s": self.replied_s, "create_led_s": self.led_s}


def partitions(name: str, folder: Path, sizes: Sequence[int], effort: Effort) -> Iterator[Point]:
    """Create partitions on one node; write to one of them; let the node rest; restart it."""
    every: dict[str, int] = {}
    creation = _Creation()
    with started(name, folder) as broker:
        for size in sizes:
            added = _topics_of(size - sum(every.values()), f"t{size}")
            every |= added
            requests = [[CreatableTopic(topic, count, 1)] for topic, count in added.items()]
            try:
                creation.add(broker, requests, effort.limit_s)
            except TooLong:
                yield Point(size, creation.figures(), ["create_led_s"])
                return
            figures = creation.figures()
            figures |= _load(broker, small_request("load"), CONNECTIONS, effort.load_s)
            figures["idle_percent"] = _idle_share(broker, effort)
            try:
                figures |= _restart(broker, _Led(every), effort.limit_s)
            except TooLong:
                yield Point(size, figures | {"restart_s": effort.limit_s}, ["restart_s"])
                return
            yield Point(size, figures)


# -- connections and requests ------------------------------------------------------------


def connections(name: str, folder: Path, sizes: Sequence[int], effort: Effort) -> Iterator[Point]:
    """Write over so many connections at once, one small request in flight on each."""
    with started(name, folder) as broker:
        for size in sizes:
            seconds = effort.load_s * (3 if size >= CONNECTIONS_MANY else 1)
            yield Point(size, _load(broker, small_request("load"), size, seconds))


def topics(name: str, folder: Path, sizes: Sequence[int], effort: Effort) -> Iterator[Point]:
    """Create topics of one partition; ask for the metadata of all of them."""
    have = 0
    creation = _Creation()
    with started(name, folder) as broker:
        for size in sizes:
            added = [CreatableTopic(f"t{at}", 1, 1) for at in range(have, size)]
            have = size
            requests = [
                added[first : first + TOPICS_PER_REQUEST]
                for first in range(0, len(added), TOPICS_PER_REQUEST)
            ]
            try:
                creation.add(broker, requests, effort.limit_s)
            except TooLong:
                yield Point(size, creation.figures(), ["create_led_s"])
                return
            sleep(effort.settle_s)
            found = _metadata(broker, effort)
            yield Point(size, creation.figures() | found)


def _metadata(broker: Broker, effort: Effort) -> Figures:
    """Ask for the metadata of all topics, one request after the other."""
    line = Line(broker)
    line.socket.settimeout(WAIT_S_MAX)
    _raw(line, MetadataRequest(topics=None))
    taken: list[float] = []
    before = broker.cpu_seconds()
    end = perf_counter() + effort.load_s
    while perf_counter() < end or len(taken) < METADATA_REQUESTS_MIN:
        began = perf_counter()
        _raw(line, MetadataRequest(topics=None))
        taken.append(perf_counter() - began)
    used = broker.cpu_seconds() - before
    line.close()
    taken.sort()
    return {
        "metadata_ms": taken[len(taken) // 2] * 1e3,
        "metadata_p99_ms": taken[len(taken) * 99 // 100] * 1e3,
        "metadata_cpu_ms": max(0.01, used / len(taken) * 1e3),
        "rss_mb": broker.rss_bytes() / MB,
    }


def _raw(line: Line, request: Message) -> bytes:
    """Return a reply without decoding it, which takes longer than the broker needs."""
    line.socket.sendall(frame_of(request))
    return line.receive()


# -- groups ------------------------------------------------------------------------------


def groups(name: str, folder: Path, sizes: Sequence[int], effort: Effort) -> Iterator[Point]:
    """Commit an offset of each of so many groups; list them; restart until all are loaded.

    The load runs on another node: its commits would be what a restart reads.
    """
    loads = _loads_by_groups(name, folder / "loads", sizes, effort)
    have = 0
    with started(name, folder) as broker:
        wait_coordinator(broker, "g0", 0)
        for size in sizes:
            line = Line(broker)
            line.socket.settimeout(WAIT_S_MAX)
            figures = loads[size] | {"commit_rate": _commit_new(line, have, size)}
            have = size
            figures["list_ms"] = median(_list_groups(line) for _ in range(LISTS)) * 1e3
            line.close()
            figures |= _restart(broker, partial(_are_loaded, size), effort.limit_s)
            yield Point(size, figures)


def _loads_by_groups(
    name: str, folder: Path, sizes: Sequence[int], effort: Effort
) -> dict[int, Figures]:
    """Return rate, p99, CPU time and memory of commits for one group, by the number of groups."""
    found: dict[int, Figures] = {}
    have = 0
    with started(name, folder) as broker:
        wait_coordinator(broker, "g0", 0)
        line = Line(broker)
        line.socket.settimeout(WAIT_S_MAX)
        for size in sizes:
            _commit_new(line, have, size)
            have = size
            found[size] = _load(broker, commit_frame("g0", "load", 1), CONNECTIONS, effort.load_s)
    return found


def _commit_new(line: Line, first: int, end: int) -> float:
    """Commit an offset of each new group, one after the other; return the commits per second."""
    wait_groups(line, [f"g{at}" for at in range(GROUPS_OF_ALL_COORDINATORS)])
    began = perf_counter()
    for at in range(first, end):
        line.socket.sendall(commit_frame(f"g{at}", "load", 1))
        line.receive()
    return (end - first) / (perf_counter() - began)


def _list_groups(line: Line) -> float:
    """Return the seconds that ListGroups takes, with the decoding of the reply."""
    began = perf_counter()
    asked_again(line, ListGroupsRequest(), ListGroupsResponse)
    return perf_counter() - began


def _are_loaded(count: int, line: Line) -> bool:
    found = line.ask(
        FindCoordinatorRequest(key_type=0, coordinator_keys=["g0"]), FindCoordinatorResponse
    )
    if found.coordinators[0].error_code:
        return False
    reply = line.ask(ListGroupsRequest(), ListGroupsResponse)
    return not reply.error_code and len(reply.groups) >= count


def members(name: str, folder: Path, sizes: Sequence[int], effort: Effort) -> Iterator[Point]:
    """Form a classic group of so many members, from nothing to stable; a new group each time."""
    with started(name, folder, {"group.initial.rebalance.delay.ms": REBALANCE_DELAY_MS}) as broker:
        for size in sizes:
            wait_coordinator(broker, f"group-{size}", 0)
            group = Members(broker, f"group-{size}", size)
            group.connect()
            before, began = broker.cpu_seconds(), perf_counter()
            group.join()
            taken, used = perf_counter() - began, broker.cpu_seconds() - before
            rss = broker.rss_bytes()
            group.close()
            figures = {"stable_s": taken, "stable_cpu_s": max(0.01, used), "rss_mb": rss / MB}
            yield Point(size, figures)


# -- segments ----------------------------------------------------------------------------


def segments(name: str, folder: Path, sizes: Sequence[int], effort: Effort) -> Iterator[Point]:
    """Fill so many segments of 1 MiB; read all of them; restart."""
    have = 0
    with started(name, folder) as broker:
        line = Line(broker)
        small = CreatableTopicConfig("segment.bytes", str(SEGMENT_BYTES))
        _create(line, [CreatableTopic("kept", 1, 1, configs=[small])])
        line.close()
        _until(broker, _Led({"kept": 1}), effort.limit_s)
        for size in sizes:
            added = (size - have) * SEGMENT_BYTES // RECORD_BYTES
            have = size
            figures = _written_and_read(broker, added, size * SEGMENT_BYTES // RECORD_BYTES)
            yield Point(size, figures | _restart(broker, _Led({"kept": 1}), effort.limit_s))


def _written_and_read(broker: Broker, added: int, count: int) -> Figures:
    """Add records and read all; return the rates, the CPU time and the memory."""
    before = broker.cpu_seconds()
    written = measure("rdload", "produce", broker.bootstrap, "kept", RECORD_BYTES, added, 1)
    read = measure("rdload", "consume", broker.bootstrap, "kept", count)
    used = broker.cpu_seconds() - before
    figures = {
        "write_mb_s": written["bytes"] / written["seconds"] / MB,
        "cpu_s_gb": used / (written["bytes"] + count * RECORD_BYTES) * 1e9,
        "rss_mb": broker.rss_bytes() / MB,
    }
    # Reading is timed from the end of the first 10,000 records on, which may be nearly all.
    if read["bytes"] > count * RECORD_BYTES / 2:
        figures["read_mb_s"] = read["bytes"] / read["seconds"] / MB
    return figures


# -- fail-over ---------------------------------------------------------------------------


def fail_over(name: str, folder: Path, sizes: Sequence[int], effort: Effort) -> Iterator[Point]:
    """Kill a broker of three that leads a third of a new topic; wait until all are led."""
    three = three_of(name, folder)
    with running(three):
        try:
            for size in sizes:
                taken, dead = _failed_over(three, size)
                yield Point(size, {"fail_over_s": taken})
                if size != sizes[-1]:
                    three.nodes[dead].start()
        finally:
            # Without a quorum a clean stop waits for its limit.
            for node in three.nodes.values():
                if node.process is not None:
                    node.process.kill()


def _failed_over(three: Three, size: int) -> tuple[float, int]:
    """Return the seconds from a kill until all partitions are led, and the killed broker."""
    controller = three.controller()
    topic = f"kept-{size}"
    _create_on_three(three, controller, topic, size)
    _until_led(three, controller, topic, size, without=-1)
    dead = next(node for node in three.nodes if node != controller)
    process = three.nodes[dead].process
    assert process is not None
    process.kill()
    began = perf_counter()
    process.wait()
    _until_led(three, controller, topic, size, without=dead)
    return perf_counter() - began, dead


def _create_on_three(three: Three, asked: int, topic: str, size: int) -> None:
    """Create a topic; a broker that has just started is still fenced, which is an error."""
    request = CreateTopicsRequest([CreatableTopic(topic, size, 3)], 120_000)
    deadline = perf_counter() + WAIT_S_MAX
    while True:
        code = three.ask(asked, request).topics[0].error_code
        if code != ErrorCode.INVALID_REPLICATION_FACTOR:
            assert code == ErrorCode.NONE, code
            return
        assert perf_counter() < deadline, "three brokers are not unfenced"
        sleep(POLL_S)


def _until_led(three: Three, asked: int, topic: str, count: int, *, without: int) -> None:
    """Wait until brokers other than ``without`` lead all partitions, and answer as leaders."""
    deadline = perf_counter() + WAIT_S_MAX
    while True:
        leaders = _leaders(three, asked, topic)
        others = set(leaders.values())
        is_led = len(leaders) == count and not others & {-1, without}
        if is_led and all(_do_lead(three, topic, leader, leaders) for leader in others):
            return
        assert perf_counter() < deadline, "not all partitions are led"
        sleep(POLL_S)


def _leaders(three: Three, asked: int, topic: str) -> dict[int, int]:
    reply = three.ask(asked, MetadataRequest([MetadataRequestTopic(name=topic)]))
    return {each.partition_index: each.leader_id for each in reply.topics[0].partitions}


def _do_lead(three: Three, topic: str, leader: int, leaders: dict[int, int]) -> bool:
    asked = [
        ListOffsetsPartition(index, timestamp=LATEST)
        for index, each in leaders.items()
        if each == leader
    ]
    try:
        reply = three.ask(leader, ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, asked)]))
    except (OSError, Fault):
        return False
    return not any(each.error_code for each in reply.topics[0].partitions)
