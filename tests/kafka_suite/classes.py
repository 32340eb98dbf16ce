"""Finds the test classes of Apache Kafka's jars that start brokers.

A class starts brokers if it, or a class that it extends, names one of the classes that we replace
or that start brokers through them. It has tests if it, or a class that it extends, names one of
JUnit's or Kafka's annotations of tests. Only the constant pool of a class file is read.
"""

import re
import struct
import zipfile
from collections.abc import Iterable, Iterator
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
TESTS = (
    b"Lorg/junit/jupiter/api/Test;",
    b"Lorg/junit/jupiter/api/RepeatedTest;",
    b"Lorg/junit/jupiter/params/ParameterizedTest;",
    b"Lorg/apache/kafka/common/test/api/ClusterT",
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
    names_test: bool


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
        names_test=any(annotation in pool for annotation in TESTS),
    )


def starting_brokers(files: Iterable[ClassFile]) -> list[str]:
    """Return the names of the concrete test classes that start brokers, sorted.

    A nested class runs with the class around it.
    """
    by_name = {file.name: file for file in files}

    def ancestry(name: str) -> Iterator[ClassFile]:
        while file := by_name.get(name):
            yield file
            name = file.parent

    return sorted(
        file.name.replace("/", ".")
        for file in by_name.values()
        if not file.is_abstract
        and "$" not in file.name
        and any(parent.names_test for parent in ancestry(file.name))
        and any(parent.names_seam for parent in ancestry(file.name))
    )


def of_jars(paths: Iterable[Path]) -> dict[str, str]:
    """Return the test classes that start brokers, each with the artifact of its jar."""
    artifacts: dict[str, str] = {}
    files: list[ClassFile] = []
    for path in paths:
        for file in _files_of(path):
            files.append(file)
            artifacts[file.name.replace("/", ".")] = artifact_of(path)
    return {name: artifacts[name] for name in starting_brokers(files)}


def artifact_of(jar: Path) -> str:
    """Return the name of the artifact: ``kafka_2.13`` of ``kafka_2.13-4.2.1-test.jar``."""
    return re.sub(r"-\d+\.\d+\.\d+(-test)?\.jar$", "", jar.name)


def _files_of(path: Path) -> Iterator[ClassFile]:
    with zipfile.ZipFile(path) as jar:
        for name in jar.namelist():
            if name.endswith(".class") and not name.startswith("META-INF"):
                yield parse(jar.read(name))
