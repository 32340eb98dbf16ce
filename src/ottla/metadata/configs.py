"""Configurations and client quotas of the image."""

import enum
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import msgspec
from immutables import Map


class ConfigResourceType(enum.IntEnum):
    """What a configuration belongs to, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A resource with configuration. A broker's name is its id; the empty name is all brokers."""

    type: int
    name: str


QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""The entity of a quota: pairs of type (user, client-id, ip) and name, sorted by type.

A name of None is the default entity, for clients without a quota of their own.
"""


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the canonical form of an entity, whatever the order of its parts."""
    return tuple(sorted(parts, key=lambda part: part[0]))


class Configs(msgspec.Struct, frozen=True, gc=False):
    """The configuration by resource. A resource without configuration is not included."""

    by_resource: Map[ConfigResource, Map[str, str]] = Map()

    def of(self, resource: ConfigResource) -> Map[str, str]:
        """Return the configuration of a resource; empty if there is none."""
        return self.by_resource.get(resource, _NOTHING_SET)

    def with_value(self, resource: ConfigResource, name: str, value: str | None) -> "Configs":
        """Return the configurations with one key set, or removed if ``value`` is None."""
        values = self.of(resource)
        if value is not None:
            values = values.set(name, value)
        elif name in values:
            values = values.delete(name)
        return self._with(resource, values)

    def without(self, resource: ConfigResource) -> "Configs":
        """Return the configurations without those of a resource."""
        return self._with(resource, _NOTHING_SET)

    def _with(self, resource: ConfigResource, values: Map[str, str]) -> "Configs":
        if values:
            return Configs(self.by_resource.set(resource, values))
        if resource in self.by_resource:
            return Configs(self.by_resource.delete(resource))
        return self


class ClientQuotas(msgspec.Struct, frozen=True, gc=False):
    """Limits by entity and key. An entity without limits is not included."""

    by_entity: Map[QuotaEntity, Map[str, float]] = Map()

    def of(self, entity: QuotaEntity) -> Map[str, float]:
        """Return the limits set for exactly this entity; empty if there are none."""
        return self.by_entity.get(entity, _NO_LIMITS)

    def with_limit(self, entity: QuotaEntity, key: str, limit: float | None) -> "ClientQuotas":
        """Return the quotas with one limit set, or removed if ``limit`` is None."""
        limits = self.of(entity)
        if limit is not None:
            limits = limits.set(key, limit)
        elif key in limits:
            limits = limits.delete(key)
        if limits:
            return ClientQuotas(self.by_entity.set(entity, limits))
        if entity in self.by_entity:
            return ClientQuotas(self.by_entity.delete(entity))
        return self


_NOTHING_SET: Map[str, str] = Map()
_NO_LIMITS: Map[str, float] = Map()
