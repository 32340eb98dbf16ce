"""What keeps a node from starting, or a client from reaching it, and what to do about it.

Pure: facts in, judgements out. A problem makes something fail; a warning makes one thing less good.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

OPEN_FILES_MIN: Final = 4096
"""Each segment and each connection needs one; Debian's default of 1024 is used up quickly."""
FREE_BYTES_MIN: Final = 1 << 30
SHOWN_MAX: Final = 5
DAMAGED_METRIC: Final = "ottla_damaged_partitions_count"


class State(enum.StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Judgement:
    """One thing that was looked at. ``fix`` is empty where nothing is to be done."""

    check: str
    state: State
    detail: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Port:
    """A port: free, taken by a broker, or by something else."""

    address: str
    is_free: bool
    answers_kafka: bool


def judge_port(port: Port) -> Judgement:
    """Judge the port a node would listen on."""
    if port.is_free:
        return Judgement("port", State.OK, f"{port.address} is free")
    if port.answers_kafka:
        return Judgement("port", State.OK, f"a broker answers at {port.address}")
    return Judgement(
        "port",
        State.PROBLEM,
        f"{port.address} is in use by something that does not speak Kafka's protocol",
        "Stop it, or take another port: `ottla up --port N`, or `listeners` in server.properties.",
    )


@dataclass(frozen=True, slots=True)
class Directory:
    """A log directory. ``refusal`` is why its meta.properties cannot be read; None: it can."""

    path: str
    is_writable: bool
    free_bytes: int
    cluster_id: str | None = None
    node_id: int | None = None
    refusal: str | None = None


def judge_directories(
    directories: Sequence[Directory], cluster_id: str | None, node_id: int | None
) -> list[Judgement]:
    """Judge log directories, also against each other and the cluster and node they are for."""
    found = [each for directory in directories for each in _judge_directory(directory)]
    ids = {each.cluster_id for each in directories if each.cluster_id is not None}
    if len(ids) > 1:
        named = ", ".join(f"{each.path}: {each.cluster_id}" for each in directories)
        found.append(
            Judgement(
                "cluster id",
                State.PROBLEM,
                f"directories belong to different clusters ({named})",
                "Give each cluster a directory of its own with --data or `log.dirs`.",
            )
        )
    elif ids and cluster_id is not None and ids != {cluster_id}:
        found.append(
            Judgement(
                "cluster id",
                State.PROBLEM,
                f"the directory belongs to cluster {ids.pop()}, the brokers to {cluster_id}",
                "Point --data at that cluster's directory, or --bootstrap at this one's brokers.",
            )
        )
    for each in directories:
        if node_id is not None and each.node_id not in (None, node_id):
            found.append(
                Judgement(
                    "node id",
                    State.PROBLEM,
                    f"{each.path} belongs to node {each.node_id}, the file says {node_id}",
                    "Set `node.id` to the directory's, or give the node its own `log.dirs`.",
                )
            )
    return found


def _judge_directory(directory: Directory) -> list[Judgement]:
    path = directory.path
    if not directory.is_writable:
        fix = f"Make it writable for this user: `chown -R $USER {path}`, or take another directory."
        return [Judgement("directory", State.PROBLEM, f"{path} is not writable", fix)]
    if directory.refusal is not None:
        fix = "Restore meta.properties from another directory of the node, or format anew."
        return [Judgement("directory", State.PROBLEM, directory.refusal, fix)]
    if directory.free_bytes < FREE_BYTES_MIN:
        return [
            Judgement(
                "directory",
                State.WARNING,
                f"{path} has {directory.free_bytes >> 20} MiB left",
                "Free space, or set `retention.bytes` on large topics.",
            )
        ]
    return [Judgement("directory", State.OK, f"{path} is writable")]


@dataclass(frozen=True, slots=True)
class Loss:
    """What recovery of a log could not keep at the last start; ``text`` says all of it."""

    is_error: bool
    text: str


def judge_recovery(path: str, losses: Sequence[Loss], set_aside: Sequence[str]) -> list[Judgement]:
    """Judge what the last start of a log directory lost, and damaged bytes that lie in it."""
    found = [
        Judgement(
            "recovery",
            State.PROBLEM if each.is_error else State.WARNING,
            each.text,
            "See docs/recovery.md." if each.is_error else "",
        )
        for each in losses
    ]
    if set_aside:
        shown = ", ".join(set_aside[:SHOWN_MAX])
        more = f" and {len(set_aside) - SHOWN_MAX} more" if len(set_aside) > SHOWN_MAX else ""
        found.append(
            Judgement(
                "damaged files",
                State.WARNING,
                f"{path} has damaged bytes that were set aside: {shown}{more}",
                "Look at them with `ottla log dump`, then remove them.",
            )
        )
    return found


def damaged_replicas(metrics: str) -> int | None:
    """Return how many damaged replicas a broker's metrics page counts; None if it does not say."""
    for line in metrics.splitlines():
        name, _, value = line.partition(" ")
        if name == DAMAGED_METRIC:
            try:
                return int(float(value))
            except ValueError:
                return None
    return None


def judge_damaged(counts: Mapping[int, int | None]) -> list[Judgement]:
    """Judge damaged replicas by broker; None where a broker does not say."""
    known = {broker: count for broker, count in counts.items() if count is not None}
    found = [
        Judgement(
            "damaged replicas",
            State.PROBLEM,
            f"broker {broker} has {count} {'replica' if count == 1 else 'replicas'} with damaged "
            "batches that are not repaired yet",
            "Look for `batch damaged` in its log: it names the file, the offsets and what is done. "
            "If this does not go away, see docs/replication.md.",
        )
        for broker, count in sorted(known.items())
        if count
    ]
    if known and not found:
        found = [Judgement("damaged replicas", State.OK, "no damaged replica is known")]
    return found


def judge_advertised(reached: Mapping[str, str | None]) -> list[Judgement]:
    """Judge where brokers say they are: by address, why it was not reached, or None."""
    return [
        Judgement("advertised address", State.OK, f"{address} is reached")
        if reason is None
        else Judgement(
            "advertised address",
            State.PROBLEM,
            f"a broker says it is at {address}, and there it is not: {reason}",
            "Set `advertised.listeners` to a name and port that clients reach.",
        )
        for address, reason in reached.items()
    ]


def judge_java(path: str | None) -> Judgement:
    """Judge whether Spark can run."""
    if path is not None:
        return Judgement("java", State.OK, path)
    return Judgement(
        "java",
        State.WARNING,
        "there is no Java; only pipelines on Spark need it",
        "Install a JDK 17 or newer (Debian: `apt install openjdk-17-jre-headless`).",
    )


def judge_open_files(soft: int, hard: int) -> Judgement:
    """Judge how many files a process may have open."""
    if soft >= OPEN_FILES_MIN:
        return Judgement("open files", State.OK, f"up to {soft}")
    able = f"`ulimit -n {min(hard, 65536)}`" if hard > soft else "`LimitNOFILE` of the service"
    return Judgement(
        "open files",
        State.WARNING,
        f"a process may have only {soft} open: few partitions and connections",
        f"Raise it with {able} before starting the node.",
    )
