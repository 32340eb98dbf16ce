"""AllocateProducerIds and ControllerRegistration, rule by rule."""

import pytest
from controller_images import after, broker, image_of
from msgspec.structs import replace

from ottla.controller.producer_ids import decide_allocate_producer_ids
from ottla.controller.register_controller import decide_controller_registration
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.metadata.registrations import Endpoint, VersionRange
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from ottla.protocol.types import ProducerId, Uuid


def test_producer_id_blocks_are_consecutive() -> None:
    image = image_of(broker(1, epoch=5), broker(2, epoch=6))
    given = []
    for broker_id, epoch in ((1, 5), (2, 6), (1, 5)):
        decision = decide_allocate_producer_ids(image, AllocateProducerIdsRequest(broker_id, epoch))
        given.append((decision.reply.producer_id_start, decision.reply.producer_id_len))
        image = after(image, decision)
    assert given == [(0, 1000), (1000, 1000), (2000, 1000)]
    assert image.next_producer_id == 3000


@pytest.mark.parametrize(("broker_id", "epoch"), [(1, 4), (1, 6), (9, 5)])
def test_broker_with_another_epoch_gets_no_block(broker_id: int, epoch: int) -> None:
    image = image_of(broker(1, epoch=5))
    decision = decide_allocate_producer_ids(image, AllocateProducerIdsRequest(broker_id, epoch))
    assert decision.reply.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert decision.records == []


@pytest.mark.parametrize(
    ("start", "is_left"), [((1 << 63) - 1001, True), ((1 << 63) - 1000, False)]
)
def test_exhausted_producer_ids_are_an_error(start: int, is_left: bool) -> None:
    image = replace(image_of(broker(1)), next_producer_id=ProducerId(start))
    decision = decide_allocate_producer_ids(image, AllocateProducerIdsRequest(1, 5))
    assert bool(decision.records) == is_left
    if is_left:
        assert after(image, decision).next_producer_id == start + 1000
    else:
        assert decision.reply.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


REGISTRATION = ControllerRegistrationRequest(
    controller_id=3000,
    incarnation_id=Uuid(b"i" * 16),
    zk_migration_ready=True,
    listeners=[Listener("CONTROLLER", "h", 9093, 1)],
    features=[Feature("kraft.version", 0, 1)],
)


def test_controller_registration_is_written() -> None:
    image = image_of()
    decision = decide_controller_registration(image, REGISTRATION)
    assert decision.reply.error_code == 0
    found = after(image, decision).cluster.controllers[3000]
    assert found.incarnation_id == b"i" * 16
    assert dict(found.listeners) == {"CONTROLLER": Endpoint("h", 9093, 1)}
    assert dict(found.features) == {"kraft.version": VersionRange(0, 1)}
    assert not found.zk_migration_ready


def test_controller_registration_requires_3_7() -> None:
    image = image_of(version=MetadataVersion.IBP_3_6_IV2)
    decision = decide_controller_registration(image, REGISTRATION)
    assert decision.reply.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert decision.records == []
