"""Whether a node can take over the log directories of a Kafka node, in place. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from ottla.cli.migration.findings import Area, Finding, State
from ottla.operations.counting import plural
from ottla.operations.sizes import human

FREE_FRACTION_MIN: Final = 0.05
"""Below this a recovery or a roll of segments may fill the disk."""
SHOWN_MAX: Final = 5


class DirectoryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A log directory as it is on disk. ``refusal`` says why meta.properties cannot be used."""

    path: str
    exists: bool = True
    is_readable: bool = True
    is_writable: bool = True
    free_bytes: int = 0
    total_bytes: int = 0
    cluster_id: str | None = None
    node_id: int | None = None
    refusal: str | None = None
    is_clean: bool = True
    partitions: int = 0
    segments: int = 0
    old_segments: Sequence[str] = ()
    """Segments that begin with a message of format 0 or 1."""
    bad_checkpoints: Sequence[str] = ()
    """Checkpoint files of a version that is not known."""


def check_directories(
    directories: Sequence[DirectoryFacts], node_id: int | None, cluster_id: str | None = None
) -> list[Finding]:
    """Return what is found in each directory, and against the node and cluster they are for."""
    found = [each for one in directories for each in _check_directory(one, node_id, cluster_id)]
    ids = {one.cluster_id for one in directories if one.cluster_id is not None}
    if len(ids) > 1:
        detail = f"directories belong to different clusters: {', '.join(sorted(ids))}"
        found.append(_problem("log.dirs", detail, "Point log.dirs at one cluster's directories."))
    return found


def _check_directory(
    facts: DirectoryFacts, node_id: int | None, cluster_id: str | None
) -> Iterator[Finding]:
    path = facts.path
    if not facts.exists:
        fix = "Run this on the node itself, or correct log.dirs."
        yield _problem(path, "does not exist", fix)
        return
    if not facts.is_readable or not facts.is_writable:
        missing = "readable" if not facts.is_readable else "writable"
        fix = f"Run ottla as the user that Kafka ran as, or `chown -R $USER {path}`."
        yield _problem(path, f"is not {missing} for this user", fix)
        return
    yield from _check_owner(facts, node_id, cluster_id)
    yield from _check_files(facts)
    if facts.total_bytes and facts.free_bytes < facts.total_bytes * FREE_FRACTION_MIN:
        detail = f"{human(facts.free_bytes)} of {human(facts.total_bytes)} are free"
        yield _finding(path, State.WARNING, detail, "Free space before the migration.")
    if not facts.is_clean:
        detail = "Kafka is running, or was not shut down cleanly: logs are recovered at the start"
        fix = "Stop Kafka with kafka-server-stop.sh and wait for its end before starting ottla."
        yield _finding(path, State.WARNING, detail, fix)


def _check_owner(
    facts: DirectoryFacts, node_id: int | None, cluster_id: str | None
) -> Iterator[Finding]:
    path = facts.path
    if facts.refusal is not None:
        yield _problem(path, facts.refusal, "Restore meta.properties before the migration.")
    elif facts.cluster_id is None:
        fix = "Point log.dirs at the directories of the Kafka node."
        yield _problem(path, "has no meta.properties: no Kafka node has used it", fix)
    elif node_id is not None and facts.node_id != node_id:
        detail = f"belongs to node {facts.node_id}, the file says node.id={node_id}"
        yield _problem(path, detail, "Use the server.properties of that node.")
    elif cluster_id is not None and facts.cluster_id != cluster_id:
        detail = f"belongs to cluster {facts.cluster_id}, the brokers to {cluster_id}"
        yield _problem(path, detail, "Check --bootstrap and log.dirs.")
    else:
        detail = f"{plural(facts.partitions, 'partition')}, {plural(facts.segments, 'segment')}"
        yield _finding(path, State.SUPPORTED, detail)


def _check_files(facts: DirectoryFacts) -> Iterator[Finding]:
    if facts.old_segments:
        detail = f"segments of message format 0 or 1: {_named(facts.old_segments)}"
        fix = "Let retention delete them, or copy the topics with `ottla mirror`."
        yield _problem(facts.path, detail, fix)
    if facts.bad_checkpoints:
        detail = f"checkpoint files of an unknown version: {_named(facts.bad_checkpoints)}"
        yield _problem(facts.path, detail, "Check which Kafka version wrote them.")


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more


def _problem(subject: str, detail: str, fix: str) -> Finding:
    return _finding(subject, State.PROBLEM, detail, fix)


def _finding(subject: str, state: State, detail: str, fix: str = "") -> Finding:
    return Finding(area=Area.DIRECTORY, subject=subject, state=state, detail=detail, fix=fix)
