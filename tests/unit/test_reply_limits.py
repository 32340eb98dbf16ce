"""A small request may name a thing with many rows any number of times: the reply is bounded."""

import asyncio
from typing import Any

import pytest
from controller_images import image_of

from ottla.api.cluster.describe_settings import KEYS_MAX, DescribeHandlers
from ottla.api.surface.pieces import in_pieces
from ottla.api.surface.replies import ROWS_MAX, ReplyTooLong, collect, finish, finished
from ottla.api.surface.routes import Caller, Route, Routes
from ottla.api.surface.table import SURFACE
from ottla.metadata.configs import ConfigResourceType
from ottla.protocol.api_keys import ApiKey, Listener
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import Request
from ottla.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.runtime.ports import Address
from ottla.server import dispatch
from ottla.server.api_versions import ApiVersions
from ottla.server.dispatch import Call, Dispatcher
from ottla.server.events import NoEvents

CALLER = Caller("User:alice", None, Address("192.0.2.1", 1), "PLAINTEXT")
BROKER, GROUP = ConfigResourceType.BROKER.value, ConfigResourceType.GROUP.value


def described(*resources: DescribeConfigsResource) -> list[Any]:
    handlers = DescribeHandlers(1, image_of, {})
    request = DescribeConfigsRequest(list(resources), include_documentation=True)
    return list(finish(handlers.describe_configs_steps(CALLER, request, 4)).results)


@pytest.mark.parametrize(("kind", "name"), [(BROKER, "1"), (GROUP, "g")])
def test_resource_that_is_described_many_times_is_made_once(kind: int, name: str) -> None:
    first, second = described(*[DescribeConfigsResource(kind, name, None)] * 2)
    assert first.configs and first.configs is second.configs
    count = ROWS_MAX // len(first.configs) + 1
    with pytest.raises(ReplyTooLong):
        described(*[DescribeConfigsResource(kind, name, None)] * count)


def test_groups_that_do_not_exist_share_their_rows() -> None:
    first, second = described(*(DescribeConfigsResource(GROUP, name, None) for name in "ab"))
    assert (first.resource_name, second.resource_name) == ("a", "b")
    assert first.configs is second.configs


def test_keys_that_a_client_lists_are_bounded() -> None:
    many = DescribeConfigsResource(BROKER, "1", ["x"] * (KEYS_MAX + 1))
    few = DescribeConfigsResource(BROKER, "1", ["num.partitions"] * KEYS_MAX)
    refused, served = described(many, few)
    assert refused.error_code == ErrorCode.INVALID_REQUEST and not refused.configs
    assert [row.name for row in served.configs] == ["num.partitions"]


def test_rows_of_steps_are_bounded() -> None:
    assert len(finish(collect(range(10), lambda _: 5))) == 10
    with pytest.raises(ReplyTooLong):
        finish(collect(range(ROWS_MAX), lambda _: 100))


@pytest.mark.slow
def test_rows_of_pieces_are_bounded() -> None:
    members, calls = [Member()] * 1000, 0

    def handle(
        caller: Caller, request: ConsumerGroupDescribeRequest, version: int
    ) -> ConsumerGroupDescribeResponse:
        nonlocal calls
        calls += 1
        groups = [DescribedGroup(group_id=name, members=members) for name in request.group_ids]
        return ConsumerGroupDescribeResponse(groups=groups)

    row = SURFACE[ApiKey.CONSUMER_GROUP_DESCRIBE].broker
    assert row is not None
    serve = in_pieces(handle, row.lists)
    reply: Any = asyncio.run(
        finished(serve(CALLER, ConsumerGroupDescribeRequest(["a", "b", "a"]), 1))
    )
    assert [group.group_id for group in reply.groups] == ["a", "b", "a"]
    assert calls == 3, "each group has a turn of its own: it may have any number of members"
    request = ConsumerGroupDescribeRequest(["a"] * (ROWS_MAX // 1000 + 10))
    with pytest.raises(ReplyTooLong):
        asyncio.run(finished(serve(CALLER, request, 1)))


def test_bytes_of_a_reply_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "BYTES_MAX", 100_000)
    routes = Routes(Listener.BROKER, ())
    dispatcher = Dispatcher("X", routes, ApiVersions(routes), NoEvents())
    request = Request(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, 1, None, memoryview(b""))
    call = Call(request, Route(request.key, lambda *_: MetadataResponse()), None, holds_frame=False)
    group = DescribedGroup(group_id="g" * 1000, assignor_name="x" * 1000)
    finish(dispatcher.encode_steps(call, ConsumerGroupDescribeResponse(groups=[group] * 10)))
    with pytest.raises(ReplyTooLong):
        finish(dispatcher.encode_steps(call, ConsumerGroupDescribeResponse(groups=[group] * 1000)))
