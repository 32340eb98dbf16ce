"""A mirror between clusters with TLS, SCRAM and an authorizer; ACLs are copied and withdrawn."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from tests.patience import SECONDS_MAX

from ottla.cli.connecting.connection_settings import options_of
from ottla.cli.connecting.session import client_ports, parse_bootstrap
from ottla.client.admin import NewTopic, create_topic
from ottla.client.admin_groups import commit_offsets, committed_offsets
from ottla.client.admin_security import (
    AclFilter,
    create_acls,
    delete_acls,
    list_acls,
    set_password,
)
from ottla.client.cluster import ClientOptions, Cluster
from ottla.client.offset_spec import LATEST
from ottla.client.offsets import list_offsets
from ottla.client.producer import open_producer
from ottla.mirror.metadata_sync import Clusters
from ottla.mirror.service import Mirror, MirrorOptions, open_mirror
from ottla.protocol.types import TopicPartition
from ottla.security.acl import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from ottla.security.sasl.scram import ScramMechanism
from ottla.testing import Cluster as Node
from ottla.testing import run_node

pytestmark = [pytest.mark.xdist_group("mirror")]

QUICK = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
COPIER, PASSWORD = "copier", "copy-that"
MECHANISM = ScramMechanism.SCRAM_SHA_512


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    directory = tmp_path_factory.mktemp("mirror")
    with (
        run_node(directory=directory / "a", config=QUICK, security="sasl_ssl") as source,
        run_node(directory=directory / "b", config=QUICK, security="sasl_ssl") as target,
    ):
        yield source, target


async def open_as(node: Node, user: str | None) -> Cluster:
    """Connect as the cluster's own user, or as another by SCRAM."""
    config = dict(node.access.client_config)
    if user is not None:
        config |= {
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORD,
        }
    options = ClientOptions(connection=options_of(config))
    return await Cluster.open(client_ports(), parse_bootstrap(node.bootstrap), options)


@asynccontextmanager
async def opened(nodes: tuple[Node, Node], user: str | None = None) -> AsyncIterator[Clusters]:
    async with await open_as(nodes[0], user) as one, await open_as(nodes[1], user) as other:
        yield Clusters(one, other)


def allow(
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    principal: str = "User:alice",
    pattern: PatternType = PatternType.LITERAL,
) -> Acl:
    return Acl(kind, name, pattern, principal, "*", operation, PermissionType.ALLOW)


async def acls_of(cluster: Cluster, principal: str = "User:alice") -> set[Acl]:
    return set(await list_acls(cluster, AclFilter(principal=principal)))


def exactly(acl: Acl) -> AclFilter:
    return AclFilter(
        resource_type=ResourceType(acl.resource_type),
        resource_name=acl.resource_name,
        pattern_type=PatternType(acl.pattern_type),
        principal=acl.principal,
        operation=AclOperation(acl.operation),
    )


def options(name: str, topics: str) -> MirrorOptions:
    return MirrorOptions(name=name, topics=re.compile(topics), refresh_s=0.1)


async def produce(cluster: Cluster, topic: str, count: int) -> None:
    async with open_producer(cluster) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=0)


async def switch_over(mirror: Mirror) -> list[str]:
    return await mirror.switch_over(lambda _: None, quiet_s=0.1, timeout_s=SECONDS_MAX)


READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC, GROUP, TRANSACTION = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
)


def test_acls_on_data_are_copied_between_secure_clusters_and_withdrawn(
    nodes: tuple[Node, Node],
) -> None:
    copied = {
        allow(TOPIC, "orders", READ),
        allow(TOPIC, "ord", WRITE, pattern=PatternType.PREFIXED),
        allow(GROUP, "readers", READ),
        allow(TRANSACTION, "writer", WRITE),
    }
    kept_away = {allow(TOPIC, "other", READ), allow(ResourceType.CLUSTER, CLUSTER_NAME, DESCRIBE)}
    own = allow(GROUP, "local", READ)
    withdrawn = allow(GROUP, "readers", READ)

    async def work() -> None:
        async with opened(nodes) as clusters:
            await create_topic(clusters.source, NewTopic("orders", 1))
            await produce(clusters.source, "orders", 20)
            await create_acls(clusters.source, [*copied, *kept_away])
            await create_acls(clusters.target, [own])
            mirror = await open_mirror(clusters, options("secure", "orders"))
            await mirror.refresh()
            assert mirror.problems == {}
            assert await acls_of(clusters.target) == {*copied, own}
            # Another process of the mirror knows which ones it may withdraw.
            await delete_acls(clusters.source, [exactly(withdrawn)])
            again = await open_mirror(clusters, options("secure", "orders"))
            await again.refresh()
            assert await acls_of(clusters.target) == {*copied, own} - {withdrawn}
            assert await switch_over(again) == []
            at = TopicPartition("orders", 0)
            assert await list_offsets(clusters.target, {at: LATEST}) == {at: 20}

    asyncio.run(work())


