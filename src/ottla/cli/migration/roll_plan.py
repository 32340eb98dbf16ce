"""The order in which the nodes of a cluster are replaced, one at a time, and the way back. Pure.

Brokers that are not voters come first: the quorum does not change while clients already use the new
nodes. Then controllers that only observe, then voters, and the active controller last of all, so
that the quorum elects a new leader once and not at every step.
"""

from collections.abc import Sequence

import msgspec

from ottla.cli.migration.cluster_facts import ClusterFacts, NodeFacts, Software


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The replacement of one node."""

    number: int
    node_id: int
    role: str
    address: str
    reason: str
    commands: Sequence[str]
    undo: Sequence[str]


def order(nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the nodes in the order of their replacement."""
    return sorted(nodes, key=lambda each: (_rank(each), each.node_id))


def _rank(node: NodeFacts) -> int:
    if node.is_active_controller:
        return 3
    if node.is_voter:
        return 2
    return 0 if node.is_broker else 1


def plan(facts: ClusterFacts, bootstrap: str, *, is_back: bool = False) -> list[Step]:
    """Return the steps that remain: nodes that run the wanted software already are left out.

    ``is_back`` plans the way back to Kafka.
    """
    done = Software.KAFKA if is_back else Software.OTTLA
    left = [each for each in order(facts.nodes) if each.software is not done]
    return [_step(number, node, bootstrap, is_back) for number, node in enumerate(left, start=1)]


def _step(number: int, node: NodeFacts, bootstrap: str, is_back: bool) -> Step:
    wait = f"ottla migrate status -b {bootstrap} --wait"
    there = [*_stop_kafka(), "ottla server server.properties", wait]
    back = [*_stop_ottla(), "bin/kafka-server-start.sh -daemon server.properties", wait]
    commands, undo = (back, there) if is_back else (there, back)
    return Step(
        number=number,
        node_id=node.node_id,
        role=node.role,
        address=node.address,
        reason=_reason(node),
        commands=commands,
        undo=undo,
    )


def _stop_kafka() -> list[str]:
    return ["bin/kafka-server-stop.sh"]


def _stop_ottla() -> list[str]:
    return ["kill -TERM <pid of ottla server>"]


def _reason(node: NodeFacts) -> str:
    if node.is_active_controller:
        return "active controller: last, so that the quorum elects a new leader only once"
    if node.is_voter:
        return "voter: after the brokers, while the other voters keep a majority"
    if node.is_broker:
        return "broker without a vote: the quorum is not touched"
    return "controller without a vote: the quorum is not touched"
