"""The settings in force on this broker: its file, and dynamic changes (KIP-226).

Log settings of topics, throttles and connection limits have publishers of their own; all other
parts with a dynamic key follow `DynamicConfig`. A value that cannot be parsed is logged and leaves
the settings unchanged: the controller that accepted it may be newer.
"""

import logging
from collections.abc import Callable

from ottla.config.dynamic import WITHOUT_EFFECT
from ottla.config.generated import BrokerConfig
from ottla.config.layers import Layers, broker_config
from ottla.config.loading import Loaded
from ottla.config.problems import ConfigError
from ottla.controller.config_rules import own_layers
from ottla.metadata.delta import Delta
from ottla.metadata.image import Image

log = logging.getLogger(__name__)

Apply = Callable[[BrokerConfig, Layers], None]


class DynamicConfig:
    """Publisher: keeps the settings in force, and calls its followers when they change."""

    name = "configs"

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._followers: list[Apply] = []
        self.layers = Layers(static=loaded.static)
        self.current = loaded.broker

    def follow(self, apply: Apply) -> None:
        """Call ``apply`` with the current settings, and again after each change."""
        self._followers.append(apply)
        apply(self.current, self.layers)

    def on_image(self, delta: Delta, image: Image) -> None:
        """Apply changed settings."""
        if delta.old.configs is image.configs:
            return
        layers = own_layers(image, self._loaded.broker.node_id, self._loaded.static)
        if (layers.dynamic_broker, layers.dynamic_cluster) == (
            self.layers.dynamic_broker,
            self.layers.dynamic_cluster,
        ):
            return
        try:
            config = broker_config(layers)
        except ConfigError as error:
            log.warning("dynamic configuration not applied reason=%s", error)
            return
        self._warn(layers)
        self.current, self.layers = config, layers
        for apply in self._followers:
            apply(config, layers)

    def _warn(self, layers: Layers) -> None:
        for name in sorted({*layers.dynamic_broker, *layers.dynamic_cluster}):
            if name in WITHOUT_EFFECT and self.layers.find([name]) != layers.find([name]):
                log.warning("key altered without effect key=%s reason=%s", name,
                            WITHOUT_EFFECT[name])  # fmt: skip
