"""AlterConfigs and IncrementalAlterConfigs on a broker: applied here, or forwarded.

    request --> each resource: refused or applied here, or left for the controller
            --> one forwarded request with those left --> answers in the order of the request

A change of log levels is applied at once and leaves no record. A change of this broker's own
settings is validated here, where its file is known, and written by the controller.

A request may list very many resources: the handlers yield between them. They get the whole request,
not pieces of it, because a resource that occurs twice is refused wherever it occurs.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec

from ottla.api.cluster.envelope import Forwarder
from ottla.api.security.access import OPEN, Access
from ottla.api.surface.pieces import ITEMS_PER_PIECE
from ottla.api.surface.replies import ITEMS_PER_STEP
from ottla.api.surface.routes import Caller
from ottla.config.dynamic import changed_listeners, changed_logins
from ottla.config.layers import Layers, Texts
from ottla.config.listeners import Listeners
from ottla.config.problems import Problem
from ottla.config.unenforced import STORE_KEYS
from ottla.controller.config_alterations import (
    Operation,
    canonical,
    incremental_changes,
    refuse_missing_values,
    refuse_operations,
    refuse_repetition,
    whole_changes,
)
from ottla.controller.config_rules import own_layers
from ottla.controller.decision import RECORDS_MAX, Refusal
from ottla.controller.local_config_changes import (
    local_change,
    refusal_of,
    refuse_local_change,
    refuse_other_node,
)
from ottla.controller.logger_rules import refuse_logger_changes
from ottla.metadata.configs import ConfigResource, ConfigResourceType
from ottla.metadata.image import Image
from ottla.observability.loggers import Loggers
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import alter_configs as whole
from ottla.protocol.messages import incremental_alter_configs as incremental
from ottla.security.acl import CLUSTER_NAME, AclOperation, ResourceType

Resource = incremental.AlterConfigsResource | whole.AlterConfigsResource
Answer = tuple[int, str | None]
"""An error code and its message, which is null where there is no error."""
DONE: Final[Answer] = (ErrorCode.NONE, None)


class ListenerCheck(Protocol):
    """Checks whether listeners can be opened on this machine."""

    def store_problems(self, names: Iterable[str], layers: Layers) -> list[Problem]:
        """Return why listeners cannot use the TLS stores of ``layers``."""
        ...

    def login_problems(self, names: Iterable[str], layers: Layers) -> list[Problem]:
        """Return why listeners cannot use the SASL settings of ``layers``."""
        ...

    async def problems(self, wanted: Listeners, layers: Layers) -> list[Problem]:
        """Return why ``wanted``, by the settings in ``layers``, cannot be opened."""
        ...


class ConfigChangeHandlers(msgspec.Struct, frozen=True):
    """The handlers of one broker. ``static`` is its own configuration as written."""

    node_id: int
    image: Callable[[], Image]
    static: Texts
    forwarder: Forwarder
    listeners: ListenerCheck
    loggers: Loggers = msgspec.field(default_factory=Loggers)
    access: Access = OPEN

    async def on_incremental_alter_configs(
        self, caller: Caller, request: incremental.IncrementalAlterConfigsRequest, version: int
    ) -> incremental.IncrementalAlterConfigsResponse:
        """Change the keys that are named (KIP-339), log levels among them (KIP-412)."""
        response = incremental.IncrementalAlterConfigsResponse()
        async for resource, answer in self._answers(caller, request):
            response.responses.append(
                incremental.AlterConfigsResourceResponse(
                    *answer, resource.resource_type, resource.resource_name
                )
            )
        return response

    async def on_alter_configs(
        self, caller: Caller, request: whole.AlterConfigsRequest, version: int
    ) -> whole.AlterConfigsResponse:
        """Set the keys that are named, and unset all others of the resource."""
        response = whole.AlterConfigsResponse()
        async for resource, answer in self._answers(caller, request):
            response.responses.append(
                whole.AlterConfigsResourceResponse(
                    *answer, resource.resource_type, resource.resource_name
                )
            )
        return response

    async def _answers(
        self,
        caller: Caller,
        request: incremental.IncrementalAlterConfigsRequest | whole.AlterConfigsRequest,
    ) -> AsyncIterator[tuple[Resource, Answer]]:
        """Yield the answer of each resource in order, those of the controller among them."""
        times: Counter[ConfigResource] = Counter()
        async for resource in _with_pauses(request.resources):
            times[canonical(_named(resource))] += 1
        settled: list[Answer | None] = []
        left: list[Resource] = []
        async for resource in _with_pauses(request.resources):
            answer = await self._answer_here(caller, resource, times, request.validate_only)
            settled.append(answer)
            if answer is None:
                left.append(resource)
        found: dict[ConfigResource, Answer] = {}
        for part in _parts(left):
            rest = type(request)(part, request.validate_only)  # type: ignore[arg-type]
            found.update(await self._forward(caller, rest))
        unanswered = (
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "The controller returned no result for this resource",
        )
        answers = iter(settled)
        async for resource in _with_pauses(request.resources):
            yield resource, next(answers) or found.get(_named(resource), unanswered)

    async def _answer_here(
        self, caller: Caller, resource: Resource, times: Mapping[ConfigResource, int], is_test: bool
    ) -> Answer | None:
        """Reject or apply a change; None leaves it to the controller. ``times``: how often each
        resource occurs."""
        keys = (config.name for config in resource.configs)
        refusal = (
            refuse_many_keys(resource)
            or refuse_repetition(times[canonical(_named(resource))], keys)
            or refuse_missing_values(resource)
            or refuse_unknown_type(resource)
            or refuse_unauthorized(self.access, caller, resource)
        )
        return refusal or await self._settle(resource, is_test)

    async def _forward(
        self,
        caller: Caller,
        request: incremental.IncrementalAlterConfigsRequest | whole.AlterConfigsRequest,
    ) -> dict[ConfigResource, Answer]:
        response = await self.forwarder.forward_message(
            caller, request, self.forwarder.request_timeout_ms
        )
        assert isinstance(
            response, incremental.IncrementalAlterConfigsResponse | whole.AlterConfigsResponse
        )
        return {
            ConfigResource(each.resource_type, each.resource_name): (
                each.error_code,
                each.error_message,
            )
            for each in response.responses
        }

    async def _settle(self, resource: Resource, is_test: bool) -> Answer | None:
        """Reject or apply a change; None leaves it to the controller."""
        match resource.resource_type:
            case ConfigResourceType.TOPIC:
                return None
            case ConfigResourceType.GROUP | ConfigResourceType.CLIENT_METRICS:
                return None
            case ConfigResourceType.BROKER:
                return await self._refuse_own(resource)
            case ConfigResourceType.BROKER_LOGGER if isinstance(
                resource, incremental.AlterConfigsResource
            ):
                return LoggerChanges(self.node_id, self.loggers).change(resource, is_test)
            case kind:  # loggers have no AlterConfigs
                return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")

    async def _refuse_own(self, resource: Resource) -> Refusal | None:
        """Return why the settings of this broker, or of all, cannot be changed, or None."""
        for_all = not resource.resource_name
        if not for_all:
            refusal = refuse_other_node(resource.resource_name, self.node_id)
            if refusal is not None:
                return refusal
        image = self.image()
        old = image.configs.of(canonical(_named(resource)))
        if isinstance(resource, incremental.AlterConfigsResource):
            changes = incremental_changes(resource, old)
        else:
            changes = whole_changes(resource, old)
        if isinstance(changes, Refusal):
            return changes
        change = local_change(
            own_layers(image, self.node_id, self.static), changes, for_all=for_all
        )
        refusal = refuse_local_change(change, changes, for_all=for_all)
        if refusal is not None:
            return refusal
        stores = changed_listeners(change.before, change.after, STORE_KEYS)
        logins = changed_logins(change.before, change.after)
        problems = self.listeners.store_problems(stores, change.after)
        problems += self.listeners.login_problems(logins, change.after)
        if problems:
            return refusal_of(problems)
        wanted = change.new_listeners()
        if wanted is None:
            return None
        return refusal_of(await self.listeners.problems(wanted, change.after))


class LoggerChanges(msgspec.Struct, frozen=True):
    """Changes of the log levels of one node."""

    node_id: int
    loggers: Loggers

    def change(self, resource: incremental.AlterConfigsResource, is_test: bool) -> Answer:
        """Set log levels, all of a resource or none."""
        refusal = (
            refuse_operations(resource.configs)
            or refuse_other_node(resource.resource_name, self.node_id)
            or refuse_logger_changes(resource.configs, self.loggers.exists)
        )
        if refusal is not None:
            return refusal
        for config in () if is_test else resource.configs:
            if config.config_operation == Operation.DELETE:
                self.loggers.inherit_level(config.name)
            else:
                assert config.value is not None, "checked before"
                self.loggers.set_level(config.name, config.value)
        return DONE


class ControllerConfigChanges(msgspec.Struct, frozen=True):
    """IncrementalAlterConfigs on a controller: sets log levels, ``decide`` does the rest."""

    node_id: int
    decide: Callable[..., Any]
    """The handler of the active controller's decision."""
    loggers: Loggers = msgspec.field(default_factory=Loggers)
    access: Access = OPEN

    async def on_incremental_alter_configs(
        self, caller: Caller, request: incremental.IncrementalAlterConfigsRequest, version: int
    ) -> incremental.IncrementalAlterConfigsResponse:
        """Answer the resources of the controller first, then those of this node."""
        logger = ConfigResourceType.BROKER_LOGGER
        own = [each for each in request.resources if each.resource_type == logger]
        rest = [each for each in request.resources if each.resource_type != logger]
        response = incremental.IncrementalAlterConfigsResponse()
        if rest or not own:
            others = incremental.IncrementalAlterConfigsRequest(rest, request.validate_only)
            response = await self.decide(caller, others, version)
        times = Counter(map(_named, own))
        for resource in own:
            keys = [config.name for config in resource.configs]
            answer = (
                refuse_many_keys(resource)
                or refuse_repetition(times[_named(resource)], keys)
                or self._refuse_unauthorized(caller)
                or LoggerChanges(self.node_id, self.loggers).change(resource, request.validate_only)
            )
            response.responses.append(
                incremental.AlterConfigsResourceResponse(
                    *answer, resource.resource_type, resource.resource_name
                )
            )
        return response

    def _refuse_unauthorized(self, caller: Caller) -> Refusal | None:
        """Return the error of a client that may not change log levels here; Kafka's rule."""
        node = AclOperation.CLUSTER_ACTION
        if self.access.allows(caller, node, ResourceType.CLUSTER, CLUSTER_NAME):
            return None
        return Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")


