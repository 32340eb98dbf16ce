"""Checks for what prevents a node from starting or a client from connecting, with fixes.

Pure: facts in, findings out. A problem makes something fail; a warning degrades it.
"""

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.operations.cluster_state import ClusterState
from ottla.operations.health import Problem, fix_of, lost_quorum
from ottla.operations.sizes import human

OPEN_FILES_MIN: Final = 4096
"""Each segment and each connection needs one; Debian's default of 1024 is used up quickly."""
FREE_BYTES_MIN: Final = 1 << 30
SHOWN_MAX: Final = 5
DAMAGED_METRIC: Final = "ottla_damaged_partitions_count"
_WAITING: Final = re.compile(
    r'^ottla_replica_waiting_leader_count\{topic="([^"]+)",partition="(\d+)"\} 1$', re.MULTILINE
)


class State(enum.StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of one check. ``fix`` is empty if there is nothing to do."""

    check: str
    state: State
    detail: str
    fix: str = ""


class Dial(enum.Enum):
    """What a TCP connection to an address led to."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Place:
    """An address of a broker. ``reason`` is why none answers there, or None."""

    address: str
    reason: str | None
    dial: Dial = Dial.ACCEPTED


def check_addresses(
    places: Sequence[Place], *, is_named: bool, is_formatted: bool
) -> list[Checked]:
    """Check the addresses of brokers, each by itself.

    A broker has to answer if the user has named the address, or if one answers at another address.
    Otherwise this may be a machine on which a node is about to be started for the first time, or
    one whose node is stopped (``is_formatted``).
    """
    is_running = any(place.reason is None for place in places)
    return [
        _check_address(place, is_expected=is_named or is_running, is_formatted=is_formatted)
        for place in places
    ]


def _check_address(place: Place, *, is_expected: bool, is_formatted: bool) -> Checked:
    if place.reason is None:
        return Checked("address", State.OK, f"a broker answers at {place.address}")
    if place.dial is Dial.ACCEPTED and not is_expected:
        return Checked(
            "address",
            State.PROBLEM,
            f"{place.address} is in use, and no broker answers there: {place.reason}",
            "Set the connection's security settings if it is a broker. Else stop the program, or "
            "use another port: `ottla up --port N`, or `listeners` in server.properties.",
        )
    fix = "Start the node (`ottla up`, `ottla server`), or correct the address of --bootstrap."
    detail = f"no broker answers at {place.address}: {place.reason}"
    if is_expected:
        return Checked("address", State.PROBLEM, detail, fix)
    if is_formatted or place.dial is Dial.FAILED:
        return Checked("address", State.WARNING, detail, fix)
    return Checked("address", State.OK, f"{place.address} is free")


def check_cluster(state: ClusterState, problems: Sequence[Problem]) -> list[Checked]:
    """Check brokers, partitions and voters, by the problems that `ottla cluster health` lists."""
    shown = [
        Checked("cluster", State.PROBLEM, f"{each.subject} {each.problem}", fix_of(each))
        for each in problems[:SHOWN_MAX]
    ]
    if len(problems) > SHOWN_MAX:
        detail = f"there are {len(problems) - SHOWN_MAX} problems more"
        shown.append(Checked("cluster", State.PROBLEM, detail, "`ottla cluster health` lists all."))
    if shown:
        return shown
    partitions = sum(len(topic.partitions) for topic in state.topics)
    detail = (
        f"every broker serves ({len(state.brokers)}), every partition has all its replicas "
        f"({partitions})"
    )
    return [Checked("cluster", State.OK, detail)]


def check_quorum(state: ClusterState) -> Checked:
    """Check that the metadata quorum can change metadata."""
    lost = lost_quorum(state)
    if lost is not None:
        return Checked(
            "quorum", State.PROBLEM, lost.problem, f"{lost.advice[:1].upper()}{lost.advice[1:]}."
        )
    assert state.quorum is not None
    quorum = state.quorum.state
    count = len(quorum.current_voters)
    voters = "1 voter" if count == 1 else f"{count} voters"
    return Checked("quorum", State.OK, f"node {quorum.leader_id} leads {voters}")


@dataclass(frozen=True, slots=True)
class Directory:
    """A log directory. ``refusal`` is why its meta.properties cannot be read, or None."""

    path: str
    is_writable: bool
    free_bytes: int
    cluster_id: str | None = None
    node_id: int | None = None
    refusal: str | None = None


def check_directories(
    directories: Sequence[Directory], cluster_id: str | None, node_id: int | None
) -> list[Checked]:
    """Check log directories, and that they belong to the same cluster and to this node."""
    found = [each for directory in directories for each in _check_directory(directory)]
    ids = {each.cluster_id for each in directories if each.cluster_id is not None}
    if len(ids) > 1:
        named = ", ".join(f"{each.path}: {each.cluster_id}" for each in directories)
        found.append(
            Checked(
                "cluster id",
                State.PROBLEM,
                f"directories belong to different clusters ({named})",
                "Give each cluster a directory of its own with --data or `log.dirs`.",
            )
        )
    elif ids and cluster_id is not None and ids != {cluster_id}:
        found.append(
            Checked(
                "cluster id",
                State.PROBLEM,
                f"the directory belongs to cluster {ids.pop()}, the brokers to {cluster_id}",
                "Point --data at that cluster's directory, or --bootstrap at this one's brokers.",
            )
        )
    for each in directories:
        if node_id is not None and each.node_id not in (None, node_id):
            found.append(
                Checked(
                    "node id",
                    State.PROBLEM,
                    f"{each.path} belongs to node {each.node_id}, the file says {node_id}",
                    "Set `node.id` to the directory's, or give the node its own `log.dirs`.",
                )
            )
    return found


def _check_directory(directory: Directory) -> list[Checked]:
    path = directory.path
    if not directory.is_writable:
        fix = f"Make it writable for this user: `chown -R $USER {path}`, or use another directory."
        return [Checked("directory", State.PROBLEM, f"{path} is not writable", fix)]
    if directory.refusal is not None:
        fix = "Restore meta.properties from a backup, or with `ottla format --restore`."
        return [Checked("directory", State.PROBLEM, directory.refusal, fix)]
    if directory.free_bytes < FREE_BYTES_MIN:
        return [
            Checked(
                "directory",
                State.WARNING,
                f"{path} has {human(directory.free_bytes)} left",
                "Free space, or set `retention.bytes` on large topics.",
            )
        ]
    return [Checked("directory", State.OK, f"{path} is writable")]


@dataclass(frozen=True, slots=True)
class Loss:
    """What log recovery dropped at the last start; ``text`` has the details."""

    is_error: bool
    text: str


def check_strays(path: str, names: Sequence[str]) -> list[Checked]:
    """Report logs that were renamed because the metadata does not assign them to this node."""
    if not names:
        return []
    return [
        Checked(
            "stray logs",
            State.WARNING,
            f"{path} has logs that the metadata does not assign to this node: {_shown(names)}",
            "If their topics were deleted or moved, remove the directories. If metadata was lost, "
            "read them with `ottla log dump`, and see docs/recovery.md.",
        )
    ]


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return f"{', '.join(names[:SHOWN_MAX])}{more}"


def check_recovery(path: str, losses: Sequence[Loss], set_aside: Sequence[str]) -> list[Checked]:
    """Report what recovery dropped at the last start, and damaged bytes that were set aside."""
    found = [
        Checked(
            "recovery",
            State.PROBLEM if each.is_error else State.WARNING,
            each.text,
            "See docs/recovery.md." if each.is_error else "",
        )
        for each in losses
    ]
    if set_aside:
        found.append(
            Checked(
                "damaged files",
                State.WARNING,
                f"{path} has damaged bytes that were set aside: {_shown(set_aside)}",
                "Look at them with `ottla log dump`, then remove them.",
            )
        )
    return found


def damaged_replicas(metrics: str) -> int | None:
    """Return the number of damaged replicas in a broker's metrics page; None if it is not there."""
    for line in metrics.splitlines():
        name, _, value = line.partition(" ")
        if name == DAMAGED_METRIC:
            try:
                return int(float(value))
            except ValueError:
                return None
    return None


def check_damaged(counts: Mapping[int, int | None]) -> list[Checked]:
    """Report damaged replicas by broker; None means unknown."""
    known = {broker: count for broker, count in counts.items() if count is not None}
    found = [
        Checked(
            "damaged replicas",
            State.PROBLEM,
            f"broker {broker} has {count} {'replica' if count == 1 else 'replicas'} with damaged "
            "batches that are not repaired yet",
            "Look for `batch damaged` in its log: it names the file, the offsets and the repair. "
            "If this persists, see docs/replication.md.",
        )
        for broker, count in sorted(known.items())
        if count
    ]
    if known and not found:
        found = [Checked("damaged replicas", State.OK, "no damaged replicas")]
    return found


def waiting_partitions(metrics: str) -> list[str]:
    """Return the partitions in a broker's metrics page that wait for another replica."""
    return [f"{topic}-{index}" for topic, index in _WAITING.findall(metrics)]


def check_waiting(names: Mapping[int, Sequence[str]]) -> list[Checked]:
    """Report partitions without a leader whose last replica in sync lost records, by broker."""
    return [
        Checked(
            "waiting replicas",
            State.PROBLEM,
            f"broker {broker} does not lead {_shown(waiting)}: its replica lost records, and waits "
            "for another one that may have them",
            "Start another broker with a replica. If none will come back, see `The last replica in "
            "sync lost its end` in docs/recovery.md.",
        )
        for broker, waiting in sorted(names.items())
        if waiting
    ]


def check_advertised(reached: Mapping[str, str | None]) -> list[Checked]:
    """Check the advertised addresses: by address, why no broker answers there, or None."""
    return [
        Checked("advertised address", State.OK, f"{address} is reachable")
        if reason is None
        else Checked(
            "advertised address",
            State.PROBLEM,
            f"no broker answers at {address}, which one advertises: {reason}",
            "Start the broker. If it runs, set `advertised.listeners` to a host and port that "
            "clients can reach.",
        )
        for address, reason in reached.items()
    ]


def check_java(path: str | None) -> Checked:
    """Check whether Java, which Spark needs, is installed."""
    if path is not None:
        return Checked("java", State.OK, path)
    return Checked(
        "java",
        State.WARNING,
        "Java is not installed; only Spark pipelines need it",
        "Install a JDK 17 or newer (Debian: `apt install openjdk-17-jre-headless`).",
    )


def check_open_files(soft: int, hard: int) -> Checked:
    """Check the limit of open files."""
    if soft >= OPEN_FILES_MIN:
        return Checked("open files", State.OK, f"up to {soft}")
    able = f"`ulimit -n {min(hard, 65536)}`" if hard > soft else "`LimitNOFILE` of the service"
    return Checked(
        "open files",
        State.WARNING,
        f"the limit is only {soft} open files, enough for few partitions and connections",
        f"Raise it with {able} before starting the node.",
    )
