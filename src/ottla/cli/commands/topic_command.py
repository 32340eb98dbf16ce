"""``ottla topic``: topics and their partitions."""

from typing import Annotated

import typer

from ottla.cli.commands.topic_placement import elect, reassign
from ottla.cli.connecting.pairs import parse_pairs
from ottla.cli.connecting.session import describe_refusals, first_error, with_cluster
from ottla.cli.options import (
    BOOTSTRAP_DEFAULT,
    BootstrapOption,
    OutputOption,
    answer,
    answer_each,
    say,
)
from ottla.cli.terminal.completion import complete_topics
from ottla.cli.terminal.failures import fail
from ottla.cli.terminal.rendering import Row
from ottla.client.admin import (
    DEFAULT,
    Change,
    ConfigChange,
    ConfigSource,
    NewTopic,
    Resource,
    add_partitions,
    alter_configs,
    create_topic,
    delete_topics,
    describe_configs,
    describe_topics,
    list_topics,
)
from ottla.client.cluster import Cluster, Refused
from ottla.client.offset_spec import EARLIEST, LATEST, AtTime, BadOffset, parse_offset
from ottla.client.offsets import list_offsets, resolve
from ottla.operations.internal_topics import is_internal
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataResponseTopic
from ottla.protocol.types import TopicPartition, Uuid
from ottla.protocol.uuids import uuid_text

app = typer.Typer(
    help="Create, list, describe, alter and delete topics.",
    no_args_is_help=True,
    add_completion=False,
)
app.command("reassign")(reassign)
app.command("elect")(elect)

Name = Annotated[str, typer.Argument(help="The topic.", autocompletion=complete_topics)]
Names = Annotated[list[str], typer.Argument(help="The topics.", autocompletion=complete_topics)]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", help="Topic setting: key=value; may be repeated."),
]


@app.command("list")
def show_list(
    context: typer.Context,
    *,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """List topics."""
    found = with_cluster(bootstrap, list_topics)
    rows = [_summary(topic) for topic in found if internal or not is_internal(topic)]
    hint = "; --internal shows internal ones" if found and not internal else ""
    empty = f"no topics; create one with `ottla topic create NAME`{hint}"
    answer(context, output, rows, empty=empty)


def _summary(topic: MetadataResponseTopic) -> Row:
    replicas = [len(each.replica_nodes) for each in topic.partitions]
    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "replication_factor": max(replicas, default=0),
        "internal": is_internal(topic),
    }


@app.command("create")
def create(
    context: typer.Context,
    name: Name,
    *,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            "-p",
            help="Number of partitions; default: the cluster's num.partitions.",
        ),
    ] = DEFAULT,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor", "-r", help="Replication factor; default: the cluster's."
        ),
    ] = DEFAULT,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if the topic exists.")
    ] = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Create a topic."""
    wanted = NewTopic(name, partitions, replication_factor, parse_pairs(config, "--config"))

    async def work(cluster: Cluster) -> Row:
        try:
            made = await create_topic(cluster, wanted)
        except Refused as refused:
            if not (if_not_exists and refused.code == ErrorCode.TOPIC_ALREADY_EXISTS):
                raise
            say(f"{name} already exists")
            (there,) = await describe_topics(cluster, [name])
            replicas = len(there.partitions[0].replica_nodes)
            return _made(name, len(there.partitions), replicas, there.topic_id)
        # The next command may ask another broker.
        await cluster.wait_until_known(name)
        return _made(name, made.num_partitions, made.replication_factor, made.topic_id)

    answer(context, output, [with_cluster(bootstrap, work)])


def _made(name: str, partitions: int, replication_factor: int, topic_id: Uuid) -> Row:
    return {
        "name": name,
        "partitions": partitions,
        "replication_factor": replication_factor,
        "topic_id": uuid_text(topic_id),
    }


@app.command("describe")
def describe(
    context: typer.Context,
    names: Names,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show leaders, replicas, in-sync replicas and settings of topics."""

    async def work(cluster: Cluster) -> list[Row]:
        return [await _description(cluster, each) for each in await describe_topics(cluster, names)]

    found = with_cluster(bootstrap, work)
    answer_each(context, output, found)