def refuse_many_keys(resource: Resource) -> Refusal | None:
    """Return the error of a change that needs more records than the controller writes at once."""
    if len(resource.configs) <= RECORDS_MAX:
        return None
    message = f"A request may change at most {RECORDS_MAX} things."
    return Refusal(ErrorCode.POLICY_VIOLATION, message)


def refuse_unknown_type(resource: Resource) -> Refusal | None:
    """Return the error of a resource of a type that is not configured."""
    kind = resource.resource_type
    if kind in ConfigResourceType._value2member_map_:
        return None
    return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")


def refuse_unauthorized(access: Access, caller: Caller, resource: Resource) -> Answer | None:
    """Return the error of a resource that the client may not configure, or None."""
    kind, name = resource.resource_type, resource.resource_name
    code = access.refuse_configs(caller, AclOperation.ALTER_CONFIGS, kind, name)
    if code is None:
        return None
    # As in Kafka, log levels are refused without a message.
    is_logger = kind == ConfigResourceType.BROKER_LOGGER
    return code, None if is_logger else "Authorization failed."


async def _with_pauses(resources: Iterable[Resource]) -> AsyncIterator[Resource]:
    """Yield the resources, and let other requests be served in between."""
    count = 0
    for resource in resources:
        yield resource
        count += 1 + len(resource.configs)
        if count >= ITEMS_PER_STEP:
            count = 0
            await asyncio.sleep(0)


def _parts(resources: Iterable[Resource]) -> Iterator[list[Resource]]:
    """Yield lists of resources, each with few resources and keys in all."""
    part: list[Resource] = []
    count = 0
    for resource in resources:
        part.append(resource)
        count += 1 + len(resource.configs)
        if count >= ITEMS_PER_PIECE:
            yield part
            part, count = [], 0
    if part:
        yield part


def _named(resource: Resource) -> ConfigResource:
    return ConfigResource(resource.resource_type, resource.resource_name)
