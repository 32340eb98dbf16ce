"""Delegation tokens of a node: its settings, and the handler that describes tokens."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.api.cluster.controller_decisions import TokenSettings
from ottla.config.generated import BrokerConfig
from ottla.metadata.image import Image
from ottla.node.context import NodeContext
from ottla.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.api.security.delegation_tokens import TokenDescriptions


def token_settings(config: BrokerConfig) -> TokenSettings:
    """Return the ``delegation.token.*`` settings of a node, which are the same on all nodes."""
    return TokenSettings(
        config.delegation_token_secret_key,
        config.delegation_token_max_lifetime_ms,
        config.delegation_token_expiry_time_ms,
    )


def token_descriptions(context: NodeContext, image: Callable[[], Image]) -> "TokenDescriptions":
    """Return the handler of DescribeDelegationToken, imported by its first request."""
    from ottla.api.security.delegation_tokens import TokenDescriptions

    return TokenDescriptions(
        image,
        context.ports.clock,
        token_settings(context.loaded.broker),
        context.access.may(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, is_audited=False),
        context.access.may(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, is_audited=False),
    )
