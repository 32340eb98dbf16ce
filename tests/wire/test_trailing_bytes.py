"""Bytes after the last field of a request are ignored, by every API in every version.

Kafka's broker does not check for them, and librdkafka sends some: three bytes too many with
Metadata, one with AlterUserScramCredentials.
"""

import struct
from collections.abc import Iterator

import pytest
from one_node import Line, OneNode, one_node, settings

from ottla.protocol.api_keys import APIS, ApiKey, Listener
from ottla.protocol.codec import decode
from ottla.protocol.frames import parse_response_header, request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import request_class
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.schema import Message
from ottla.runtime.ports import Address

API_VERSIONS = 4


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneNode]:
    with one_node(settings(tmp_path_factory.mktemp("node"))) as running:
        yield running


def ask(line: Line, key: ApiKey, version: int, body: Message, trailing: bytes = b"") -> bytes:
    """Send a request with bytes behind it; return the body of its reply."""
    frame = bytes(request_frame(RequestHeader(key, version, 7, "test"), body))
    line.send(struct.pack(">i", len(frame) - 4 + len(trailing)) + frame[4:] + trailing)
    correlation_id, reply = parse_response_header(key, version, memoryview(line.frame()))
    assert correlation_id == 7
    return bytes(reply)


def served(address: Address) -> list[tuple[ApiKey, int]]:
    """Return every API and version that a listener advertises."""
    with Line(address) as line:
        reply = ask(line, ApiKey.API_VERSIONS, API_VERSIONS, ApiVersionsRequest("test", "1"))
    found = decode(ApiVersionsResponse, API_VERSIONS, reply)
    return [
        (ApiKey(api.api_key), version)
        for api in found.api_keys
        for version in range(api.min_version, api.max_version + 1)
        if APIS[ApiKey(api.api_key)].has(version)  # Produce 0 to 2 are advertised and not served
    ]


def request(key: ApiKey) -> Message:
    return ProduceRequest(acks=-1) if key is ApiKey.PRODUCE else request_class(key)()


@pytest.mark.parametrize("kind", [Listener.BROKER, Listener.CONTROLLER])
def test_every_api_and_version_ignores_a_trailing_byte(node: OneNode, kind: Listener) -> None:
    at = node.address if kind is Listener.BROKER else node.node.controller_addr
    assert at is not None
    refused = []
    apis = served(at)
    for key, version in apis:
        with Line(at) as line:
            try:
                ask(line, key, version, request(key), b"\x01")
            except ConnectionError as error:
                refused.append(f"{key.title} v{version}: {error}")
    assert len(apis) > 60
    assert refused == []
