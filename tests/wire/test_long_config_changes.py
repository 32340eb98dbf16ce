"""AlterConfigs and IncrementalAlterConfigs that list more resources than are forwarded at once."""

from collections.abc import Iterator
from typing import Any

import pytest
from one_node import OneNode, ask, one_node, settings

from ottla.api.surface.pieces import ITEMS_PER_PIECE
from ottla.metadata.configs import ConfigResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import alter_configs as whole
from ottla.protocol.messages import incremental_alter_configs as incremental

COUNT = 2 * ITEMS_PER_PIECE + 50
GROUP = ConfigResourceType.GROUP
ENTRY = ("consumer.session.timeout.ms", "50000")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneNode]:
    with one_node(settings(tmp_path_factory.mktemp("node"))) as running:
        yield running


def change(is_incremental: bool, names: list[str]) -> Any:
    if is_incremental:
        row = incremental.AlterConfigsResource
        configs = [incremental.AlterableConfig(ENTRY[0], 0, ENTRY[1])]
        return incremental.IncrementalAlterConfigsRequest([row(GROUP, n, configs) for n in names])
    entries = [whole.AlterableConfig(*ENTRY)]
    return whole.AlterConfigsRequest([whole.AlterConfigsResource(GROUP, n, entries) for n in names])


@pytest.mark.parametrize("is_incremental", [True, False], ids=["incremental", "whole"])
def test_resource_that_occurs_twice_far_apart_is_refused_at_both_places(
    node: OneNode, is_incremental: bool
) -> None:
    names = [f"group-{number}" for number in range(COUNT)]
    names[-1] = names[0]
    reply = ask(node, change(is_incremental, names))
    assert [row.resource_name for row in reply.responses] == names
    refused = [at for at, row in enumerate(reply.responses) if row.error_code]
    assert refused == [0, COUNT - 1]
    codes = {reply.responses[at].error_code for at in refused}
    assert codes == {ErrorCode.INVALID_REQUEST}
