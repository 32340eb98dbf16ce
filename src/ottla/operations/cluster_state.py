"""Find out how a cluster is, in limited time and also when most of it is gone.

One broker that answers is enough. It describes brokers, partitions and the quorum as it knows them;
whether the others answer is tried from here, all of them at once. What does not answer in time is
part of the result.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from ottla.client.admin import describe_cluster, list_topics
from ottla.client.admin_quorum import DescribedQuorum, describe_quorum
from ottla.client.bootstrap import reason_of
from ottla.client.cluster import ClientOptions, ClientPorts, Cluster, Refused
from ottla.client.connection import Connection
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.faults import Fault
from ottla.protocol.messages.describe_cluster import DescribeClusterBroker
from ottla.protocol.messages.metadata import MetadataResponseTopic
from ottla.runtime.ports import Address, Network
from ottla.security.sasl.credentials import LoginFailed

ANSWER_MS: Final = 1200
"""How long a broker may take to accept a connection, and the quorum to be described."""
DIAL_S: Final = 0.4
"""How long a controller may take to accept a connection."""
DIALS_MAX: Final = 100
"""How many connections are opened at once."""


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a cluster."""

    cluster_id: str
    brokers: Sequence[DescribeClusterBroker]
    topics: Sequence[MetadataResponseTopic]
    unreachable: Mapping[int, str] = {}
    """The brokers that do not answer, with the reason."""
    quorum: DescribedQuorum | None = None
    quorum_failure: str = ""
    """Why there is no ``quorum``."""
    reached_voters: frozenset[int] = frozenset()
    """The voters that answer. One that is no broker counts while the quorum has a leader."""


Hint = Callable[[Refused, ApiKey], str]
"""Returns the end of the message of a refusal: what the user may do about it."""


def no_hint(refused: Refused, api: ApiKey) -> str:
    """Add nothing to the message of a refusal."""
    return ""


async def observe(cluster: Cluster, hint: Hint = no_hint) -> ClusterState:
    """Return the state of a cluster.

    Raises:
        Refused: a broker refuses to describe brokers or topics. NoBroker: no broker answers.
    """
    reply = await describe_cluster(cluster)
    topics = await list_topics(cluster)
    brokers = sorted(reply.brokers, key=lambda broker: broker.broker_id)
    async with asyncio.TaskGroup() as tasks:
        # Sent last: the replies to one connection come in order, and this one may take long.
        asked = tasks.create_task(_quorum(cluster, hint))
        reached = tasks.create_task(
            reach_all(
                cluster.ports,
                cluster.options,
                {each.broker_id: Address(each.host, each.port) for each in brokers},
            )
        )
    unreachable = {
        broker: reason for broker, reason in reached.result().items() if reason is not None
    }
    quorum, failure = asked.result()
    voters: frozenset[int] = frozenset()
    if quorum is not None:
        voters = await _reached_voters(cluster.ports.network, quorum, reached.result())
    return ClusterState(
        cluster_id=reply.cluster_id,
        brokers=brokers,
        topics=topics,
        unreachable=unreachable,
        quorum=quorum,
        quorum_failure=failure,
        reached_voters=voters,
    )


Key = TypeVar("Key")


async def reach_all(
    ports: ClientPorts, options: ClientOptions, addresses: Mapping[Key, Address]
) -> dict[Key, str | None]:
    """Connect to brokers; return why each does not answer, None for one that does."""
    places = asyncio.Semaphore(DIALS_MAX)

    async def reach(address: Address) -> str | None:
        async with places:
            return await _reach(ports, options, address)

    async with asyncio.TaskGroup() as tasks:
        made = {key: tasks.create_task(reach(at)) for key, at in addresses.items()}
    return {key: task.result() for key, task in made.items()}


async def _reach(ports: ClientPorts, options: ClientOptions, address: Address) -> str | None:
    """Return why no broker answers at an address, within `ANSWER_MS`; None if one does."""
    connection_options = replace(options.connection, connect_timeout_ms=ANSWER_MS)
    try:
        connection = await Connection.open(
            ports.network, address, client_id=options.client_id, options=connection_options
        )
    except LoginFailed as error:
        return f"login failed: {error}"
    except (OSError, Fault) as error:
        return reason_of(error).removeprefix(f"{address}: ")
    await connection.close()
    return None


async def _quorum(cluster: Cluster, hint: Hint) -> tuple[DescribedQuorum | None, str]:
    """Return the quorum, or why it is not described."""
    try:
        async with asyncio.timeout(ANSWER_MS / 1000):
            return await describe_quorum(cluster), ""
    except TimeoutError:
        return None, f"no answer within {ANSWER_MS / 1000:g} s"
    except Refused as error:
        return None, f"{error}{hint(error, ApiKey.DESCRIBE_QUORUM)}"
    except (OSError, Fault) as error:
        return None, str(error)


async def _reached_voters(
    network: Network, quorum: DescribedQuorum, brokers: Mapping[int, str | None]
) -> frozenset[int]:
    """Return the voters that answer as brokers, and the others that accept a connection.

    Controllers that are no brokers may be out of reach from here: they are tried only if they have
    no leader. With a leader, a voter whose broker does not answer is tried, too: while a quorum is
    repaired, a node may run as a controller alone.
    """
    voters = {each.replica_id for each in quorum.state.current_voters}
    silent = {voter for voter in voters if brokers.get(voter) is not None}
    others = voters - brokers.keys()
    tried = silent if quorum.has_leader else others
    async with asyncio.TaskGroup() as tasks:
        dials = {
            voter: tasks.create_task(_accepts(network, quorum.addresses.get(voter, ())))
            for voter in tried
        }
    accepted = {voter for voter, dial in dials.items() if dial.result()}
    return frozenset(voters - silent - tried | accepted)


async def _accepts(network: Network, addresses: Iterable[Address]) -> bool:
    """Return whether one of the addresses accepts a connection within `DIAL_S`."""
    for address in addresses:
        try:
            async with asyncio.timeout(DIAL_S):
                transport, _ = await network.dial(address, asyncio.Protocol)
        except (OSError, TimeoutError):
            continue
        transport.close()
        return True
    return False
