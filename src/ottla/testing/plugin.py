"""Fixtures for pytest, available once ``ottla`` is installed.

    def test_orders(ottla_node):
        producer = Producer({"bootstrap.servers": ottla_node.bootstrap})

    @pytest.mark.ottla(nodes=3, processes=True, config={"min.insync.replicas": 2})
    def test_survives(ottla_cluster):
        ottla_cluster.kill(1)

    @pytest.mark.ottla(security="sasl_ssl")
    def test_logs_in(ottla_node):
        producer = Producer(ottla_node.client_config)

    def test_both(kafka_or_ottla):  # runs twice: with Ottla, and with Apache Kafka if it is there
        producer = Producer(kafka_or_ottla.client_config)

The marker takes the arguments of `ottla.testing.run_cluster`. The report of a failed test has the
log of its nodes.
"""

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pytest

if TYPE_CHECKING:
    from ottla.testing.apache_kafka import ApacheKafka
    from ottla.testing.cluster import Cluster
    from ottla.testing.node_logs import NodeLogs

MARKER = "ottla"
OPTIONS: Final = (
    *("nodes", "processes", "config", "directory", "controllers", "environment", "access"),
    *("security", "tiering", "schema_registry"),
)
"""The arguments of `ottla.testing.cluster.run_cluster`."""
_CLUSTERS: "pytest.StashKey[list[tuple[Cluster, NodeLogs]]]" = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(nodes=3, *, processes=False, config=None, controllers=None, "
        "security='plaintext', tiering=False, schema_registry=False): "
        "the cluster that ottla_node or ottla_cluster gives this test",
    )


def _asked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the arguments of the closest marker."""
    marker = request.node.get_closest_marker(MARKER)
    if marker is None:
        return {}
    if len(marker.args) > 1:
        _fail(f"@pytest.mark.{MARKER} takes one positional argument: nodes")
    for name in marker.kwargs:
        if name not in OPTIONS:
            near = get_close_matches(name, OPTIONS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(OPTIONS)}"
            _fail(f"@pytest.mark.{MARKER} has no option {name!r}; {hint}")
    return {**dict(zip(("nodes",), marker.args, strict=False)), **marker.kwargs}


def _fail(message: str) -> NoReturn:
    """Fail the test by a message alone: frames of the plugin do not help its author."""
    pytest.fail(message, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: "pytest.CallInfo[None]"
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the log of the nodes to the report of a failed test."""
    report = yield
    if call.excinfo is not None and report.failed:
        for cluster, logs in item.stash.get(_CLUSTERS, []):
            outputs = {each: cluster.output(each) for each in cluster.node_ids}
            report.sections.extend(logs.sections(outputs))
    return report


@contextmanager
def _run(request: pytest.FixtureRequest, **asked: Any) -> "Iterator[Cluster]":  # noqa: ANN401
    """Run a cluster for a test, and remember it for the report."""
    from ottla.testing.cluster import run_cluster
    from ottla.testing.hosts import NodeFailed
    from ottla.testing.node_logs import keep_logs

    with keep_logs() as logs, ExitStack() as stack:
        try:
            cluster = stack.enter_context(run_cluster(**asked))
        except (ValueError, TypeError, NodeFailed, OSError) as error:
            _fail(f"the cluster of this test did not start: {error}")
        request.node.stash.setdefault(_CLUSTERS, []).append((cluster, logs))
        yield cluster


@pytest.fixture
def ottla_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> "Iterator[Cluster]":
    """A cluster for this test: 3 nodes in threads, unless the marker ``ottla`` says otherwise."""
    with _run(request, **{"directory": tmp_path / "ottla", **_asked(request)}) as cluster:
        yield cluster


@pytest.fixture
def ottla_node(request: pytest.FixtureRequest, tmp_path: Path) -> "Iterator[Cluster]":
    """A node for this test only, in a thread, unless the marker ``ottla`` says otherwise."""
    asked = {"nodes": 1, "directory": tmp_path / "ottla", **_asked(request)}
    with _run(request, **asked) as cluster:
        yield cluster


@pytest.fixture(params=["ottla", "apache-kafka"])
def kafka_or_ottla(
    request: pytest.FixtureRequest, tmp_path: Path
) -> "Iterator[Cluster | ApacheKafka]":
    """A node of Ottla, then one of Apache Kafka; the second is skipped where Kafka is missing.

    Of the marker ``ottla`` only ``config`` applies.
    """
    config = _asked(request).get("config")
    if request.param == "ottla":
        with _run(request, nodes=1, config=config, directory=tmp_path / "ottla") as cluster:
            yield cluster
        return
    from ottla.testing.apache_kafka import NoApacheKafka, find_jars, run_apache_kafka

    try:
        find_jars()
    except NoApacheKafka as missing:
        pytest.skip(str(missing))
    with run_apache_kafka(config=config, directory=tmp_path / "kafka") as kafka:
        yield kafka


@pytest.fixture(scope="session")
def ottla_shared_node(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Cluster]":
    """One node for the whole session, for tests that use unique topic and group names."""
    from ottla.testing.cluster import run_node

    with run_node(directory=tmp_path_factory.mktemp("ottla")) as node:
        yield node
