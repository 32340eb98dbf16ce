"""What a node answers itself on a controller listener (``--bootstrap-controller``).

A controller describes its own settings and loggers, and sets its log levels itself (KIP-412);
every other change is a decision of the active controller. ACLs and SCRAM credentials are listed
from the node's own image; a listener without logins lists no delegation tokens.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ottla.api.late_routes import late_routes
from ottla.api.routes import Route
from ottla.metadata.image_watch import ImageWatch
from ottla.protocol.api_keys import ApiKey
from ottla.runtime.lazy import LazyModule

if TYPE_CHECKING:
    from ottla.api import config_changes, describe, unconfigured
    from ottla.node.build import NodeContext
else:
    config_changes = LazyModule("ottla.api.config_changes")
    describe = LazyModule("ottla.api.describe")
    unconfigured = LazyModule("ottla.api.unconfigured")

DESCRIBED: Final = (
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
)


def with_config_routes(
    context: "NodeContext", watch: ImageWatch, decided: Iterable[Route]
) -> tuple[Route, ...]:
    """Return a controller's routes, with those that this node answers itself or in part."""
    routes = {route.api_key: route for route in decided}
    changes = routes.pop(ApiKey.INCREMENTAL_ALTER_CONFIGS)

    def described() -> Iterable[Route]:
        handlers = describe.DescribeHandlers(
            context.node_id, lambda: watch.image, context.loaded.static
        )
        return [
            Route(ApiKey.DESCRIBE_CONFIGS, handlers.on_describe_configs),
            Route(ApiKey.DESCRIBE_ACLS, handlers.on_describe_acls),
            Route(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, handlers.on_describe_scram),
        ]

    def tokens() -> Iterable[Route]:
        return [Route(ApiKey.DESCRIBE_DELEGATION_TOKEN, unconfigured.TokenHandlers().on_describe)]

    def changed() -> Iterable[Route]:
        return config_changes.ControllerConfigChanges(context.node_id, changes.handle).routes()

    return (
        *routes.values(),
        *late_routes(changed, ApiKey.INCREMENTAL_ALTER_CONFIGS),
        *late_routes(described, *DESCRIBED),
        *late_routes(tokens, ApiKey.DESCRIBE_DELEGATION_TOKEN),
    )
