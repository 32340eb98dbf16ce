"""Constructs the probes of brokers that may be gone."""

import asyncio

from ottla.controller.active_controller import Controller
from ottla.controller.broker_liveness import Liveness
from ottla.controller.broker_probes import ProbeSettings
from ottla.controller.decision_settings import DecisionSettings
from ottla.controller.probe_loop import BrokerProbes, ProbeParts
from ottla.node.broker.broker_dial import broker_address
from ottla.node.context import NodeContext


def build_probes(
    context: NodeContext,
    controller: Controller,
    liveness: Liveness,
    decisions: DecisionSettings,
    wake: asyncio.Event,
) -> BrokerProbes | None:
    """Return the service; None where ``ottla.liveness.probe.enable`` is false."""
    config = context.loaded.broker
    if not config.ottla_liveness_probe_enable:
        return None
    probes = BrokerProbes(
        ProbeParts(
            node_id=context.node_id,
            controller=controller,
            liveness=liveness,
            decisions=decisions,
            network=context.ports.network,
            clock=context.ports.clock,
            address_of=broker_address(context),
            listeners=frozenset(config.controller_listener_names),
            settings=ProbeSettings(
                config.ottla_liveness_probe_timeout_ms, config.ottla_liveness_probe_interval_ms
            ),
            wake=wake,
        )
    )
    context.close_hooks.add(probes.on_connection_closed)
    return probes
