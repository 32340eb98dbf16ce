"""Brokers: the list with the quorum, features and reassignments; one with settings and disks."""

from ottla.client.admin import Resource, alter_configs, describe_cluster, describe_configs
from ottla.client.admin_quorum import describe_features, describe_quorum
from ottla.client.admin_replicas import describe_log_dirs, list_reassignments
from ottla.console.endpoints import Call, Done, Rejected
from ottla.console.handlers.answers import or_else, with_failure
from ottla.console.handlers.overview import quorum_row
from ottla.console.handlers.topics import change_text, config_change, config_rows
from ottla.console.segments import path_of
from ottla.operations.rows import Row


async def brokers(call: Call) -> Row:
    """Return the brokers, the quorum, features and ongoing reassignments."""
    reply = await describe_cluster(call.cluster)
    quorum, failure = await with_failure(_quorum(call), None)
    features = await or_else(describe_features(call.cluster), {})
    moves, moves_failure = await with_failure(list_reassignments(call.cluster), {})
    return {
        "cluster_id": reply.cluster_id,
        "brokers": [
            {
                "id": broker.broker_id,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "is_fenced": broker.is_fenced,
            }
            for broker in sorted(reply.brokers, key=lambda broker: broker.broker_id)
        ],
        "quorum": quorum,
        "quorum_failure": failure,
        "features": [
            {
                "name": name,
                "finalized": level.finalized,
                "lowest": level.lowest,
                "highest": level.highest,
            }
            for name, level in features.items()
        ],
        "reassignments": [
            {
                "partition": str(place),
                "replicas": list(move.replicas),
                "adding": list(move.adding_replicas),
                "removing": list(move.removing_replicas),
            }
            for place, move in sorted(moves.items())
        ],
        "reassignments_failure": moves_failure,
    }


async def _quorum(call: Call) -> Row | None:
    return quorum_row(await describe_quorum(call.cluster))


def _broker_id(call: Call) -> int:
    text = call.names["broker"]
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise Rejected(404, "A broker has a number.")
    return int(text)


async def broker(call: Call) -> Row:
    """Return one broker: settings and log directories."""
    number = _broker_id(call)
    await call.cluster.metadata([])
    if number not in call.cluster.nodes:
        raise Rejected(404, f"There is no broker {number}.")
    configs, failure = await with_failure(
        describe_configs(call.cluster, Resource.BROKER, str(number), with_documentation=True), []
    )
    directories, disk_failure = await with_failure(describe_log_dirs(call.cluster, number), [])
    return {
        "id": number,
        "address": str(call.cluster.nodes[number]),  # type: ignore[index]
        "configs": config_rows(configs),
        "configs_failure": failure,
        "directories": [
            {
                "path": directory.log_dir,
                "error": directory.error_code,
                "partitions": sum(len(topic.partitions) for topic in directory.topics),
                "size": sum(
                    row.partition_size for topic in directory.topics for row in topic.partitions
                ),
                "total": directory.total_bytes if directory.total_bytes >= 0 else None,
                "free": directory.usable_bytes if directory.usable_bytes >= 0 else None,
            }
            for directory in directories
        ],
        "directories_failure": disk_failure,
    }


async def alter_config(call: Call) -> Done:
    """Set a setting of a broker, or remove it."""
    number = str(_broker_id(call))
    change = config_change(call, call.required("key"))
    await alter_configs(call.cluster, Resource.BROKER, number, [change])
    return Done(change_text(change), path_of("/brokers", number) + "#settings")
