"""Registrations of controllers: their endpoints and supported features (KIP-919, KIP-1312).

A registration outlives its controller: until it is removed, the features that it supports limit
those of the cluster.
"""

from collections.abc import Container

from ottla.controller.decision import Decision
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_cluster import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
    UnregisterControllerRecord,
)
from ottla.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from ottla.protocol.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)


def decide_controller_registration(
    image: Image, request: ControllerRegistrationRequest
) -> Decision[ControllerRegistrationResponse]:
    """Register a controller, replacing its earlier registration.

    The caller checks, by the voters, that the node belongs to the quorum.
    """
    version = image.metadata_version()
    if not version.is_controller_registration_supported():
        message = f"metadata.version {version} does not support controller registration"
        code = ErrorCode.UNSUPPORTED_VERSION
        return Decision([], ControllerRegistrationResponse(error_code=code, error_message=message))
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        # There is no ZooKeeper to migrate from; Kafka 4 writes the same.
        zk_migration_ready=False,
        end_points=[
            ControllerEndpoint(at.name, at.host, at.port, at.security_protocol)
            for at in request.listeners
        ],
        features=[
            ControllerFeature(f.name, f.min_supported_version, f.max_supported_version)
            for f in request.features
        ],
    )
    return Decision([Versioned(record, 0)], ControllerRegistrationResponse(error_message=None))


def decide_unregister_controller(
    image: Image, request: UnregisterControllerRequest, voter_ids: Container[int]
) -> Decision[UnregisterControllerResponse]:
    """Remove the registration of a controller that no longer votes."""
    controller_id = request.controller_id
    if controller_id in voter_ids:
        text = f"Cannot unregister controller {controller_id} because it is part of the voter set."
        return _unregister_refused(ErrorCode.INVALID_REQUEST, text)
    if not image.metadata_version().is_controller_unregistration_supported():
        text = "The current MetadataVersion is too old to support controller unregistration."
        return _unregister_refused(ErrorCode.UNSUPPORTED_VERSION, text)
    if controller_id not in image.cluster.controllers:
        text = f"Controller ID {controller_id} is not currently registered."
        return _unregister_refused(ErrorCode.CONTROLLER_ID_NOT_REGISTERED, text)
    record = UnregisterControllerRecord(controller_id)
    return Decision([Versioned(record, 0)], UnregisterControllerResponse())


def _unregister_refused(code: ErrorCode, text: str) -> Decision[UnregisterControllerResponse]:
    return Decision([], UnregisterControllerResponse(error_code=code, error_message=text))
