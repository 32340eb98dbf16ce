"""One warm Spark session and one node for all tests of the pipeline.

A session takes seconds to start, and its first Python source as long again: with ``--dist
loadgroup`` all tests of this directory run in one xdist worker (`tests/conftest.py`) and share it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark_session import build_session, java_missing

from ottla.testing import Cluster, run_node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from source_cluster import SourceCluster

HERE = Path(__file__).parent

# Warnings of pyspark itself, which would be errors here.
QUIET = (
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
    "ignore:unclosed <socket.socket.*raddr=\\('127.0.0.1':ResourceWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE not in item.path.parents:
            continue
        for each in QUIET:
            item.add_marker(pytest.mark.filterwarnings(each))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """The session of this xdist worker."""
    if reason := java_missing():
        pytest.skip(reason)
    session = build_session(tmp_path_factory.mktemp("warehouse"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node process for tests with topics and groups of their own."""
    directory = tmp_path_factory.mktemp("spark-node")
    with run_node(processes=True, directory=directory) as node:
        yield node


@pytest.fixture
def cluster(spark_node: Cluster, request: pytest.FixtureRequest, tmp_path: Path) -> "SourceCluster":
    """The shared node, with topic names unique to this test."""
    from source_cluster import SourceCluster

    return SourceCluster(spark_node, request.node.name, tmp_path)
