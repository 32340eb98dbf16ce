"""``ottla cluster quorum``: describe the metadata quorum, add and remove voters (KIP-853)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from ottla.cli.connecting.session import permission_hint, with_cluster
from ottla.cli.connecting.settings_file import load_settings
from ottla.cli.options import BOOTSTRAP_DEFAULT, BootstrapOption, OutputOption, answer, say
from ottla.cli.terminal.failures import fail, reason_of
from ottla.cli.terminal.rendering import Row
from ottla.client.admin import describe_cluster
from ottla.client.admin_quorum import DescribedQuorum, add_voter, describe_quorum, remove_voter
from ottla.client.admin_replicas import unregister_controller
from ottla.client.cluster import Cluster
from ottla.config.addresses import BadAddress, parse_host_port
from ottla.config.loading import Loaded
from ottla.node.directories.node_directories import metadata_directory
from ottla.operations.cluster_state import ClusterState, observe
from ottla.operations.health import VOTER_SILENT_MS, lost_quorum
from ottla.protocol.faults import UnsupportedVersion
from ottla.protocol.messages.describe_quorum import ReplicaState
from ottla.protocol.types import Millis, Uuid
from ottla.protocol.uuids import parse_uuid, uuid_text
from ottla.runtime.disk import RealDisk
from ottla.runtime.ports import Address
from ottla.storage.directory.meta_properties import MetaPropertiesRefused, read_meta_properties

LISTENER_DEFAULT: Final = "CONTROLLER"

app = typer.Typer(
    help="Describe the metadata quorum; add and remove voters.",
    no_args_is_help=True,
    add_completion=False,
)


class BadVoter(Exception):
    """The voter to add or remove is not, or not safely, what the user means."""


class Candidate(msgspec.Struct, frozen=True):
    """A controller that is to become a voter. ``directory_id`` None: look it up."""

    node_id: int
    directory_id: Uuid | None
    listeners: Mapping[str, Address]


# -- rules -----------------------------------------------------------------------------------


def replica_rows(state: ClusterState, now: Millis) -> list[Row]:
    """Return the voters and observers with their progress."""
    assert state.quorum is not None
    quorum = state.quorum.state
    replicas = [*quorum.current_voters, *quorum.observers]
    end = max(
        (each.log_end_offset for each in replicas if each.replica_id == quorum.leader_id),
        default=-1,
    )
    voters = {each.replica_id for each in quorum.current_voters}
    replicas.sort(key=lambda each: (each.replica_id not in voters, each.replica_id))
    return [
        {
            "node": each.replica_id,
            "role": _role(each, quorum.leader_id, voters),
            "address": ",".join(map(str, state.quorum.addresses.get(each.replica_id, ()))) or None,
            "lag": _lag(each.log_end_offset, end),
            "fetched_ms_ago": _age(each.last_fetch_timestamp, now),
            "reachable": (
                each.replica_id in state.reached_voters if each.replica_id in voters else None
            ),
            "directory_id": uuid_text(each.replica_directory_id),
        }
        for each in replicas
    ]


def _lag(log_end: int, leader_end: int) -> int | None:
    return max(0, leader_end - log_end) if min(log_end, leader_end) >= 0 else None


def _role(replica: ReplicaState, leader_id: int, voters: set[int]) -> str:
    if replica.replica_id == leader_id:
        return "leader"
    return "voter" if replica.replica_id in voters else "observer"


def _age(timestamp: int, now: Millis) -> int | None:
    return max(0, now - timestamp) if timestamp >= 0 else None


def voter_to_remove(
    quorum: DescribedQuorum, node_id: int, directory_id: Uuid | None, now: Millis, *, force: bool
) -> ReplicaState:
    """Return the voter to remove.

    Raises:
        BadVoter: there is none, or the rest would have no majority that fetches.
    """
    _require_leader(quorum)
    voters = quorum.state.current_voters
    named = [
        each
        for each in voters
        if each.replica_id == node_id and directory_id in (None, each.replica_directory_id)
    ]
    if not named:
        ids = ", ".join(str(each.replica_id) for each in voters)
        which = "" if directory_id is None else " with this directory id"
        raise BadVoter(f"node {node_id} is no voter{which}; the voters are {ids}")
    rest = [each for each in voters if each is not named[0]]
    if not rest:
        raise BadVoter(f"node {node_id} is the only voter; add another one first")
    silent = [each.replica_id for each in rest if _is_silent(quorum, each, now)]
    if not force and len(rest) - len(silent) <= len(rest) // 2:
        lost = ", ".join(map(str, silent))
        raise BadVoter(
            f"without node {node_id} the quorum would have no majority: {lost} did not fetch for "
            f"{VOTER_SILENT_MS // 1000} s. Start or remove what is lost first; --force removes "
            f"{node_id} all the same"
        )
    return named[0]


def _require_leader(quorum: DescribedQuorum) -> None:
    if not quorum.has_leader:
        raise BadVoter(
            "the metadata quorum has no leader, so its voters cannot be changed; "
            "`ottla cluster health` says what to do"
        )


def _is_silent(quorum: DescribedQuorum, voter: ReplicaState, now: Millis) -> bool:
    if voter.replica_id == quorum.state.leader_id:
        return False
    return voter.last_fetch_timestamp < 0 or now - voter.last_fetch_timestamp > VOTER_SILENT_MS


def directory_to_add(quorum: DescribedQuorum, node_id: int) -> Uuid:
    """Return the directory id of a controller that runs and is no voter yet.

    Raises:
        BadVoter: it is a voter already, or it does not follow the metadata log.
    """
    _require_leader(quorum)
    if any(each.replica_id == node_id for each in quorum.state.current_voters):
        raise BadVoter(f"node {node_id} is a voter already")
    for each in quorum.state.observers:
        if each.replica_id == node_id:
            return each.replica_directory_id
    raise BadVoter(
        f"node {node_id} does not follow the metadata log. Format it with --no-initial-controllers "
        "and start it; or give --directory-id, which is in its meta.properties"
    )


UNREGISTER_UNSUPPORTED = (
    "the cluster's metadata.version is too old to unregister controllers; "
    "`ottla cluster features upgrade -f metadata.version=4.4-IV2` raises it"
)


# -- commands --------------------------------------------------------------------------------


@app.command("describe")
def describe(
    context: typer.Context,
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Show the leader, the voters and observers, and how far each has fetched."""

    async def work(cluster: Cluster) -> tuple[ClusterState, Millis]:
        return await observe(cluster, permission_hint), cluster.ports.clock.now()

    state, now = with_cluster(bootstrap, work)
    lost = lost_quorum(state)
    if state.quorum is None:
        fail(str(lost))
    quorum = state.quorum.state
    answer(
        context,
        output,
        {
            "leader": quorum.leader_id if quorum.leader_id >= 0 else None,
            "epoch": quorum.leader_epoch,
            "high_watermark": quorum.high_watermark,
            "replicas": replica_rows(state, now),
        },
    )
    if lost is not None:
        say(str(lost))


