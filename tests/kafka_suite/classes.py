"""Finds the test classes of Apache Kafka's jars that start brokers.

A class starts brokers if it, or a class that it extends, names one of the classes that we replace
or that start brokers through them. Only the constant pool of a class file is read.
"""

import struct
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SEAMS = (
    b"org/apache/kafka/common/test/KafkaClusterTestKit",
    # The annotations ClusterTest, ClusterTests and ClusterTemplate:
    b"Lorg/apache/kafka/common/test/api/ClusterT",
    b"kafka/server/QuorumTestHarness",
    b"EmbeddedKafkaCluster",
    b"EmbeddedConnectCluster",
)
_ABSTRACT = 0x0400
# Sizes of the entries of a constant pool (JVMS 4.4), without their tags; 1 is a string.
_SIZES = {
    3: 4,
    4: 4,
    5: 8,
    6: 8,
    7: 2,
    8: 2,
    9: 4,
    10: 4,
    11: 4,
    12: 4,
    15: 3,
    16: 2,
    17: 4,
    18: 4,
    19: 2,
    20: 2,
}


@dataclass(frozen=True, slots=True)
class ClassFile:
    """What a class file says about its class."""

    name: str
    parent: str
    is_abstract: bool
    names_seam: bool


def parse(data: bytes) -> ClassFile:
    """Return name, parent and seam of a class file."""
    (count,) = struct.unpack_from(">H", data, 8)
    strings: dict[int, bytes] = {}
    classes: dict[int, int] = {}
    position, index = 10, 1
    while index < count:
        tag = data[position]
        if tag == 1:
            (length,) = struct.unpack_from(">H", data, position + 1)
            strings[index] = data[position + 3 : position + 3 + length]
            position += 3 + length
        else:
            if tag == 7:
                (classes[index],) = struct.unpack_from(">H", data, position + 1)
            position += 1 + _SIZES[tag]
        index += 2 if tag in (5, 6) else 1  # long and double take two entries
    flags, this_class, super_class = struct.unpack_from(">HHH", data, position)
    pool = b"\n".join(strings.values())
    return ClassFile(
        name=strings[classes[this_class]].decode(),
        parent=strings[classes[super_class]].decode() if super_class else "",
        is_abstract=bool(flags & _ABSTRACT),
        names_seam=any(seam in pool for seam in SEAMS),
    )


def starting_brokers(files: Iterable[ClassFile]) -> list[str]:
    """Return the names of the concrete test classes that start brokers, sorted."""
    by_name = {file.name: file for file in files}

    def reaches_seam(name: str) -> bool:
        while file := by_name.get(name):
            if file.names_seam:
                return True
            name = file.parent
        return False

    return sorted(
        file.name.replace("/", ".")
        for file in by_name.values()
        if file.name.endswith("Test") and not file.is_abstract and reaches_seam(file.name)
    )


def of_jars(paths: Iterable[Path]) -> list[str]:
    """Return the test classes of these jars that start brokers."""
    files = []
    for path in paths:
        with zipfile.ZipFile(path) as jar:
            names = [name for name in jar.namelist() if name.endswith(".class")]
            files += [parse(jar.read(name)) for name in names if not name.startswith("META-INF")]
    return starting_brokers(files)
