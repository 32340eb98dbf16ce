"""Fixtures for pytest, available once ``ottla`` is installed.

    def test_orders(ottla_node):
        producer = Producer({"bootstrap.servers": ottla_node.bootstrap})

    @pytest.mark.ottla(nodes=3, processes=True, config={"min.insync.replicas": 2})
    def test_survives(ottla_cluster):
        ottla_cluster.kill(1)

    @pytest.mark.ottla(security="sasl_ssl")
    def test_logs_in(ottla_node):
        producer = Producer(ottla_node.client_config)

The marker takes the arguments of `ottla.testing.run_cluster`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster

MARKER = "ottla"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(nodes=3, *, processes=False, config=None, controllers=None, "
        "security='plaintext'): "
        "the cluster that ottla_node or ottla_cluster gives this test",
    )


def _asked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the arguments of the closest marker."""
    marker = request.node.get_closest_marker(MARKER)
    if marker is None:
        return {}
    if len(marker.args) > 1:
        raise pytest.UsageError(f"@pytest.mark.{MARKER} takes one positional argument: nodes")
    return {**dict(zip(("nodes",), marker.args, strict=False)), **marker.kwargs}


@pytest.fixture
def ottla_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> "Iterator[Cluster]":
    """A cluster for this test: 3 nodes in threads, unless the marker ``ottla`` says otherwise."""
    from ottla.testing.cluster import run_cluster

    asked = {"directory": tmp_path / "ottla", **_asked(request)}
    with run_cluster(**asked) as cluster:
        yield cluster


@pytest.fixture
def ottla_node(request: pytest.FixtureRequest, tmp_path: Path) -> "Iterator[Cluster]":
    """A node for this test only, in a thread, unless the marker ``ottla`` says otherwise."""
    from ottla.testing.cluster import run_cluster

    asked = {"nodes": 1, "directory": tmp_path / "ottla", **_asked(request)}
    with run_cluster(**asked) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def ottla_shared_node(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Cluster]":
    """One node for the whole session, for tests that use unique topic and group names."""
    from ottla.testing.cluster import run_node

    with run_node(directory=tmp_path_factory.mktemp("ottla")) as node:
        yield node
