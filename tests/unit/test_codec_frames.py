"""Produce rejects frames that some consumers cannot decompress."""

import pytest
from codec_frames import NOW, RECORDS, Frame, all_frames

from ottla.api.produce.record_validation import rules_of, validate_batch
from ottla.config.generated import TopicConfig
from ottla.protocol.faults import InvalidRecord
from ottla.protocol.records.batch import Compression
from ottla.protocol.records.reader import read_records
from ottla.protocol.types import Millis

FRAMES = all_frames()


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame.name)
def test_produce_rejects_frames_that_consumers_cannot_decompress(frame: Frame) -> None:
    batch, rules = frame.batch(), rules_of(TopicConfig())
    if not frame.is_taken:
        with pytest.raises(InvalidRecord):
            validate_batch(memoryview(batch), rules, Millis(NOW))
        return
    assert validate_batch(memoryview(batch), rules, Millis(NOW)) == batch
    assert read_records(batch) == RECORDS


def test_stored_lz4_with_linked_blocks_is_readable() -> None:
    (linked,) = (frame for frame in FRAMES if frame.name == "lz4: linked blocks")
    assert linked.codec is Compression.LZ4
    assert read_records(linked.batch()) == RECORDS
