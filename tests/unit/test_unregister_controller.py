"""UnregisterController (KIP-1312): the rules in Kafka's order, and the record."""

import pytest
from controller_images import after, image_of

from ottla.controller.register_controller import decide_unregister_controller
from ottla.metadata.metadata_versions import MetadataVersion
from ottla.metadata.replay import replay
from ottla.metadata.replay_fault import ReplayFault
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.metadata_cluster import (
    RegisterControllerRecord,
    UnregisterControllerRecord,
)
from ottla.protocol.messages.unregister_controller import UnregisterControllerRequest

IV1, IV2 = MetadataVersion.IBP_4_4_IV1, MetadataVersion.IBP_4_4_IV2
VOTER, GONE, UNKNOWN = 1, 7, 9


def image_at(level: MetadataVersion):
    return image_of(RegisterControllerRecord(VOTER), RegisterControllerRecord(GONE), version=level)


@pytest.mark.parametrize(
    ("level", "controller_id", "code", "text"),
    [
        (IV1, VOTER, ErrorCode.INVALID_REQUEST, "because it is part of the voter set"),
        (IV2, VOTER, ErrorCode.INVALID_REQUEST, "because it is part of the voter set"),
        (IV1, GONE, ErrorCode.UNSUPPORTED_VERSION, "too old to support controller unregistration"),
        (IV1, UNKNOWN, ErrorCode.UNSUPPORTED_VERSION, "too old"),
        (IV2, UNKNOWN, ErrorCode.CONTROLLER_ID_NOT_REGISTERED, "9 is not currently registered"),
    ],
)
def test_refusals_come_in_the_order_of_kafka(
    level: MetadataVersion, controller_id: int, code: ErrorCode, text: str
) -> None:
    request = UnregisterControllerRequest(controller_id)
    decision = decide_unregister_controller(image_at(level), request, {VOTER})
    assert decision.reply.error_code == code
    assert text in (decision.reply.error_message or "")
    assert not decision.records


def test_registration_of_a_controller_that_left_the_quorum_is_removed() -> None:
    image = image_at(IV2)
    request = UnregisterControllerRequest(GONE)
    decision = decide_unregister_controller(image, request, {VOTER})
    assert decision.reply.error_code == ErrorCode.NONE
    assert set(after(image, decision).cluster.controllers) == {VOTER}


def test_record_for_an_unknown_controller_is_a_replay_fault() -> None:
    with pytest.raises(ReplayFault, match="controller 9"):
        replay(image_at(IV2), UnregisterControllerRecord(UNKNOWN))
