"""Describe* of the cluster's settings, answered from the image alone."""

from collections.abc import Callable
from typing import Final

import msgspec

from ottla.api.security.access import OPEN, Access
from ottla.api.surface.replies import Steps, collect
from ottla.api.surface.routes import Caller
from ottla.config.describe import (
    Entry,
    Source,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_loggers,
    describe_topic,
)
from ottla.config.layers import Layers, Texts
from ottla.controller.acls import describe_acls, refuse_describe_acls
from ottla.controller.client_quotas import describe_client_quotas
from ottla.controller.config_rules import node_id_of, own_layers
from ottla.controller.scram import describe_user_scram_credentials
from ottla.metadata.configs import ConfigResource, ConfigResourceType
from ottla.metadata.image import Image
from ottla.observability.loggers import Loggers
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import describe_configs as wire
from ottla.protocol.messages import list_config_resources as listing
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ottla.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ottla.security.acl import AclOperation
from ottla.storage.directory.partition_names import is_topic_name

# The resource types that can be listed; version 0 of the API has only the first.
_LISTED: Final = (
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.GROUP,
)


_OF_A_NODE: Final = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
KEYS_MAX: Final = 10_000
"""Keys that a client may list for one resource: far more than any has."""

_Shared = dict[tuple[int, str, frozenset[str]], list[wire.DescribeConfigsResourceResult]]
"""The rows of resources that are described alike: by type, name (empty for all names), and keys."""


