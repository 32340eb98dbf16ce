"""From the options of ``ottla format`` to the plan of what to write: voters and records."""

import msgspec

from ottla.config.addresses import BadAddress, parse_voter
from ottla.config.loading import Loaded
from ottla.controller.bootstrap import (
    BadBootstrap,
    bootstrap_records,
    feature_levels,
)
from ottla.controller.bootstrap_users import parse_scram
from ottla.metadata.features import KRAFT_VERSION
from ottla.metadata.metadata_versions import (
    DEFAULT_VERSION,
    METADATA_VERSION,
    MetadataVersion,
    from_version_string,
)
from ottla.node.directories.formatting import FormatPlan
from ottla.node.directories.node_directories import all_directories
from ottla.protocol.types import NodeId, Uuid
from ottla.protocol.uuids import is_reserved, parse_uuid
from ottla.raft.core.voters import (
    ALL_KRAFT_VERSIONS,
    Endpoint,
    ReplicaKey,
    Voter,
    VoterSet,
)
from ottla.runtime.ports import Random


class BadFormatOptions(Exception):
    """The options contradict each other or the configuration; the text says what to change."""


class Quorum(msgspec.Struct, frozen=True):
    """The options for the first voters; at most one of the three is given."""

    is_standalone: bool = False
    initial_controllers: str | None = None
    has_no_initial_controllers: bool = False

    @property
    def given(self) -> list[str]:
        """The options that were given."""
        named = {
            "--standalone": self.is_standalone,
            "--initial-controllers": self.initial_controllers is not None,
            "--no-initial-controllers": self.has_no_initial_controllers,
        }
        return [name for name, is_given in named.items() if is_given]


class FormatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command. ``features`` are ``name=level``."""

    cluster_id: str
    quorum: Quorum = Quorum()
    features: tuple[str, ...] = ()
    release_version: str | None = None
    scram: tuple[str, ...] = ()
    is_formatted_ignored: bool = False


def plan_format(loaded: Loaded, options: FormatOptions, random: Random) -> FormatPlan:
    """Return the plan for a node.

    Raises:
        BadFormatOptions: the options contradict each other or the configuration.
    """
    _check_cluster_id(options.cluster_id)
    _check_quorum(loaded, options.quorum)
    directory_id = random.uuid()
    voters = None
    if options.quorum.is_standalone:
        voters = VoterSet((_own_voter(loaded, directory_id),))
    elif options.quorum.initial_controllers is not None:
        voters = _initial_voters(loaded, options.quorum.initial_controllers)
        own = voters.get(NodeId(loaded.broker.node_id))
        assert own is not None
        directory_id = own.key.directory_id
    try:
        levels = _levels(options, is_dynamic=bool(options.quorum.given))
        scram = [parse_scram(text, random) for text in options.scram]
        bootstrap = bootstrap_records(levels, scram, random=random)
    except BadBootstrap as error:
        raise BadFormatOptions(str(error)) from error
    return FormatPlan(
        node_id=NodeId(loaded.broker.node_id),
        cluster_id=options.cluster_id,
        directories=all_directories(loaded.broker),
        metadata_directory_id=directory_id,
        bootstrap=bootstrap,
        voters=voters,
        is_formatted_ignored=options.is_formatted_ignored,
    )


def _check_cluster_id(cluster_id: str) -> None:
    if not cluster_id or len(cluster_id) > 64 or not cluster_id.isascii() or " " in cluster_id:
        raise BadFormatOptions(f"--cluster-id {cluster_id!r}: must be a short name without spaces")


def _check_quorum(loaded: Loaded, quorum: Quorum) -> None:
    config = loaded.broker
    given = quorum.given
    if len(given) > 1:
        raise BadFormatOptions(f"{' and '.join(given)}: only one may be given")
    if config.controller_quorum_voters and given:
        raise BadFormatOptions(
            f"{given[0]}: controller.quorum.voters is set, so the voters are fixed; take one away"
        )
    is_controller = "controller" in config.process_roles
    if not is_controller and given and not quorum.has_no_initial_controllers:
        raise BadFormatOptions(f"{given[0]}: this node is no controller")
    if is_controller and not config.controller_quorum_voters and not given:
        raise BadFormatOptions(
            "controller.quorum.voters is not set on this controller: give one of --standalone, "
            "--initial-controllers, --no-initial-controllers"
        )


def _own_voter(loaded: Loaded, directory_id: Uuid) -> Voter:
    """Return this node as a voter, at its advertised controller listeners."""
    endpoints = []
    for listener in loaded.listeners.all:
        if listener.is_controller:
            at = listener.advertised or listener.bind
            endpoints.append(Endpoint(listener.name, at.host or "localhost", at.port))
    key = ReplicaKey(NodeId(loaded.broker.node_id), directory_id)
    return Voter(key, tuple(endpoints), ALL_KRAFT_VERSIONS)


def _initial_voters(loaded: Loaded, text: str) -> VoterSet:
    listener = loaded.broker.controller_listener_names[0].upper()
    voters: dict[NodeId, Voter] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        voter = _initial_voter(item, listener)
        if voter.key.node_id in voters:
            raise BadFormatOptions(f"--initial-controllers: node {voter.key.node_id} comes twice")
        voters[voter.key.node_id] = voter
    if loaded.broker.node_id not in voters:
        raise BadFormatOptions(
            f"--initial-controllers: this node, {loaded.broker.node_id}, is not among them"
        )
    return VoterSet(tuple(voters.values()))


def _initial_voter(item: str, listener: str) -> Voter:
    """Parse ``id@host:port:directory``."""
    address, _, directory = item.rpartition(":")
    try:
        at = parse_voter(address)
        directory_id = parse_uuid(directory)
    except (BadAddress, ValueError) as error:
        raise BadFormatOptions(
            f"--initial-controllers {item!r}: must be id@host:port:directory-id ({error})"
        ) from error
    if is_reserved(directory_id):
        raise BadFormatOptions(f"--initial-controllers {item!r}: that directory id is reserved")
    endpoint = Endpoint(listener, at.address.host, at.address.port)
    return Voter(ReplicaKey(at.id, directory_id), (endpoint,), ALL_KRAFT_VERSIONS)


def _levels(options: FormatOptions, *, is_dynamic: bool) -> dict[str, int]:
    """Return the level of each feature of the new cluster."""
    given = dict(_parse_feature(text) for text in options.features)
    version = _metadata_version(options, given)
    kraft = 1 if is_dynamic else 0
    if given.setdefault(KRAFT_VERSION, kraft) != kraft:
        raise BadFormatOptions(
            f"--feature {KRAFT_VERSION}={given[KRAFT_VERSION]}: the level follows from how the "
            "quorum is given"
        )
    return feature_levels(version, given)


def _parse_feature(text: str) -> tuple[str, int]:
    name, separator, level = text.partition("=")
    if not separator or not level.strip().isdecimal():
        raise BadFormatOptions(f"--feature {text!r}: must be name=level")
    return name.strip(), int(level)


def _metadata_version(options: FormatOptions, given: dict[str, int]) -> MetadataVersion:
    release = options.release_version
    if release is not None and METADATA_VERSION in given:
        raise BadFormatOptions("--release-version and --feature metadata.version: give one")
    version: MetadataVersion | None = DEFAULT_VERSION
    if release is not None:
        version = from_version_string(release)
    elif METADATA_VERSION in given:
        level = given[METADATA_VERSION]
        version = next((v for v in MetadataVersion if v == level), None)
    if version is None:
        raise BadFormatOptions(
            f"{release or given.get(METADATA_VERSION)}: no release or metadata.version known here"
        )
    return version
