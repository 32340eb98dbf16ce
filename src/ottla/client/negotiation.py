"""Which version of an API a connection uses, without I/O.

`negotiate` is a generator: it yields a request with the version to send it in, and gets the reply.
"""

from collections.abc import Generator
from typing import TypeAlias

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.faults import UnsupportedVersion
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schema import Message, Versions
from ottla.runtime.ports import Address

CORRELATION_ID_MAX = 2**31 - 1

Negotiation: TypeAlias = Generator[tuple[Message, int], Message, ApiVersionsResponse]


def negotiate(address: Address, software_name: str, software_version: str) -> Negotiation:
    """Return the versions of a peer; one that does not know our version replies in version 0.

    Raises:
        UnsupportedVersion: there is no common version of ApiVersions.
    """
    request = ApiVersionsRequest(software_name, software_version)
    version = APIS[ApiKey.API_VERSIONS].versions[1]
    response = yield request, version
    assert isinstance(response, ApiVersionsResponse)
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        offered = {api.api_key: api.max_version for api in response.api_keys}
        version = offered.get(ApiKey.API_VERSIONS, 0)
        if not APIS[ApiKey.API_VERSIONS].has(version):
            raise UnsupportedVersion(f"{address}: supports only ApiVersions v{version}")
        response = yield request, version
        assert isinstance(response, ApiVersionsResponse)
    if response.error_code:
        raise UnsupportedVersion(f"{address}: ApiVersions: error {response.error_code}")
    return response


def versions_of(response: ApiVersionsResponse) -> dict[int, Versions]:
    """Return the versions of each API that a peer supports."""
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


def newest_common(address: Address, key: ApiKey, theirs: Versions | None) -> int:
    """Return the highest version of an API that both sides support. Raises UnsupportedVersion."""
    ours = APIS[key].versions
    if theirs is None or max(ours[0], theirs[0]) > min(ours[1], theirs[1]):
        raise UnsupportedVersion(f"{address}: {key.title} {ours}, the node supports {theirs}")
    return min(ours[1], theirs[1])


def reply_version(key: ApiKey, version: int, body: memoryview) -> int:
    """Return the version of a reply: ApiVersions is refused in version 0."""
    if key is not ApiKey.API_VERSIONS or version == 0:
        return version
    code = int.from_bytes(body[:2], "big", signed=True)
    return 0 if code == ErrorCode.UNSUPPORTED_VERSION else version


def api_of(request: Message) -> ApiKey:
    """Return the API of a request."""
    assert request.SCHEMA.api_key is not None, "only a request has an api key"
    return ApiKey(request.SCHEMA.api_key)
