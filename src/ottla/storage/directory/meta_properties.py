"""``meta.properties``: the owner of a log directory. Java properties text, version 1.

    version=1
    node.id=1
    cluster.id=MkU3OEVBNTcwNTJENDM2Qg
    directory.id=AAAAAAAAAAEAAAAAAAAAAg

The file keeps a node from using another node's data, so any doubt stops the start with a message
that says what was found where. Only the directory id may be missing: it is generated and written
at the next start (KIP-858).
"""

import re

import msgspec
from msgspec.structs import replace

from ottla.config.properties import BadProperties, from_text
from ottla.protocol.types import Buffer, NodeId, Uuid
from ottla.protocol.uuids import is_reserved, parse_uuid, uuid_text
from ottla.runtime.atomic_file import read_file, replace_file
from ottla.runtime.ports import Disk, Random
from ottla.storage.directory.directory_data import find_data

FILE_NAME = "meta.properties"
VERSION = "1"
RESTORE = (
    "The file says which node owns the directory, so the node does not start: restore it from a "
    "backup, or remove what is left of it and run `ottla format --restore`, which finds its "
    "cluster.id, node.id and directory.id."
)
BYTES_MAX = 64 * 1024  # the file has a handful of short lines

_NODE_ID = re.compile(r"[0-9]{1,10}", re.ASCII)


class MetaPropertiesRefused(Exception):
    """This log directory is not, or not provably, this node's. The node must not start on it."""


class NotFormatted(MetaPropertiesRefused):
    """A log directory was never formatted."""


class MetaProperties(msgspec.Struct, frozen=True):
    """The owner of a log directory. ``directory_id`` is None until it is generated."""

    node_id: NodeId
    cluster_id: str
    directory_id: Uuid | None = None


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """Return a directory's owner; None when it has never been formatted.

    Raises:
        MetaPropertiesRefused: the file is malformed. OSError: it cannot be read.
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
    """Return the owner of a formatted directory after checking that it is this node.

    ``cluster_id`` is the one in the node's other directories; None for the first.

    Raises:
        MetaPropertiesRefused: not formatted, malformed, another node's or another cluster's.
    """
    meta = read_meta_properties(disk, directory)
    if meta is None:
        if (name := find_data(disk, directory)) is not None:
            raise MetaPropertiesRefused(
                f"{directory}: has data ({name}), but no {FILE_NAME}. {RESTORE}"
            )
        raise NotFormatted(f"{directory}: is not formatted: there is no {FILE_NAME}")
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
    """Return ``meta`` with a directory id, generating and writing one if it has none."""
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
    """Parse the file's text.

    Raises:
        ValueError: not version 1, or a property is missing or malformed.
    """
    properties = _properties(data)
    version = properties.get("version", "0")
    if version != VERSION:
        raise ValueError(f"version {version!r}, only version {VERSION} is supported")
    for name in ("node.id", "cluster.id"):
        if not properties.get(name):
            raise ValueError(f"{name} is missing")
    node_id = properties["node.id"]
    if _NODE_ID.fullmatch(node_id) is None:
        raise ValueError(f"node.id is not a number: {node_id!r}")
    directory_id = None
    if "directory.id" not in properties and not bytes(data).endswith((b"\n", b"\r")):
        raise ValueError("the file is truncated")
    if "directory.id" in properties:
        directory_id = parse_uuid(properties["directory.id"])
        if is_reserved(directory_id):
            raise ValueError("directory.id is one of Kafka's reserved ids")
    return MetaProperties(NodeId(int(node_id)), properties["cluster.id"], directory_id)


def _properties(data: Buffer) -> dict[str, str]:
    """Parse Java properties; the last value of a repeated key wins."""
    if len(data) > BYTES_MAX:
        raise ValueError(f"{len(data)} bytes, at most {BYTES_MAX} are expected")
    try:
        settings = from_text(bytes(data).decode("utf-8"))
    except (UnicodeDecodeError, BadProperties) as error:
        raise ValueError(f"not a properties file: {error}") from error
    return {setting.key: setting.value for setting in settings}
