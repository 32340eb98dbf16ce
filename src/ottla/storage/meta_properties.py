"""``meta.properties``: whose log directory this is. Java properties text, version 1.

    version=1
    node.id=1
    cluster.id=MkU3OEVBNTcwNTJENDM2Qg
    directory.id=AAAAAAAAAAEAAAAAAAAAAg

It keeps a node from taking another's data for its own, so every doubt is a refusal with a
text that tells the operator what was found where. Only the directory id may be missing: it
is minted and written at the next start (KIP-858).
"""

import re

import msgspec
from msgspec.structs import replace

from ottla.config.properties import BadProperties, from_text
from ottla.protocol.types import Buffer, NodeId, Uuid
from ottla.protocol.uuids import is_reserved, parse_uuid, uuid_text
from ottla.runtime.atomic_file import read_file, replace_file
from ottla.runtime.ports import Disk, Random

FILE_NAME = "meta.properties"
VERSION = "1"
RESTORE = (
    "It says whose directory this is, so the node does not start: restore it from a backup, or "
    "write it again with the cluster.id, node.id and directory.id that the cluster has for it."
)
BYTES_MAX = 64 * 1024  # a handful of short lines; more is something else

_NODE_ID = re.compile(r"[0-9]{1,10}", re.ASCII)


class MetaPropertiesRefused(Exception):
    """This log directory is not, or not provably, ours. The node must not start on it."""


class MetaProperties(msgspec.Struct, frozen=True):
    """Who owns a log directory. ``directory_id`` is None until one is minted."""

    node_id: NodeId
    cluster_id: str
    directory_id: Uuid | None = None


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """Return a directory's owner; None when it has never been formatted.

    Raises:
        MetaPropertiesRefused: there is a file, and it makes no sense. OSError: unreadable.
    """
    path = f"{directory}/{FILE_NAME}"
    data = read_file(disk, path)
    if data is None:
        return None
    try:
        return decode(data)
    except ValueError as error:
        raise MetaPropertiesRefused(f"{path}: {error}. {RESTORE}") from error


def write_meta_properties(disk: Disk, directory: str, meta: MetaProperties) -> None:
    """Replace the file, durably and as a whole.

    Raises:
        OSError: the old file or the new one is there.
    """
    replace_file(disk, f"{directory}/{FILE_NAME}", encode(meta))


def claim(disk: Disk, directory: str, *, node_id: NodeId, cluster_id: str | None) -> MetaProperties:
    """Return the owner of a formatted directory once it is seen to be this node.

    ``cluster_id`` is what the node's other directories say; None for the first.

    Raises:
        MetaPropertiesRefused: not formatted, garbage, another node's, another cluster's.
    """
    meta = read_meta_properties(disk, directory)
    if meta is None:
        raise MetaPropertiesRefused(
            f"{directory}: no {FILE_NAME}; format the directory before starting on it"
        )
    if meta.node_id != node_id:
        raise MetaPropertiesRefused(
            f"{directory}: belongs to node {meta.node_id}, this is node {node_id}"
        )
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise MetaPropertiesRefused(
            f"{directory}: belongs to cluster {meta.cluster_id!r}, this is cluster {cluster_id!r}"
        )
    return meta


def with_directory_id(
    disk: Disk, directory: str, meta: MetaProperties, random: Random
) -> MetaProperties:
    """Return ``meta`` with its directory id, minted and written first where there is none."""
    if meta.directory_id is not None:
        return meta
    minted = replace(meta, directory_id=random.uuid())
    write_meta_properties(disk, directory, minted)
    return minted


def encode(meta: MetaProperties) -> bytes:
    """Return the file's text."""
    lines = [f"version={VERSION}", f"node.id={meta.node_id}", f"cluster.id={meta.cluster_id}"]
    if meta.directory_id is not None:
        lines.append(f"directory.id={uuid_text(meta.directory_id)}")
    return "".join(f"{line}\n" for line in lines).encode()


def decode(data: Buffer) -> MetaProperties:
    """Read the file's text.

    Raises:
        ValueError: not version 1, or a property missing or malformed.
    """
    properties = _properties(data)
    version = properties.get("version", "0")
    if version != VERSION:
        raise ValueError(f"version {version!r}, only version {VERSION} is known")
    for name in ("node.id", "cluster.id"):
        if not properties.get(name):
            raise ValueError(f"{name} is missing")
    node_id = properties["node.id"]
    if _NODE_ID.fullmatch(node_id) is None:
        raise ValueError(f"node.id is no number: {node_id!r}")
    directory_id = None
    if "directory.id" not in properties and not bytes(data).endswith((b"\n", b"\r")):
        raise ValueError("the file is cut off")
    if "directory.id" in properties:
        directory_id = parse_uuid(properties["directory.id"])
        if is_reserved(directory_id):
            raise ValueError("directory.id is one of Kafka's reserved ids")
    return MetaProperties(NodeId(int(node_id)), properties["cluster.id"], directory_id)


def _properties(data: Buffer) -> dict[str, str]:
    """Read Java properties; a key that comes twice has the later value."""
    if len(data) > BYTES_MAX:
        raise ValueError(f"{len(data)} bytes are too many")
    try:
        settings = from_text(bytes(data).decode("utf-8"))
    except (UnicodeDecodeError, BadProperties) as error:
        raise ValueError(f"no properties: {error}") from error
    return {setting.key: setting.value for setting in settings}
