"""The routes of features that no listener has yet; see `ottla.api.unconfigured`."""

from typing import TYPE_CHECKING

from ottla.api.late_routes import Promise, late_routes
from ottla.api.routes import Route
from ottla.protocol.api_keys import ApiKey
from ottla.runtime.lazy import LazyModule

if TYPE_CHECKING:
    from ottla.api import unconfigured
    from ottla.node.build import NodeContext
else:
    unconfigured = LazyModule("ottla.api.unconfigured")


def sasl_routes() -> tuple[Route, ...]:
    """Return the routes of SASL, for a listener of either kind."""
    return late_routes(
        lambda: unconfigured.SaslHandlers().routes(),
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    )


def unconfigured_routes(context: "NodeContext") -> tuple[Route, ...]:
    """Return the routes of all of them, for a client listener."""
    return (
        *sasl_routes(),
        *late_routes(
            lambda: unconfigured.TokenHandlers().routes(),
            ApiKey.CREATE_DELEGATION_TOKEN,
            ApiKey.RENEW_DELEGATION_TOKEN,
            ApiKey.EXPIRE_DELEGATION_TOKEN,
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ),
        *late_routes(
            lambda: unconfigured.TelemetryHandlers(
                context.ports.random, context.loaded.broker.telemetry_max_bytes
            ).routes(),
            Promise(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, is_advertised=False),
            Promise(ApiKey.PUSH_TELEMETRY, is_advertised=False),
        ),
    )
