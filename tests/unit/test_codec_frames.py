"""Frames that some consumer cannot unpack are refused when they are produced."""

import pytest
from codec_frames import NOW, RECORDS, Frame, all_frames

from ottla.api.record_validation import rules_of, validate_batch
from ottla.config.generated import TopicConfig
from ottla.protocol.faults import InvalidRecord
from ottla.protocol.records.batch import Compression
from ottla.protocol.records.reader import read_records
from ottla.protocol.types import Millis

FRAMES = all_frames()


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame.name)
def test_produce_takes_only_frames_that_every_consumer_can_unpack(frame: Frame) -> None:
    batch, rules = frame.batch(), rules_of(TopicConfig())
    if not frame.is_taken:
        with pytest.raises(InvalidRecord):
            validate_batch(memoryview(batch), rules, Millis(NOW))
        return
    assert validate_batch(memoryview(batch), rules, Millis(NOW)) == batch
    assert read_records(batch) == RECORDS


def test_stored_lz4_with_linked_blocks_stays_readable() -> None:
    (linked,) = (frame for frame in FRAMES if frame.name == "lz4: linked blocks")
    assert linked.codec is Compression.LZ4
    assert read_records(linked.batch()) == RECORDS