async def _description(cluster: Cluster, topic: MetadataResponseTopic) -> Row:
    configs = await describe_configs(cluster, Resource.TOPIC, topic.name or "")
    partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
    return {
        "name": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "internal": is_internal(topic),
        "configs": {
            each.name: each.value
            for each in configs
            if ConfigSource(each.config_source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
        },
        "partitions": [
            {
                "partition": each.partition_index,
                "leader": each.leader_id if each.leader_id >= 0 else None,
                "epoch": each.leader_epoch,
                "replicas": each.replica_nodes,
                "isr": each.isr_nodes,
                "offline": each.offline_replicas,
            }
            for each in partitions
        ],
    }


@app.command("alter")
def alter(
    context: typer.Context,
    name: Name,
    *,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="New total number of partitions.")
    ] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", "-d", help="Key to reset to its default.")
    ] = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Add partitions, or change settings of a topic."""
    changes = [Change(key, value) for key, value in parse_pairs(config, "--config").items()]
    changes += [Change(key, None, ConfigChange.DELETE) for key in delete_config or ()]
    if partitions is None and not changes:
        raise typer.BadParameter("give --partitions, --config or --delete-config")

    async def work(cluster: Cluster) -> Row:
        if partitions is not None:
            await add_partitions(cluster, name, partitions)
        if changes:
            await alter_configs(cluster, Resource.TOPIC, name, changes)
        (topic,) = await describe_topics(cluster, [name])
        return _summary(topic)

    answer(context, output, [with_cluster(bootstrap, work)])


@app.command("delete")
def delete(
    context: typer.Context,
    names: Names,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Delete topics with all their records."""

    async def work(cluster: Cluster) -> tuple[dict[str, Refused | None], list[str]]:
        reply = await delete_topics(cluster, names)
        return reply, await describe_refusals(cluster, reply.values())

    reply, refusals = with_cluster(bootstrap, work)
    answer(context, output, [{"deleted": name} for name, refused in reply.items() if not refused])
    if refusals:
        fail("\n".join(refusals), first_error(reply.values()))


@app.command("offsets")
def offsets(
    context: typer.Context,
    names: Names,
    *,
    time: Annotated[
        str | None,
        typer.Option(
            "--time", "-t", help="beginning, end, -N or @milliseconds; default: both ends."
        ),
    ] = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show the first and next offset of each partition, or the offset at a time."""
    try:
        spec = None if time is None else parse_offset(time)
    except BadOffset as error:
        raise typer.BadParameter(str(error), param_hint="--time") from error

    async def work(cluster: Cluster) -> list[Row]:
        partitions = [
            TopicPartition(name, each)
            for name in names
            for each in (await cluster.topic(name)).partitions
        ]
        if spec is not None and not isinstance(spec, AtTime):
            at = await resolve(cluster, dict.fromkeys(partitions, spec), is_committed_only=False)
            return [{**_named(each), "offset": at[each]} for each in partitions]
        if isinstance(spec, AtTime):
            found = await list_offsets(cluster, dict.fromkeys(partitions, spec.timestamp))
            return [{**_named(each), "offset": found[each]} for each in partitions]
        return await _both_ends(cluster, partitions)

    answer(context, output, with_cluster(bootstrap, work))


async def _both_ends(cluster: Cluster, partitions: list[TopicPartition]) -> list[Row]:
    first = await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    after = await list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    return [
        {
            **_named(each),
            "first": first[each],
            "next": after[each],
            "offsets": (after[each] or 0) - (first[each] or 0),
        }
        for each in partitions
    ]


def _named(partition: TopicPartition) -> dict[str, str | int]:
    return {"topic": partition.topic, "partition": partition.partition}
