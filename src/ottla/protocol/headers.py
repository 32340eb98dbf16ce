"""The headers of requests and responses.

    request header v1            request header v2          response header v0, v1
    request_api_key      int16   the same, then             correlation_id  int32
    request_api_version  int16   tagged fields              (v1) tagged fields
    correlation_id       int32
    client_id            nullable string, int16 length in both versions

The version of a header follows from the api key and version in it: v2 (v1 for responses) where
the body is flexible. One exception, so that any client can read the reply to its first
request: the response header of ApiVersions is always v0.
"""

from typing import ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import INT16, INT32, STRING, Field, Message, Schema


class RequestHeader(Message):
    """Header of every request, versions 1-2, flexible from 2."""

    request_api_key: int = 0
    request_api_version: int = 0
    correlation_id: int = 0
    client_id: str | None = ""
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(1, 2),
        flexible=2,
        fields=(
            Field("request_api_key", INT16, (1, 2)),
            Field("request_api_version", INT16, (1, 2)),
            Field("correlation_id", INT32, (1, 2)),
            Field("client_id", STRING, (1, 2), nullable=(1, 2), flexible=False),
        ),
    )


class ResponseHeader(Message):
    """Header of every response, versions 0-1, flexible from 1."""

    correlation_id: int = 0
    SCHEMA: ClassVar[Schema] = Schema(
        versions=(0, 1),
        flexible=1,
        fields=(Field("correlation_id", INT32, (0, 1)),),
    )


def request_header_version(key: ApiKey, version: int) -> int:
    """Return the header version of a request."""
    return 2 if APIS[key].is_flexible(version) else 1


def response_header_version(key: ApiKey, version: int) -> int:
    """Return the header version of a response."""
    return 1 if APIS[key].is_flexible(version) and key is not ApiKey.API_VERSIONS else 0
