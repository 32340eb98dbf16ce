"""Derive the settings of the nodes of one machine from one server.properties. Pure.

    setting                      first node        node k, counted from 0
    node.id, broker.id           as in the file    + k
    process.roles                as in the file    broker
    listeners, advertised        as in the file    every port + k times the step, without
    .listeners                                     the listeners of the controller
    ottla.metrics.listener,      as in the file    port + k times the step
    schema.registry.listeners
    log.dirs, metadata.log.dir   each DIR/node-ID  each DIR/node-ID

All other settings are those of the file, for each node. A machine has at most one controller: more
voters on one machine would fail together.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from ottla.config.addresses import (
    PORT_MAX,
    HostPort,
    parse_host_port,
    parse_http_url,
    parse_listener,
)
from ottla.config.loading import Loaded
from ottla.node.directories.node_directories import log_directories, metadata_directory

NODES_MAX: Final = 64
PORT_STEP: Final = 10
"""The distance of the ports of two nodes, unless --port-step is given."""


class BadHostPlan(ValueError):
    """The nodes cannot run beside each other; the message says what to change."""


class HostNode(msgspec.Struct, frozen=True):
    """One node: its id, and the settings that replace those of the file, as ``key=value``."""

    node_id: int
    overrides: tuple[str, ...]


def plan_host(loaded: Loaded, count: int, port_step: int = PORT_STEP) -> tuple[HostNode, ...]:
    """Return the nodes, the first of the file's own id first.

    Raises:
        BadHostPlan: the file describes no broker, or two nodes would use one port.
    """
    if not 1 <= count <= NODES_MAX:
        raise BadHostPlan(f"--nodes {count}: must be 1 to {NODES_MAX}")
    if port_step < 1:
        raise BadHostPlan(f"--port-step {port_step}: must be at least 1")
    if "broker" not in loaded.broker.process_roles:
        raise BadHostPlan(
            "--nodes: process.roles has no broker; controllers do not share work, run one alone"
        )
    _check_ports(loaded, count, port_step)
    return tuple(_node(loaded, at, port_step) for at in range(count))


def _node(loaded: Loaded, at: int, port_step: int) -> HostNode:
    config = loaded.broker
    node_id = config.node_id + at
    shift = at * port_step
    settings = {
        "node.id": str(node_id),
        "broker.id": str(node_id),
        "log.dirs": ",".join(_own(path, node_id) for path in log_directories(config)),
    }
    if config.metadata_log_dir:
        settings["metadata.log.dir"] = _own(metadata_directory(config), node_id)
    if at:
        controllers = {name.upper() for name in config.controller_listener_names}
        settings["process.roles"] = "broker"
        settings["listeners"] = _shifted(config.listeners, shift, controllers)
        if config.advertised_listeners:
            advertised = _shifted(config.advertised_listeners, shift, controllers)
            settings["advertised.listeners"] = advertised
        if config.ottla_metrics_listener:
            metrics = parse_host_port(config.ottla_metrics_listener)
            settings["ottla.metrics.listener"] = str(_moved(metrics, shift))
        for key, text in (
            ("console.listeners", config.console_listeners),
            ("console.advertised.listeners", config.console_advertised_listeners),
            ("schema.registry.listeners", config.schema_registry_listeners),
            ("schema.registry.advertised.listeners", config.schema_registry_advertised_listeners),
        ):
            if text is not None:
                url = parse_http_url(text)
                scheme = "https" if url.is_tls else "http"
                settings[key] = f"{scheme}://{_moved(url.address, shift)}"
    return HostNode(node_id, tuple(f"{key}={value}" for key, value in settings.items()))


def _own(path: str, node_id: int) -> str:
    return f"{path}/node-{node_id}"


def _shifted(texts: Iterable[str], shift: int, left_out: set[str]) -> str:
    """Return listeners with other ports; the configuration has been checked."""
    parsed = [parse_listener(text) for text in texts]
    return ",".join(
        f"{each.name}://{_moved(each.address, shift)}"
        for each in parsed
        if each.name not in left_out
    )


def _moved(address: HostPort, shift: int) -> HostPort:
    """Return an address with another port; port 0, any free one, stays."""
    return HostPort(address.host, address.port + shift if address.port else 0)


def _check_ports(loaded: Loaded, count: int, port_step: int) -> None:
    users: dict[int, int] = {}
    for at in range(count):
        node_id = loaded.broker.node_id + at
        for port in _ports(loaded, is_first=at == 0):
            moved = port + at * port_step
            if moved > PORT_MAX:
                raise BadHostPlan(f"node {node_id} would use port {moved}, above {PORT_MAX}")
            if users.setdefault(moved, node_id) != node_id:
                raise BadHostPlan(
                    f"nodes {users[moved]} and {node_id} would both use port {moved}; "
                    "give another --port-step"
                )


def _ports(loaded: Loaded, *, is_first: bool) -> set[int]:
    found = {each.bind.port for each in loaded.listeners.all if is_first or not each.is_controller}
    if loaded.broker.ottla_metrics_listener:
        found.add(parse_host_port(loaded.broker.ottla_metrics_listener).port)
    for url in (loaded.broker.console_listeners, loaded.broker.schema_registry_listeners):
        if url:
            found.add(parse_http_url(url).address.port)
    return found - {0}
