"""Metadata snapshots as batches of records, and back."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from ottla.metadata.image import Image, Provenance
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.metadata.replay import replay_all
from ottla.metadata.snapshot_records import BATCH_RECORDS_MAX, refuse_loss, snapshot_records
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.schema import Message


def snapshot_batches(
    image: Image,
    level: MetadataVersion | None = None,
    loss: Callable[[str], object] = refuse_loss,
) -> Iterator[list[Versioned]]:
    """Yield the image as batches of at most `BATCH_RECORDS_MAX` records; see `snapshot_records`."""
    records = snapshot_records(image, level, loss)
    while batch := list(islice(records, BATCH_RECORDS_MAX)):
        yield batch


def snapshot_image(batches: Iterable[Iterable[Message]], provenance: Provenance) -> Image:
    """Return the image that a snapshot's records result in. Raises `ReplayFault`."""
    image = Image(provenance=provenance)
    for batch in batches:
        image = replay_all(image, batch)
    return image
