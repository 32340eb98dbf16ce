"""``ottla cluster``: who is in it, and how it is."""

import typer

from ottla.cli.health import Finding, judge
from ottla.cli.options import BOOTSTRAP_DEFAULT, BootstrapOption, OutputOption, answer, say
from ottla.cli.rendering import Row
from ottla.cli.session import with_cluster
from ottla.client.admin import describe_cluster, describe_quorum, list_topics
from ottla.client.cluster import Cluster

app = typer.Typer(help="The cluster as a whole.", no_args_is_help=True, add_completion=False)


@app.command("info")
def info(
    context: typer.Context,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show the cluster's id, brokers and metadata quorum."""
    answer(context, output, with_cluster(bootstrap, _info))


async def _info(cluster: Cluster) -> Row:
    told = await describe_cluster(cluster)
    quorum = await describe_quorum(cluster)
    topics = await list_topics(cluster)
    return {
        "cluster_id": told.cluster_id,
        "controller": quorum.leader_id,
        "metadata_epoch": quorum.leader_epoch,
        "metadata_offset": quorum.high_watermark,
        "voters": [each.replica_id for each in quorum.current_voters],
        "observers": [each.replica_id for each in quorum.observers],
        "topics": sum(not each.is_internal for each in topics),
        "partitions": sum(len(each.partitions) for each in topics),
        "brokers": [
            {
                "id": each.broker_id,
                "address": f"{each.host}:{each.port}",
                "rack": each.rack,
                "fenced": each.is_fenced,
            }
            for each in sorted(told.brokers, key=lambda each: each.broker_id)
        ],
    }


@app.command("health")
def health(
    context: typer.Context,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Look for what is wrong; exit 1 where something is."""
    found = with_cluster(bootstrap, _findings)
    answer(context, output, [{"subject": each.subject, "problem": each.problem} for each in found])
    if found:
        raise typer.Exit(1)
    say("healthy: every broker serves, every partition has a leader and all its replicas")


async def _findings(cluster: Cluster) -> list[Finding]:
    told = await describe_cluster(cluster)
    quorum = await describe_quorum(cluster)
    return judge(told.brokers, await list_topics(cluster), quorum, cluster.world.clock.now())
