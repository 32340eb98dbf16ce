"""Cordons log directories as ``cordoned.log.dirs`` says (KIP-1066).

A cordoned directory keeps its logs and gets no new ones. The controller learns of it from the next
heartbeat, and places no new replicas on a broker whose directories are all cordoned.
"""

import logging
from collections.abc import Callable, Sequence

import msgspec

from ottla.config.generated import BrokerConfig
from ottla.config.layers import Layers
from ottla.node.directories.node_directories import cordoned_directories
from ottla.storage.directory.log_dir import LogDirectory

log = logging.getLogger(__name__)


class Cordons(msgspec.Struct, frozen=True):
    """The directories of a broker; ``report`` is called when the cordon of one has changed."""

    directories: Sequence[LogDirectory]
    report: Callable[[], None]

    def apply(self, config: BrokerConfig, layers: Layers) -> None:
        """Set the cordons as configured; follows `DynamicConfig`."""
        cordoned = cordoned_directories(config)
        changed = [d for d in self.directories if d.is_cordoned != (d.path in cordoned)]
        for directory in changed:
            directory.is_cordoned = not directory.is_cordoned
            log.info("log directory cordoned=%s path=%s", directory.is_cordoned, directory.path)
        if changed:
            self.report()
