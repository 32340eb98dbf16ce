"""Metadata of all topics from encoded rows: the same bytes as the general reply."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.api.cluster.metadata import ClusterHandlers
from ottla.api.cluster.topic_rows import SURPLUS_MAX, VIEWS_MAX, RowMemory
from ottla.api.security.access import OPEN, Access
from ottla.api.surface.replies import ITEMS_PER_STEP, Body, finish
from ottla.api.surface.routes import Caller
from ottla.metadata.image import EMPTY, Image
from ottla.metadata.replay import replay_all
from ottla.protocol.codec import encode
from ottla.protocol.internal.metadata_cluster import (
    BrokerEndpoint,
    FeatureLevelRecord,
    RegisterBrokerRecord,
)
from ottla.protocol.internal.metadata_topics import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.types import ZERO_UUID, Uuid
from ottla.runtime.ports import Address
from ottla.security.acl import AclOperation, ResourceType

ME = Caller("User:ANONYMOUS", "x", Address("127.0.0.1", 1), "PLAINTEXT")
VERSIONS = range(14)
ALL = MetadataRequest(None)


def topic_id(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def broker(node_id: int, *, fenced: bool = False) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=node_id,
        broker_epoch=node_id,
        incarnation_id=topic_id(node_id),
        end_points=[
            BrokerEndpoint("PLAINTEXT", f"h{node_id}", 9092, 0),
            BrokerEndpoint("INSIDE", f"i{node_id}", 9093, 0),
        ],
        fenced=fenced,
    )


def topic(number: int, partitions: int = 2) -> list[TopicRecord | PartitionRecord]:
    return [
        TopicRecord(f"topic-{number:05}", topic_id(number)),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id(number),
                replicas=[1, 2],
                isr=[1, 2],
                leader=1 + index % 2,
                leader_epoch=3,
                directories=[ZERO_UUID] * 2,
            )
            for index in range(partitions)
        ),
    ]


BASE: Image = replay_all(EMPTY, [FeatureLevelRecord("metadata.version", 29), broker(1), broker(2)])


class Cluster:
    """Handlers whose image the test replaces."""

    def __init__(self, image: Image, access: Access = OPEN) -> None:
        self.image = image
        self.handlers = ClusterHandlers("C", lambda: self.image, lambda: 1, access=access)

    def apply(self, *records: object) -> None:
        self.image = replay_all(self.image, list(records))  # type: ignore[arg-type]

    def packed(self, version: int, caller: Caller = ME) -> bytes:
        return joined(finish(self.handlers.answer_metadata_steps(caller, all_of(version), version)))

    def general(self, version: int, caller: Caller = ME) -> bytes:
        reply = finish(self.handlers.metadata_steps(caller, all_of(version), version))
        return bytes(encode(reply, version))


def all_of(version: int) -> MetadataRequest:
    return MetadataRequest([]) if version == 0 else ALL


def joined(body: Body) -> bytes:
    assert isinstance(body, list)
    return b"".join(bytes(chunk) for chunk in body)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [0, 1, 126, 127, 200])
def test_rows_make_the_bytes_of_the_general_reply(version: int, count: int) -> None:
    records = [record for number in range(count) for record in topic(number)]
    cluster = Cluster(replay_all(BASE, records))
    for _ in range(2):
        assert cluster.packed(version) == cluster.general(version)


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.integers(0, 5)),
        st.tuples(st.just("delete"), st.integers(0, 5)),
        st.tuples(st.just("lead"), st.integers(0, 5)),
        st.tuples(st.just("fence"), st.integers(1, 2)),
        st.tuples(st.just("unfence"), st.integers(1, 2)),
        st.tuples(st.just("ask"), st.sampled_from([0, 1, 8, 12, 13])),
    ),
    max_size=30,
)


@given(CHANGES)
def test_rows_follow_every_change_of_topics_and_brokers(changes: list[tuple[str, int]]) -> None:
    cluster = Cluster(BASE)
    for change, number in changes:
        exists = topic_id(number) in cluster.image.topics.by_id
        if change == "create" and not exists:
            cluster.apply(*topic(number))
        elif change == "delete" and exists:
            cluster.apply(RemoveTopicRecord(topic_id(number)))
        elif change == "lead" and exists:
            cluster.apply(PartitionChangeRecord(0, topic_id(number), leader=2))
        elif change in ("fence", "unfence"):
            cluster.apply(broker(number, fenced=change == "fence"))
        elif change == "ask":
            assert cluster.packed(number) == cluster.general(number)
    assert cluster.packed(13) == cluster.general(13)


def test_row_is_made_anew_when_its_topic_changes() -> None:
    cluster = Cluster(replay_all(BASE, [*topic(1), *topic(2)]))
    before = cluster.packed(12)
    cluster.apply(PartitionChangeRecord(0, topic_id(1), leader=2))
    assert cluster.packed(12) == cluster.general(12) != before


def test_listeners_have_rows_of_their_own() -> None:
    cluster = Cluster(replay_all(BASE, topic(1)))
    inside = Caller("User:ANONYMOUS", "x", Address("127.0.0.1", 1), "INSIDE")
    elsewhere = Caller("User:ANONYMOUS", "x", Address("127.0.0.1", 1), "ELSEWHERE")
    for caller in (ME, inside, elsewhere):
        assert cluster.packed(12, caller) == cluster.general(12, caller)


def test_request_in_progress_does_not_mix_its_brokers_into_later_replies() -> None:
    records = [record for number in range(3 * ITEMS_PER_STEP) for record in topic(number)]
    cluster = Cluster(replay_all(BASE, records))
    steps = cluster.handlers.answer_metadata_steps(ME, ALL, 12)
    next(steps)
    expected = cluster.general(12)
    cluster.apply(broker(2, fenced=True))
    assert cluster.packed(12) == cluster.general(12)
    assert joined(finish(steps)) == expected, "all of it is from one image"
    assert cluster.packed(12) == cluster.general(12)


def test_rows_of_topics_that_a_client_may_not_see_are_left_out() -> None:
    class OnlyOne(Access):
        def allows(
            self,
            caller: Caller,
            operation: AclOperation,
            kind: ResourceType,
            name: str,
            *,
            is_audited: bool = True,
        ) -> bool:
            return name == "topic-00001"

    records = [record for number in range(3) for record in topic(number)]
    cluster = Cluster(replay_all(BASE, records), OnlyOne())
    body = cluster.packed(12)
    assert body == cluster.general(12)
    assert b"topic-00001" in body
    assert b"topic-00000" not in body


def test_requests_for_some_topics_or_for_operations_are_answered_as_messages() -> None:
    cluster = Cluster(replay_all(BASE, topic(1)))
    named = MetadataRequest([MetadataRequestTopic(name="topic-00001")])
    operations = MetadataRequest(None, include_topic_authorized_operations=True)
    for request in (named, operations):
        reply = finish(cluster.handlers.answer_metadata_steps(ME, request, 12))
        assert reply == finish(cluster.handlers.metadata_steps(ME, request, 12))


def test_rows_of_few_views_are_kept_and_the_oldest_is_dropped() -> None:
    memory, brokers, topics = RowMemory(), BASE.cluster.brokers, BASE.topics
    first = memory.view("PLAINTEXT", 0, brokers, topics)
    assert memory.view("PLAINTEXT", 0, brokers, topics) is first
    for version in range(1, VIEWS_MAX + 1):
        memory.view("PLAINTEXT", version, brokers, topics)
    assert memory.view("PLAINTEXT", 0, brokers, topics) is not first


def test_rows_of_deleted_topics_are_bounded() -> None:
    cluster, kept = Cluster(BASE), []
    for first in range(0, 2 * SURPLUS_MAX, 100):
        cluster.apply(*(each for at in range(first, first + 100) for each in topic(at, 1)))
        cluster.packed(12)
        (view,) = cluster.handlers.rows.views()
        kept.append(len(view))
        cluster.apply(*(RemoveTopicRecord(topic_id(at)) for at in range(first, first + 100)))
    assert max(kept) > SURPLUS_MAX, "a few deletions do not make all rows anew"
    assert max(kept) <= SURPLUS_MAX + 3 * 100


def test_names_are_sorted_once_while_topics_stay() -> None:
    memory, topics = RowMemory(), replay_all(BASE, [*topic(2), *topic(1)]).topics
    names = memory.names(topics)
    assert names == ["topic-00001", "topic-00002"]
    assert memory.names(topics) is names
