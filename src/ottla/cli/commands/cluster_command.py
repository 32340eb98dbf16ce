"""``ottla cluster``: members and health of the cluster."""

from collections.abc import Sequence
from typing import Annotated

import typer

from ottla.cli.commands import cluster_features, cluster_quorum
from ottla.cli.commands.reassign_plan import BadPlan, plan_drain
from ottla.cli.commands.reassign_throttle import Move
from ottla.cli.commands.topic_placement import (
    Wait,
    accepted_rows,
    carry_out,
    check_broker,
    moved,
    replicas_of,
    serving_brokers,
)
from ottla.cli.connecting.session import permission_hint, with_cluster
from ottla.cli.options import BOOTSTRAP_DEFAULT, BootstrapOption, OutputOption, answer, say
from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.rendering import Row
from ottla.client.admin import list_topics
from ottla.client.admin_replicas import unregister_broker
from ottla.client.cluster import Cluster
from ottla.operations.cluster_state import ClusterState, observe
from ottla.operations.counting import plural
from ottla.operations.health import find_problems, led_partitions, lost_quorum
from ottla.operations.internal_topics import is_internal
from ottla.protocol.messages.describe_quorum import ResponsePartitionData
from ottla.protocol.messages.metadata import MetadataResponseTopic
from ottla.protocol.types import Millis

app = typer.Typer(
    help="Describe and check the cluster; change voters, features and brokers.",
    no_args_is_help=True,
    add_completion=False,
)


app.add_typer(cluster_quorum.app, name="quorum")
app.add_typer(cluster_features.app, name="features")


@app.command("info")
def info(
    context: typer.Context,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show the cluster's id, brokers and metadata quorum."""
    state, _ = with_cluster(bootstrap, _observe)
    answer(context, output, _info(state))
    lost = lost_quorum(state)
    if lost is not None:
        say(str(lost))


async def _observe(cluster: Cluster) -> tuple[ClusterState, Millis]:
    return await observe(cluster, permission_hint), cluster.ports.clock.now()


def _info(state: ClusterState) -> Row:
    quorum = None if state.quorum is None else state.quorum.state
    leader = None if quorum is None or quorum.leader_id < 0 else quorum.leader_id
    voters = [] if quorum is None else [each.replica_id for each in quorum.current_voters]
    return {
        "cluster_id": state.cluster_id,
        "controller": leader,
        "metadata_epoch": None if quorum is None else quorum.leader_epoch,
        "metadata_offset": None if quorum is None else quorum.high_watermark,
        "voters": voters,
        "observers": [] if quorum is None else [each.replica_id for each in quorum.observers],
        **_counts(state.topics),
        "brokers": _brokers(state),
        "quorum": [] if quorum is None else _quorum(quorum, state),
    }


def _brokers(state: ClusterState) -> list[Row]:
    led = led_partitions(state.topics)
    return [
        {
            "id": each.broker_id,
            "address": f"{each.host}:{each.port}",
            "rack": each.rack,
            "fenced": each.is_fenced,
            "leads": led[each.broker_id],
            "state": _state_of(each.broker_id, state, is_fenced=each.is_fenced),
        }
        for each in state.brokers
    ]


def _state_of(broker: int, state: ClusterState, *, is_fenced: bool) -> str:
    reason = state.unreachable.get(broker)
    if reason is not None:
        return f"no answer: {reason}"
    return "fenced" if is_fenced else "serves"


def _counts(topics: Sequence[MetadataResponseTopic]) -> dict[str, int]:
    """Count topics and partitions of users, and apart from them the internal ones."""
    own = [topic for topic in topics if not is_internal(topic)]
    internal = [topic for topic in topics if is_internal(topic)]
    return {
        "topics": len(own),
        "partitions": sum(len(each.partitions) for each in own),
        "internal_topics": len(internal),
        "internal_partitions": sum(len(each.partitions) for each in internal),
    }


def _quorum(quorum: ResponsePartitionData, state: ClusterState) -> list[Row]:
    """Return each replica of the metadata log, and how many records it is behind the leader."""
    has_leader = quorum.leader_id >= 0
    end = max(
        (
            each.log_end_offset
            for each in quorum.current_voters
            if each.replica_id == quorum.leader_id
        ),
        default=quorum.high_watermark,
    )
    return [
        {
            "replica": each.replica_id,
            "role": "leader" if each.replica_id == quorum.leader_id else role,
            "log_end_offset": each.log_end_offset if each.log_end_offset >= 0 else None,
            "lag": max(0, end - each.log_end_offset)
            if has_leader and each.log_end_offset >= 0
            else None,
            "reachable": each.replica_id in state.reached_voters if role == "voter" else None,
        }
        for role, replicas in (("voter", quorum.current_voters), ("observer", quorum.observers))
        for each in sorted(replicas, key=lambda each: each.replica_id)
    ]


@app.command("health")
def health(
    context: typer.Context,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Check the health of the cluster; exit 1 if there is a problem."""
    state, now = with_cluster(bootstrap, _observe)
    found = find_problems(state, now)
    answer(context, output, [{"subject": each.subject, "problem": each.problem} for each in found])
    lost = lost_quorum(state)
    if lost is not None:
        say(str(lost))
    if found:
        raise typer.Exit(1)
    say("healthy: every broker serves, every partition has a leader and all its replicas")


@app.command("drain")
def drain(
    context: typer.Context,
    broker: Annotated[int, typer.Argument(help="Broker to drain.")],
    *,
    wait: Wait = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Move all replicas of a broker to the other brokers."""

    async def work(cluster: Cluster) -> tuple[list[Row], list[str]]:
        await check_broker(cluster, broker)
        current = replicas_of(await list_topics(cluster))
        locations = await serving_brokers(cluster)
        locations.pop(broker, None)
        changes = plan_drain(current, locations, broker)
        if not changes:
            say(f"broker {broker} has no replicas")
            return [], []
        moves = {name: Move(current[name], then) for name, then in changes.items()}
        return accepted_rows(await carry_out(cluster, moves, is_waiting=wait), moved(changes))

    try:
        rows, refusals = with_cluster(bootstrap, work)
    except BadPlan as error:
        fail(str(error))
    answer(context, output, rows)
    if refusals:
        fail("\n".join(refusals))


@app.command("unregister")
def unregister(
    context: typer.Context,
    broker: Annotated[int, typer.Argument(help="Broker to unregister.")],
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Unregister it even if it still has replicas.")
    ] = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Unregister a broker that is permanently gone."""

    async def work(cluster: Cluster) -> int:
        held = [
            name for name, who in replicas_of(await list_topics(cluster)).items() if broker in who
        ]
        if force or not held:
            await unregister_broker(cluster, broker)
            return 0
        return len(held)

    held = with_cluster(bootstrap, work)
    if held:
        fail(
            f"broker {broker} has {plural(held, 'replica')}; `ottla cluster drain {broker}` moves "
            "them, --force abandons them"
        )
    answer(context, output, [{"unregistered": broker}])
