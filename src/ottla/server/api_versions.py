"""ApiVersions: the APIs and versions of a listener, from the routes that serve them.

- Produce is advertised from version 0 although its first is 3: given a higher one, librdkafka
  assumes a broker that cannot compress (KAFKA-18659). Versions 0-2 close the connection.
- An unknown version of ApiVersions is answered in version 0 with UNSUPPORTED_VERSION and the range
  of ApiVersions alone, so that any client can continue.
- From version 5 on a client may say which cluster and node it expects; another one is answered with
  REBOOTSTRAP_REQUIRED, so that the client looks its cluster up again (KIP-1242).
- Below version 4 a feature that starts at level 0 is left out: those clients reject the 0
  (KIP-1022).
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec

from ottla.api.surface.routes import Caller, Routes
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

SOFTWARE_LENGTH_MAX: Final = 256
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class Features(msgspec.Struct, frozen=True):
    """Levels of features: supported here (first, last), and finalised in the cluster."""

    supported: tuple[tuple[str, int, int], ...] = ()
    finalized: tuple[tuple[str, int], ...] = ()
    epoch: int = -1


def no_features() -> Features:
    """Return no feature: the default of `ApiVersions`."""
    return Features()


class NodeIdentity(msgspec.Struct, frozen=True):
    """The cluster and the node that answer; None and -1 where they are not known."""

    cluster_id: str | None = None
    node_id: int = -1

    def is_expected(self, request: ApiVersionsRequest) -> bool:
        """Return whether a client that named a cluster or a node reached the right one."""
        cluster_id, node_id = request.cluster_id, request.node_id
        is_cluster = cluster_id in (None, self.cluster_id) or self.cluster_id is None
        return is_cluster and (node_id in (-1, self.node_id) or self.node_id == -1)


class ApiVersions(msgspec.Struct, frozen=True):
    """Answers ApiVersions for one listener."""

    routes: Routes
    features: Callable[[], Features] = no_features
    identity: NodeIdentity = NodeIdentity()

    def handle(
        self, caller: Caller, request: ApiVersionsRequest, version: int
    ) -> ApiVersionsResponse:
        """Return what is served; INVALID_REQUEST if the name of the client software is invalid."""
        if version >= 3 and not is_software(request):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if not self.identity.is_expected(request):
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        features = self.features()
        return ApiVersionsResponse(
            api_keys=self._advertised(),
            supported_features=[
                SupportedFeatureKey(name, first, last)
                for name, first, last in features.supported
                if version >= 4 or first > 0
            ],
            finalized_features_epoch=features.epoch,
            finalized_features=[
                FinalizedFeatureKey(name, max_version_level=level, min_version_level=level)
                for name, level in features.finalized
            ],
        )

    def _advertised(self) -> list[ApiVersion]:
        served = dict(self.routes)
        served[ApiKey.API_VERSIONS] = APIS[ApiKey.API_VERSIONS].versions
        return [
            ApiVersion(key, 0 if key is ApiKey.PRODUCE else first, last)
            for key, (first, last) in sorted(served.items())
        ]


def unsupported() -> ApiVersionsResponse:
    """Return the reply, in version 0, to an unknown version of ApiVersions."""
    first, last = APIS[ApiKey.API_VERSIONS].versions
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(ApiKey.API_VERSIONS, first, last)],
    )


def is_software(request: ApiVersionsRequest) -> bool:
    """Say whether the name and version of the client software have the form of KIP-511."""
    return all(
        len(text) <= SOFTWARE_LENGTH_MAX and _SOFTWARE.fullmatch(text)
        for text in (request.client_software_name, request.client_software_version)
    )
