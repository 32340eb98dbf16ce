"""Constructs unclean recovery, by which the active controller queries the brokers' logs."""

from typing import Final

from ottla.controller.active_controller import Controller
from ottla.controller.config_rules import ConfigContext
from ottla.controller.decision_settings import settings_of
from ottla.controller.log_polls import LogPolls
from ottla.controller.recovery_loop import UncleanRecovery
from ottla.metadata.image_watch import ImageWatch
from ottla.node.broker.broker_dial import broker_dial
from ottla.node.context import NodeContext

CLIENT_ID: Final = "controller-{}-recovery"


def build_recovery(
    context: NodeContext, watch: ImageWatch, controller: Controller, configs: ConfigContext
) -> UncleanRecovery:
    """Return the service that elects leaders for partitions without a complete replica."""
    dial = broker_dial(context, lambda: watch.image, CLIENT_ID.format(context.node_id))
    return UncleanRecovery(
        controller,
        LogPolls(dial).ask,
        settings_of(configs),
        context.loaded.broker.unclean_leader_election_interval_ms,
    )
