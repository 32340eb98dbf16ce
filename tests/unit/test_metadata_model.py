"""Random valid logs: image, delta and snapshot against a naive model."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metadata_model import draw_record, empty, flatten, patched
from metadata_model_rules import play
from metadata_snapshots import snapshot_batches, snapshot_image
from msgspec.structs import replace

from ottla.metadata.delta import delta_between
from ottla.metadata.image import EMPTY, Image, Provenance
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.metadata.replay import apply, replay, replay_all
from ottla.protocol.internal.framing import encode_framed
from ottla.protocol.internal.metadata_cluster import FeatureLevelRecord
from ottla.protocol.internal.metadata_records import decode_metadata_record
from ottla.protocol.schema import Message

pytestmark = pytest.mark.slow

FIRST = FeatureLevelRecord("metadata.version", MetadataVersion.IBP_4_2_IV1)
FIRST_WITH_CORDONS = FeatureLevelRecord("metadata.version", MetadataVersion.IBP_4_3_IV0)


def draw_log(data: st.DataObject, records_max: int = 20) -> list[Message]:
    """Draw a valid log that begins with a metadata.version."""
    model = empty()
    log: list[Message] = [data.draw(st.sampled_from([FIRST, FIRST_WITH_CORDONS]))]
    play(model, log[0])
    for _ in range(data.draw(st.integers(0, records_max))):
        log.append(draw_record(data, model))
        play(model, log[-1])
    return log


def check_derived(image: Image) -> None:
    """Check that the image's derived maps equal the result of a search."""
    topics = image.topics
    assert {t.name: t.id for t in topics.by_id.values()} == dict(topics.ids)
    assert topics.partition_count == sum(len(t.partitions) for t in topics.by_id.values())
    hosted: dict[int, Counter[bytes]] = {}
    for topic in topics.by_id.values():
        for partition in topic.partitions.values():
            for broker in partition.replicas:
                hosted.setdefault(broker, Counter())[topic.id] += 1
    assert {broker: dict(counts) for broker, counts in topics.hosted.items()} == hosted
    for broker in range(5):
        found = [at for at, _ in topics.replicas_on(broker)]
        assert found == sorted(found)
        assert len(found) == sum(hosted.get(broker, Counter()).values())


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_batches_of_records_match_the_model(data: st.DataObject) -> None:
    model, image, offset = empty(), EMPTY, -1
    log = draw_log(data)
    while log:
        size = data.draw(st.integers(1, len(log)))
        batch, log = log[:size], log[size:]
        offset += size
        before = flatten(image)
        for record in batch:
            play(model, record)
        old, (image, delta) = image, apply(image, batch, Provenance(offset))
        assert flatten(image) == model
        assert flatten(old) == before
        assert (delta.old, delta.new) == (old, image) and image.provenance.offset == offset
        assert patched(before, delta) == model
        assert delta.is_empty() == (before == model)
        check_derived(image)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_snapshot_replays_to_the_same_image(data: st.DataObject) -> None:
    image = replace(replay_all(EMPTY, draw_log(data)), provenance=Provenance(7, 2, 99))
    batches = list(snapshot_batches(image))
    wire = [[encode_framed(record) for record in batch] for batch in batches]
    read = [[decode_metadata_record(value).message for value in batch] for batch in wire]
    again = snapshot_image(read, image.provenance)
    assert again == image and hash(again) == hash(image)
    assert [[encode_framed(r) for r in batch] for batch in snapshot_batches(again)] == wire


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_image_equality_does_not_depend_on_history(data: st.DataObject) -> None:
    image = replay_all(EMPTY, draw_log(data))
    [records] = list(snapshot_batches(image))
    messages = [record.message for record in records]
    # A topic must exist before its partitions; everything else may be in any order.
    mixed = data.draw(st.permutations(messages))
    mixed.sort(key=lambda record: type(record).__name__ != "TopicRecord")
    assert replay_all(EMPTY, mixed) == image
    assert replay_all(image, []) is image


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_delta_between_unrelated_images_leads_from_one_to_the_other(data: st.DataObject) -> None:
    one, other = (replay_all(EMPTY, draw_log(data)) for _ in range(2))
    delta = delta_between(one, other)
    assert patched(flatten(one), delta) == flatten(other)
    assert delta_between(one, one).is_empty()


@settings(max_examples=20, deadline=None)
@given(st.data(), st.sampled_from(MetadataVersion))
def test_every_level_writes_records_that_it_can_read_back(
    data: st.DataObject, level: MetadataVersion
) -> None:
    image = replay_all(EMPTY, draw_log(data))
    lost: list[str] = []
    for batch in snapshot_batches(image, level, loss=lost.append):
        for record in batch:
            assert decode_metadata_record(encode_framed(record)).version == record.version
    if level >= MetadataVersion.IBP_4_0_IV1:
        cordons = "the cordoned log directories of brokers"
        assert set(lost) <= ({cordons} if level < MetadataVersion.IBP_4_3_IV0 else set())


def test_replay_of_one_record_equals_apply_of_one() -> None:
    assert replay(EMPTY, FIRST) == apply(EMPTY, [FIRST])[0]