DirectoryIdOption = Annotated[
    str | None,
    typer.Option("--directory-id", metavar="ID", help="Id of its metadata directory."),
]


@app.command("add")
def add(
    context: typer.Context,
    node: Annotated[
        int | None, typer.Argument(help="Controller to add; or give its --config.")
    ] = None,
    *,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="HOST:PORT", help="Address of its controller listener."),
    ] = None,
    listener: Annotated[
        str, typer.Option("--listener", metavar="NAME", help="Name of that listener.")
    ] = LISTENER_DEFAULT,
    directory_id: DirectoryIdOption = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="Its server.properties, instead of all of these."),
    ] = None,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Add a running controller to the voters; refused until it has caught up."""
    if config is not None:
        candidate = _from_settings(load_settings(config, []))
    elif node is None or address is None:
        raise typer.BadParameter("give the node and its --address, or its --config")
    else:
        listeners = {listener.upper(): _address(address)}
        candidate = Candidate(node, _directory_id(directory_id), listeners)

    async def work(cluster: Cluster) -> Row:
        cluster_id = (await describe_cluster(cluster)).cluster_id
        quorum = await describe_quorum(cluster)
        directory = candidate.directory_id or directory_to_add(quorum, candidate.node_id)
        await add_voter(cluster, cluster_id, candidate.node_id, directory, candidate.listeners)
        return {"added": candidate.node_id, "directory_id": uuid_text(directory)}

    try:
        row = with_cluster(bootstrap, work)
    except BadVoter as error:
        fail(str(error))
    answer(context, output, [row])


@app.command("remove")
def remove(
    context: typer.Context,
    node: Annotated[int, typer.Argument(help="Voter to remove.")],
    *,
    directory_id: DirectoryIdOption = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Remove it even if the others have no majority that fetches."),
    ] = False,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Remove a voter, whether it runs or not; the others must have a majority."""
    directory = _directory_id(directory_id)

    async def work(cluster: Cluster) -> Row:
        cluster_id = (await describe_cluster(cluster)).cluster_id
        quorum = await describe_quorum(cluster)
        now = cluster.ports.clock.now()
        voter = voter_to_remove(quorum, node, directory, now, force=force)
        await remove_voter(cluster, cluster_id, node, voter.replica_directory_id)
        return {"removed": node, "directory_id": uuid_text(voter.replica_directory_id)}

    try:
        row = with_cluster(bootstrap, work)
    except BadVoter as error:
        fail(str(error))
    answer(context, output, [row])


