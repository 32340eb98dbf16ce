"""``ottla tier``: the segments of topics in remote storage, and whether they are all there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.connecting.session import with_cluster
from ottla.cli.connecting.settings_file import load_settings
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    BootstrapOption,
    BytesOption,
    OutputOption,
    answer,
    say,
)
from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.progress import WorkProgress
from ottla.cli.terminal.rendering import Row, exact_bytes
from ottla.client.admin import topics_with
from ottla.client.cluster import Cluster
from ottla.config.problems import ConfigError
from ottla.node.broker.tiering_config import tiering_settings
from ottla.operations.counting import plural
from ottla.operations.sizes import ByteCount
from ottla.protocol.messages.metadata import MetadataResponseTopic
from ottla.protocol.uuids import uuid_text
from ottla.runtime.disk import RealDisk
from ottla.runtime.randomness import SystemRandom
from ottla.runtime.worker import InlineWorker
from ottla.tiering.segment_metadata import SegmentMetadata, SegmentState
from ottla.tiering.segment_store import SegmentStore, StorePorts
from ottla.tiering.store_settings import StoreSettings, open_store
from ottla.tiering.verification import (
    Finding,
    find_orphans,
    read_metadata,
    verify_segments,
)

app = typer.Typer(
    help="Show and verify the segments in remote storage.",
    no_args_is_help=True,
    add_completion=False,
)

Topics = Annotated[
    list[str] | None,
    typer.Argument(help="Show only this topic; default: all topics. May be repeated."),
]


@app.command("status")
def status(
    context: typer.Context,
    topics: Topics = None,
    *,
    in_bytes: BytesOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show how much of each partition is in remote storage.

    Partitions whose topic has remote.storage.enable=true are shown before their first copy, too.
    """

    async def work(cluster: Cluster) -> list[Row]:
        caches = await read_metadata(cluster)
        copied = [_summary(cache.all()) for cache in caches.values() if len(cache)]
        known = {_identity(row) for row in copied}
        enabled = await topics_with(cluster, "remote.storage.enable", "true")
        empty = [row for row in _nothing_copied(enabled) if _identity(row) not in known]
        wanted = [row for row in copied + empty if not topics or row["topic"] in topics]
        return sorted(wanted, key=lambda row: (str(row["topic"]), row["partition"]))

    rows = with_cluster(bootstrap, work)
    empty = "no topic has remote.storage.enable=true, and no segment is in remote storage"
    answer(context, output, exact_bytes(rows) if in_bytes else rows, empty=empty)


def _is_wanted(metadata: SegmentMetadata, topics: list[str] | None) -> bool:
    return not topics or metadata.topic in topics


def _identity(row: Row) -> tuple[object, object]:
    return row["topic_id"], row["partition"]


def _nothing_copied(topics: Sequence[MetadataResponseTopic]) -> list[Row]:
    return [
        {
            "topic": topic.name or "",
            "partition": each.partition_index,
            "topic_id": uuid_text(topic.topic_id),
            "segments": 0,
            "size": ByteCount(0),
            "first_offset": None,
            "last_offset": None,
            "unfinished": 0,
        }
        for topic in topics
        for each in topic.partitions
    ]


def _summary(segments: Sequence[SegmentMetadata]) -> Row:
    done = [each for each in segments if each.state is SegmentState.COPY_SEGMENT_FINISHED]
    return {
        "topic": segments[0].topic,
        "partition": segments[0].partition.partition,
        "topic_id": uuid_text(segments[0].partition.topic_id),
        "segments": len(done),
        "size": ByteCount(sum(each.size for each in done)),
        "first_offset": min((each.start_offset for each in done), default=None),
        "last_offset": max((each.end_offset for each in done), default=None),
        "unfinished": len(segments) - len(done),
    }


@app.command("list")
def show_list(
    context: typer.Context,
    topics: Topics = None,
    *,
    in_bytes: BytesOption = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show every segment in remote storage, also those being copied or deleted."""

    async def work(cluster: Cluster) -> list[Row]:
        segments = [
            each for cache in (await read_metadata(cluster)).values() for each in cache.all()
        ]
        wanted = [each for each in segments if _is_wanted(each, topics)]
        return [_row(each) for each in sorted(wanted, key=_place)]

    rows = with_cluster(bootstrap, work)
    empty = "no segment is in remote storage"
    answer(context, output, exact_bytes(rows) if in_bytes else rows, empty=empty)


def _place(metadata: SegmentMetadata) -> tuple[str, int, int]:
    return metadata.topic, metadata.partition.partition, metadata.start_offset


def _row(metadata: SegmentMetadata) -> Row:
    return {
        "topic": metadata.topic,
        "partition": metadata.partition.partition,
        "first_offset": metadata.start_offset,
        "last_offset": metadata.end_offset,
        "size": ByteCount(metadata.size),
        "max_timestamp": metadata.max_timestamp,
        "leader_epochs": ",".join(str(entry.epoch) for entry in metadata.epochs),
        "state": metadata.state.name,
        "segment": uuid_text(metadata.segment_id.id),
    }


@app.command("verify")
def verify(
    context: typer.Context,
    settings: Annotated[
        Path,
        typer.Option(
            "--settings", "-s", help="The server.properties of a broker: which store it uses."
        ),
    ],
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Read every object and compare it with its checksum; list objects without metadata.

    Exits 1 if anything is missing, changed or superfluous. A broker that copies meanwhile may make
    an object appear superfluous: run it again.
    """
    place = _store_of(settings)

    async def work(cluster: Cluster) -> tuple[str, list[Finding]]:
        caches = await read_metadata(cluster)
        segments = [each for cache in caches.values() for each in cache.all()]
        finished = [each for each in segments if each.state is SegmentState.COPY_SEGMENT_FINISHED]
        progress = WorkProgress(cluster.ports.clock, "verified", "segments", len(finished))
        progress.bytes_total = sum(each.size for each in finished)
        objects = open_store(place)
        ports = StorePorts(objects, RealDisk(), InlineWorker(), SystemRandom())
        findings: list[Finding] = []
        try:
            async for read, finding in verify_segments(SegmentStore(ports, place.prefix), finished):
                progress.done += 1
                progress.bytes += read.size
                progress.show()
                findings += [] if finding is None else [finding]
            findings += await find_orphans(objects, place.prefix, segments)
        finally:
            text = progress.end()
        return text, findings

    text, findings = with_cluster(bootstrap, work)
    answer(context, output, [{"object": each.key, "problem": each.problem} for each in findings])
    if findings:
        fail(f"{text}: {plural(len(findings), 'problem')} found")
    say(f"{text}: no problems found")


def _store_of(path: Path) -> StoreSettings:
    loaded = load_settings(path, [])
    try:
        found = tiering_settings(loaded.broker, loaded.static, "")
    except ConfigError as error:
        fail(f"{path}: {error}")
    if found is None:
        fail(f"{path}: remote.log.storage.system.enable is off, so there is no remote storage")
    return found.store