class NotDescribed(Exception):
    """A resource that cannot be described here; the message says why."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class DescribeHandlers(msgspec.Struct, frozen=True):
    """The handlers of one broker. ``static`` is its own configuration as written."""

    node_id: int
    image: Callable[[], Image]
    static: Texts
    access: Access = OPEN
    loggers: Loggers = msgspec.field(default_factory=Loggers)

    def on_describe_acls(
        self, caller: Caller, request: DescribeAclsRequest, version: int
    ) -> DescribeAclsResponse:
        """List the access control entries that a filter matches."""
        if not self.access.is_enabled:
            return refuse_describe_acls(request)
        return describe_acls(self.image(), request)

    def on_describe_client_quotas(
        self, caller: Caller, request: DescribeClientQuotasRequest, version: int
    ) -> DescribeClientQuotasResponse:
        """List the quotas that a filter matches."""
        return describe_client_quotas(self.image(), request)

    def on_describe_scram(
        self, caller: Caller, request: DescribeUserScramCredentialsRequest, version: int
    ) -> DescribeUserScramCredentialsResponse:
        """List the SCRAM credentials of users."""
        return describe_user_scram_credentials(self.image(), request)

    def on_list_config_resources(
        self, caller: Caller, request: listing.ListConfigResourcesRequest, version: int
    ) -> listing.ListConfigResourcesResponse:
        """List the resources of the requested types, or of all types (KIP-1142).

        Every broker and topic is listed, but groups and subscriptions to client metrics only if
        they have a configuration. Version 0 lists only the latter.
        """
        kinds = _LISTED[:1] if version == 0 else _LISTED
        wanted = request.resource_types or [kind.value for kind in kinds]
        if any(kind not in [known.value for known in kinds] for kind in wanted):
            return listing.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return listing.ListConfigResourcesResponse(
            config_resources=[
                listing.ConfigResource(name, kind.value)
                for kind in kinds
                if kind.value in wanted
                for name in self._resources(kind, caller.listener)
            ]
        )

    def _resources(self, kind: ConfigResourceType, listener: str) -> list[str]:
        image = self.image()
        match kind:
            case ConfigResourceType.TOPIC:
                return image.topics.names()
            case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
                brokers = image.cluster.brokers
                return [
                    str(each) for each in sorted(brokers) if listener in brokers[each].listeners
                ]
            case _:
                configured = image.configs.by_resource
                return sorted(each.name for each in configured if each.type == kind)

    def describe_configs_steps(
        self, caller: Caller, request: wire.DescribeConfigsRequest, version: int
    ) -> Steps[wire.DescribeConfigsResponse]:
        """Describe the configuration of each listed resource.

        Raises:
            ReplyTooLong: the resources have too many keys.
        """
        shared: _Shared = {}
        results = (
            self._described(caller, resource, request, shared) for resource in request.resources
        )
        return wire.DescribeConfigsResponse(
            results=(yield from collect(results, lambda result: 4 + len(result.configs)))
        )

    def _described(
        self,
        caller: Caller,
        resource: wire.DescribeConfigsResource,
        request: wire.DescribeConfigsRequest,
        shared: _Shared,
    ) -> wire.DescribeConfigsResult:
        result = wire.DescribeConfigsResult(
            error_message="",  # Kafka's, where there is no error
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        kind, name = resource.resource_type, resource.resource_name
        try:
            described = _resource(kind, name)
            code = self.access.refuse_configs(caller, AclOperation.DESCRIBE_CONFIGS, kind, name)
            if code is not None:
                result.error_code, result.error_message = code, "Authorization failed."
                return result
            self._require(described)
            keys = _keys(resource)
        except NotDescribed as error:
            result.error_code, result.error_message = error.code, str(error)
            return result
        # Most resources have no setting of their own, and one may be listed any number of times.
        has_own = kind in _OF_A_NODE or bool(self.image().configs.of(described))
        same = (kind, name if has_own else "", keys)
        if same not in shared:
            entries = self._entries(described)
            shared[same] = [
                _result(entry, request) for entry in entries if not keys or entry.name in keys
            ]
        result.configs = shared[same]
        return result

    def _require(self, resource: ConfigResource) -> None:
        """Raise `NotDescribed` unless there is such a resource, or may be."""
        name = resource.name
        match resource.type:
            case ConfigResourceType.TOPIC:
                _require_topic(self.image(), name)
            case ConfigResourceType.GROUP:
                _require_name(name, "Group name")
            case ConfigResourceType.CLIENT_METRICS:
                _require_name(name, "Client metrics subscription name")
            case ConfigResourceType.BROKER if name:
                self._require_own_id(name)
            case ConfigResourceType.BROKER_LOGGER:
                _require_name(name, "Broker id")
                self._require_own_id(name)

    def _entries(self, resource: ConfigResource) -> list[Entry]:
        image = self.image()
        layers = self._layers(image)
        overrides = image.configs.of(resource)
        match resource.type:
            case ConfigResourceType.TOPIC:
                return describe_topic(overrides, layers)
            case ConfigResourceType.GROUP:
                return describe_group(overrides, layers)
            case ConfigResourceType.CLIENT_METRICS:
                return describe_client_metrics(overrides)
            case ConfigResourceType.BROKER if not resource.name:
                return describe_cluster_default(layers)
            case ConfigResourceType.BROKER:
                return describe_broker(layers)
            case ConfigResourceType.BROKER_LOGGER:
                return describe_loggers(self.loggers.levels())
            case _:
                raise AssertionError(f"resource type {resource.type} has no description")

    def _require_own_id(self, name: str) -> None:
        """Raise `NotDescribed` unless ``name`` is the id of this broker."""
        node_id = node_id_of(name)
        if node_id is None:
            text = f"Broker id must be an integer, but it is: {name[:300]}"
            raise NotDescribed(ErrorCode.INVALID_REQUEST, text)
        if node_id != self.node_id:
            text = f"Unexpected broker id, expected {self.node_id}, but received {name[:300]}"
            raise NotDescribed(ErrorCode.INVALID_REQUEST, text)

    def _layers(self, image: Image) -> Layers:
        return own_layers(image, self.node_id, self.static)


def _resource(kind: int, name: str) -> ConfigResource:
    try:
        return ConfigResource(ConfigResourceType(kind), name)
    except ValueError:
        raise NotDescribed(ErrorCode.INVALID_REQUEST, f"no resource type {kind}") from None


def _keys(resource: wire.DescribeConfigsResource) -> frozenset[str]:
    """Return the keys that a client asks for; none means all of them."""
    keys = resource.configuration_keys or ()
    if len(keys) > KEYS_MAX:
        text = f"At most {KEYS_MAX} keys of a resource may be listed."
        raise NotDescribed(ErrorCode.INVALID_REQUEST, text)
    return frozenset(keys)


def _require_topic(image: Image, name: str) -> None:
    if not is_topic_name(name):
        raise NotDescribed(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Invalid topic name {name[:300]!r}")
    if image.topics.named(name) is None:
        raise NotDescribed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name}")


def _require_name(name: str, what: str) -> None:
    if not name:
        raise NotDescribed(ErrorCode.INVALID_REQUEST, f"{what} must not be empty")


def _result(
    entry: Entry, request: wire.DescribeConfigsRequest
) -> wire.DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    doc = entry.doc if request.include_documentation else None
    if entry.source is Source.DYNAMIC_BROKER_LOGGER:
        doc = ""  # as in Kafka for loggers, requested or not
    return wire.DescribeConfigsResourceResult(
        entry.name,
        entry.value,
        entry.is_read_only,
        entry.source,
        entry.is_sensitive,
        [wire.DescribeConfigsSynonym(s.name, s.value, s.source) for s in synonyms],
        entry.type,
        doc,
    )
