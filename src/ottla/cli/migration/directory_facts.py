"""Looks at log directories for `ottla.cli.migration.directory_check`; changes nothing."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from ottla.cli.migration.directory_check import DirectoryFacts
from ottla.protocol.records.batch import MAGIC, MAGIC_AT
from ottla.runtime.disk import RealDisk
from ottla.storage.directory.meta_properties import MetaPropertiesRefused, read_meta_properties

SEGMENTS_MAX: Final = 200_000
"""Segments that are looked at; more take minutes on a slow disk."""
_CLEAN_MARKER: Final = ".kafka_cleanshutdown"
_METADATA: Final = "__cluster_metadata-0"
_CHECKPOINTS: Final = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
_CHECKPOINT_VERSION: Final = "0"


def look_at(path: str) -> DirectoryFacts:
    """Return what is in a log directory."""
    there = Path(path)
    if not there.is_dir():
        return DirectoryFacts(path=path, exists=False)
    usage = shutil.disk_usage(there)
    facts = DirectoryFacts(
        path=path,
        is_readable=os.access(there, os.R_OK | os.X_OK),
        is_writable=os.access(there, os.W_OK | os.X_OK),
        free_bytes=usage.free,
        total_bytes=usage.total,
    )
    if not facts.is_readable:
        return facts
    try:
        return _with_files(_with_owner(facts, path), there)
    except OSError as error:
        return replace(facts, refusal=f"cannot be read: {error}")


def _with_owner(facts: DirectoryFacts, path: str) -> DirectoryFacts:
    try:
        meta = read_meta_properties(RealDisk(), path)
    except MetaPropertiesRefused as error:
        return replace(facts, refusal=str(error))
    if meta is None:
        return facts
    return replace(facts, cluster_id=meta.cluster_id, node_id=meta.node_id)


def _with_files(facts: DirectoryFacts, there: Path) -> DirectoryFacts:
    logs = [each for each in there.iterdir() if each.is_dir() and _is_partition(each.name)]
    segments, old = 0, list[str]()
    for segment in _segments(logs):
        segments += 1
        if (magic := _magic_of(segment)) is not None and magic != MAGIC:
            old.append(str(segment.relative_to(there)))
    bad = [name for name in _CHECKPOINTS if not _has_known_version(there / name)]
    bad += [
        f"{log.name}/leader-epoch-checkpoint"
        for log in logs
        if not _has_known_version(log / "leader-epoch-checkpoint")
    ]
    has_user_logs = any(each.name != _METADATA for each in logs)
    return replace(
        facts,
        is_clean=not has_user_logs or (there / _CLEAN_MARKER).exists(),
        partitions=len(logs),
        segments=segments,
        old_segments=old,
        bad_checkpoints=bad,
    )


def _is_partition(name: str) -> bool:
    topic, _, number = name.rpartition("-")
    return bool(topic) and number.isdigit()


def _segments(logs: list[Path]) -> Iterator[Path]:
    left = SEGMENTS_MAX
    for log in sorted(logs):
        for segment in sorted(log.glob("*.log")):
            if left == 0:
                return
            left -= 1
            yield segment


def _magic_of(segment: Path) -> int | None:
    """Return the message format of a segment's first batch; None if it has none."""
    with segment.open("rb") as file:
        head = file.read(MAGIC_AT + 1)
    return head[MAGIC_AT] if len(head) > MAGIC_AT else None


def _has_known_version(path: Path) -> bool:
    """Say whether a checkpoint file is absent, empty, or of the known version."""
    try:
        with path.open(encoding="utf-8") as file:
            first = file.readline().strip()
    except FileNotFoundError:
        return True
    except UnicodeDecodeError:
        return False
    return first in ("", _CHECKPOINT_VERSION)