@app.command("unregister")
def unregister(
    context: typer.Context,
    node: Annotated[int, typer.Argument(help="Controller to unregister.")],
    *,
    bootstrap: BootstrapOption = BOOTSTRAP_DEFAULT,
    output: OutputOption = None,
) -> None:
    """Unregister a controller that is permanently gone and no voter any more."""

    async def work(cluster: Cluster) -> None:
        quorum = await describe_quorum(cluster)
        if any(each.replica_id == node for each in quorum.state.current_voters):
            raise BadVoter(
                f"controller {node} is a voter; `ottla cluster quorum remove {node}` removes it "
                "from the voters first"
            )
        try:
            await unregister_controller(cluster, node)
        except UnsupportedVersion as error:
            raise BadVoter(UNREGISTER_UNSUPPORTED) from error

    try:
        with_cluster(bootstrap, work)
    except BadVoter as error:
        fail(str(error))
    answer(context, output, [{"unregistered": node}])


def _directory_id(text: str | None) -> Uuid | None:
    try:
        return None if text is None else parse_uuid(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--directory-id") from error


def _address(text: str) -> Address:
    try:
        parsed = parse_host_port(text)
    except BadAddress as error:
        raise typer.BadParameter(str(error), param_hint="--address") from error
    return Address(parsed.host, parsed.port)


def _from_settings(loaded: Loaded) -> Candidate:
    """Return the controller that a server.properties describes; exit 1 if it is not formatted."""
    try:
        meta = read_meta_properties(RealDisk(), metadata_directory(loaded.broker))
    except (MetaPropertiesRefused, OSError) as error:
        fail(reason_of(error))
    if meta is None or meta.directory_id is None:
        fail(f"{metadata_directory(loaded.broker)} is not formatted; use `ottla format` first")
    listeners = {
        each.name: Address(at.host, at.port)
        for each in loaded.listeners.all
        if each.is_controller
        for at in [each.advertised or each.bind]
    }
    if not listeners:
        fail("the settings have no controller listener: `process.roles` must contain controller")
    return Candidate(loaded.broker.node_id, meta.directory_id, listeners)
