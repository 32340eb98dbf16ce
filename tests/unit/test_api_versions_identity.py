"""ApiVersions 5: a client says which cluster and node it means to reach (KIP-1242)."""

import pytest

from ottla.api.surface.routes import Caller, Routes
from ottla.protocol.api_keys import Listener
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.runtime.ports import Address
from ottla.server.api_versions import ApiVersions, NodeIdentity, no_features

OURS = NodeIdentity("cluster-a", 3)
CALLER = Caller("User:ANONYMOUS", "test", Address("127.0.0.1", 1), "CLIENT")
ROUTES = Routes(Listener.BROKER, ())


def answered(cluster_id: str | None, node_id: int, identity: NodeIdentity = OURS) -> int:
    request = ApiVersionsRequest("client", "1", cluster_id, node_id)
    return ApiVersions(ROUTES, no_features, identity).handle(CALLER, request, 5).error_code


@pytest.mark.parametrize(
    ("cluster_id", "node_id"), [("cluster-a", 3), (None, -1), ("cluster-a", -1), (None, 3)]
)
def test_client_that_reached_its_node_is_answered(cluster_id: str | None, node_id: int) -> None:
    assert answered(cluster_id, node_id) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("cluster_id", "node_id"), [("cluster-b", 3), ("cluster-a", 4), ("cluster-b", -1), (None, 4)]
)
def test_client_of_another_node_has_to_bootstrap_again(
    cluster_id: str | None, node_id: int
) -> None:
    assert answered(cluster_id, node_id) == ErrorCode.REBOOTSTRAP_REQUIRED


def test_server_without_an_identity_accepts_every_client() -> None:
    assert answered("cluster-b", 9, NodeIdentity()) == ErrorCode.NONE
