"""Transactions and producer ids of another principal: which requests of a client reach them.

The victim has an open transaction. The attacker may use a transactional id of its own, write to the
same topic and read the same group, and it knows the victim's producer id and epoch.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from authorized_requests import GROUP, TOPIC, TRANSACTIONAL_ID, codes
from authorized_session import ALLOW, Session, authorized_node, run
from secure_node import SecureNode
from test_authorization_members import until

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import add_partitions_to_txn as adding
from ottla.protocol.messages import txn_offset_commit as committing
from ottla.protocol.messages import write_txn_markers as marking
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.create_acls import AclCreation
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.reader import Record
from ottla.protocol.records.writer import Producer, build_batch
from ottla.protocol.schema import Message
from ottla.protocol.types import Millis, Offset
from ottla.security.acl import AclOperation, PatternType, ResourceType

VICTIM = "victims-id"
NOT_AUTHORIZED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NOT_ITS_ID = ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    node = authorized_node(tmp_path_factory.mktemp("foreign"))
    running = node.start()
    try:
        yield node
    finally:
        running.stop()


def add(transactional_id: str, producer: Producer) -> Message:
    return adding.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[adding.AddPartitionsToTxnTopic(TOPIC, [0])],
    )


def produce(
    session: Session, transactional_id: str | None, producer: Producer, *, is_transactional: bool
) -> Message:
    batch = build_batch(
        [Record(Offset(0), Millis(0), None, b"v", [])],
        producer=producer,
        is_transactional=is_transactional,
    )
    topic = TopicProduceData(TOPIC, session.topic_id, [PartitionProduceData(0, bytes(batch))])
    return ProduceRequest(transactional_id, -1, 5000, [topic])


def commit_offsets(transactional_id: str, producer: Producer) -> Message:
    row = committing.TxnOffsetCommitRequestPartition(0, 7)
    return committing.TxnOffsetCommitRequest(
        transactional_id,
        GROUP,
        producer.id,
        producer.epoch,
        topics=[committing.TxnOffsetCommitRequestTopic(TOPIC, partitions=[row])],
    )


def refusals(reply: Message) -> set[int]:
    """Return the error codes of a reply; the code of the whole may be 0 beside those of rows."""
    return set(codes(reply)) - {ErrorCode.NONE}


async def begin(session: Session) -> Producer:
    """Begin the victim's transaction, with one record in it; return its producer."""
    init = InitProducerIdRequest(VICTIM, 60_000)
    reply: Any = await until(lambda: session.admin.send(init), lambda each: each.error_code == 0)
    producer = Producer(reply.producer_id, reply.producer_epoch, 0)
    await until(
        lambda: session.admin.send(add(VICTIM, producer), version=3),
        lambda each: not any(codes(each)),
    )
    request = produce(session, VICTIM, producer, is_transactional=True)
    assert set(codes(await session.admin.send(request))) == {0}
    return producer


async def permit(session: Session) -> None:
    """Give the attacker its own transactional id, the topic and the group."""
    for kind, name in (
        (ResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID),
        (ResourceType.TOPIC, TOPIC),
        (ResourceType.GROUP, GROUP),
    ):
        await session.create_acls(
            AclCreation(kind, name, PatternType.LITERAL, "User:alice", "*", AclOperation.ALL, ALLOW)
        )


def test_requests_for_a_foreign_transactional_id_are_not_authorized(secure: SecureNode) -> None:
    async def test(session: Session) -> None:
        producer = await begin(session)
        await permit(session)
        alice = session.alice
        for request, version in (
            (add(VICTIM, producer), 3),
            (AddOffsetsToTxnRequest(VICTIM, producer.id, producer.epoch, GROUP), None),
            (commit_offsets(VICTIM, producer), None),
            (EndTxnRequest(VICTIM, producer.id, producer.epoch, committed=False), None),
            (InitProducerIdRequest(VICTIM, 60_000), None),
            (produce(session, VICTIM, producer, is_transactional=True), None),
            (produce(session, None, producer, is_transactional=True), None),
        ):
            reply = await alice.send(request, version=version)
            assert refusals(reply) == {NOT_AUTHORIZED}, request
        await end(session, producer)

    run(secure, test)


def test_foreign_producer_id_is_refused_under_an_own_transactional_id(secure: SecureNode) -> None:
    async def test(session: Session) -> None:
        producer = await begin(session)
        await permit(session)
        own = TRANSACTIONAL_ID
        foreign = (own, producer.id, producer.epoch)
        for request, version in (
            (add(own, producer), 3),
            (AddOffsetsToTxnRequest(*foreign, GROUP), None),
            (commit_offsets(own, producer), None),
            (EndTxnRequest(*foreign, committed=False), None),
        ):
            reply = await session.alice.send(request, version=version)
            assert refusals(reply) == {NOT_ITS_ID}, request
        taken: Any = await session.alice.send(
            InitProducerIdRequest(own, 60_000, producer.id, producer.epoch)
        )
        assert taken.error_code == ErrorCode.PRODUCER_FENCED
        fresh: Any = await session.alice.send(InitProducerIdRequest(own, 60_000))
        assert fresh.error_code == 0 and fresh.producer_id != producer.id
        await end(session, producer)

    run(secure, test)


def test_markers_and_broker_forms_need_cluster_action(secure: SecureNode) -> None:
    async def test(session: Session) -> None:
        producer = await begin(session)
        await permit(session)
        topic = marking.WritableTxnMarkerTopic(TOPIC, [0])
        marker = marking.WritableTxnMarker(producer.id, producer.epoch, False, [topic], 0)
        one = adding.AddPartitionsToTxnTransaction(
            VICTIM, producer.id, producer.epoch, topics=[adding.AddPartitionsToTxnTopic(TOPIC, [0])]
        )
        for request in (
            marking.WriteTxnMarkersRequest([marker]),
            adding.AddPartitionsToTxnRequest(transactions=[one]),
        ):
            reply = await session.alice.send(request)
            assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED in codes(reply), request
        await end(session, producer)

    run(secure, test)


def test_record_outside_a_transaction_does_not_enter_a_foreign_one(secure: SecureNode) -> None:
    async def test(session: Session) -> None:
        producer = await begin(session)
        await permit(session)
        next_one = Producer(producer.id, producer.epoch, 1)
        reply = await session.alice.send(produce(session, None, next_one, is_transactional=False))
        assert refusals(reply) == {ErrorCode.INVALID_TXN_STATE}
        await end(session, producer)

    run(secure, test)


def test_open_foreign_transaction_takes_records_of_a_client_that_may_write_to_the_topic(
    secure: SecureNode,
) -> None:
    """As in Kafka: a partition asks the coordinator once per transaction, not per request.

    Producer ids are no secrets; WRITE on the topic is the right that counts.
    """

    async def test(session: Session) -> None:
        producer = await begin(session)
        next_one = Producer(producer.id, producer.epoch, 1)
        request = produce(session, TRANSACTIONAL_ID, next_one, is_transactional=True)
        await permit(session)
        assert refusals(await session.alice.send(request)) == set()
        await end(session, producer)

    run(secure, test)


async def end(session: Session, producer: Producer) -> None:
    """Commit the victim's transaction: nobody else has ended or fenced it."""
    request = EndTxnRequest(VICTIM, producer.id, producer.epoch, committed=True)
    reply: Any = await session.admin.send(request, version=4)
    assert reply.error_code == ErrorCode.NONE