# What docs/migration.md lists, for all topics and groups.
ALTER, CREATE, CONFIGS = AclOperation.ALTER, AclOperation.CREATE, AclOperation.DESCRIBE_CONFIGS
FROM_SOURCE = [
    (TOPIC, "*", READ),
    (TOPIC, "*", CONFIGS),
    (GROUP, "*", DESCRIBE),
    (ResourceType.CLUSTER, CLUSTER_NAME, DESCRIBE),
]
IN_TARGET = [
    *((TOPIC, "*", each) for each in (READ, WRITE, CREATE, ALTER, CONFIGS)),
    *((TOPIC, "*", each) for each in (AclOperation.ALTER_CONFIGS, AclOperation.DELETE)),
    (GROUP, "*", READ),
    (TRANSACTION, "ottla-mirror.limited", WRITE),
    (ResourceType.CLUSTER, CLUSTER_NAME, ALTER),
]


def test_mirror_needs_no_more_rights_than_the_page_lists(nodes: tuple[Node, Node]) -> None:
    at = TopicPartition("limited", 0)

    async def prepare() -> None:
        async with opened(nodes) as clusters:
            for cluster, rights in ((clusters.source, FROM_SOURCE), (clusters.target, IN_TARGET)):
                await set_password(cluster, COPIER, PASSWORD, [MECHANISM], iterations=4096)
                user = f"User:{COPIER}"
                await create_acls(cluster, [allow(*each, principal=user) for each in rights])
            await create_topic(clusters.source, NewTopic("limited", 1))
            await produce(clusters.source, "limited", 30)
            await commit_offsets(clusters.source, "limited-readers", {at: 12})
            await create_acls(clusters.source, [allow(TOPIC, "limited", READ, "User:bob")])

    async def work() -> None:
        await prepare()
        async with opened(nodes, COPIER) as clusters:
            mirror = await open_mirror(clusters, options("limited", "limited"))
            assert (await switch_over(mirror), mirror.problems) == ([], {})
            assert await list_offsets(clusters.target, {at: LATEST}) == {at: 30}
            assert await committed_offsets(clusters.target, "limited-readers") == {at: 12}
            assert len(await acls_of(clusters.target, "User:bob")) == 1

    asyncio.run(work())


def test_acls_that_the_mirror_may_not_create_are_reported_and_records_copied(
    nodes: tuple[Node, Node],
) -> None:
    at = TopicPartition("reported", 0)

    async def work() -> None:
        async with opened(nodes) as owner:
            for cluster in (owner.source, owner.target):
                await set_password(cluster, "poor", PASSWORD, [MECHANISM], iterations=4096)
                wanted = [allow(TOPIC, "*", AclOperation.ALL, "User:poor")]
                wanted += [allow(GROUP, "*", READ, "User:poor")]
                wanted += [allow(TRANSACTION, "*", WRITE, "User:poor")]
                await create_acls(cluster, wanted)
            await create_topic(owner.source, NewTopic("reported", 1))
            await produce(owner.source, "reported", 5)
        async with opened(nodes, "poor") as clusters:
            mirror = await open_mirror(clusters, options("reported", "reported"))
            copying = asyncio.ensure_future(mirror.run(lambda _: None))
            async with asyncio.timeout(SECONDS_MAX):
                while (  # noqa: ASYNC110 - what is waited for has no event
                    mirror.copier.positions.get(at) != 5 or "ACLs" not in mirror.problems
                ):
                    await asyncio.sleep(0.05)
            assert "CLUSTER_AUTHORIZATION_FAILED" in mirror.problems["ACLs"]
            copying.cancel()
            await asyncio.wait([copying])

    asyncio.run(work())
