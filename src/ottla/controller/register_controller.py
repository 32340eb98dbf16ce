"""ControllerRegistration: a controller's endpoints and supported features (KIP-919)."""

from ottla.controller.decision import Decision
from ottla.metadata.image import Image
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import Versioned
from ottla.protocol.internal.metadata_cluster import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from ottla.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
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
