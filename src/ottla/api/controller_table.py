"""Which decision answers which request of the controller listener: one row each.

A row says how a request, with what the active controller knows beside the image, becomes a
decision. What it touches of soft state (who was heard when) it touches here: the decision is
made exactly once, in its turn.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ottla.api.routes import Caller
from ottla.config.values import Password
from ottla.controller import brokers, heartbeats, register_controller
from ottla.controller.active_controller import Moment
from ottla.controller.broker_liveness import Liveness
from ottla.controller.config_rules import ConfigContext
from ottla.controller.decision import ControllerState, Decision
from ottla.controller.decision_settings import DecisionSettings
from ottla.metadata.image import Image
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema import Message
from ottla.protocol.types import Offset
from ottla.runtime.lazy import LazyModule
from ottla.runtime.ports import Random
from ottla.security.principal import parse_principal

# Brokers and controllers register at every start; all else is asked for later, if ever.
if TYPE_CHECKING:
    from ottla.controller import (
        acls,
        alter_partition,
        client_quotas,
        config_alterations,
        producer_ids,
        reassignments,
        replica_dirs,
        scram,
        tokens,
        topic_changes,
        topic_creation,
    )
else:
    acls = LazyModule("ottla.controller.acls")
    config_alterations = LazyModule("ottla.controller.config_alterations")
    alter_partition = LazyModule("ottla.controller.alter_partition")
    producer_ids = LazyModule("ottla.controller.producer_ids")
    client_quotas = LazyModule("ottla.controller.client_quotas")
    reassignments = LazyModule("ottla.controller.reassignments")
    replica_dirs = LazyModule("ottla.controller.replica_dirs")
    scram = LazyModule("ottla.controller.scram")
    tokens = LazyModule("ottla.controller.tokens")
    topic_changes = LazyModule("ottla.controller.topic_changes")
    topic_creation = LazyModule("ottla.controller.topic_creation")


_NOT_ALLOWED: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class TokenSettings(msgspec.Struct, frozen=True):
    """The ``delegation.token.*`` keys; without a secret there are no tokens."""

    secret: Password | None = None
    lifetime_ms_max: int = 604_800_000
    renewal_ms: int = 86_400_000


class ControllerContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the active controller knows beside the image. Voters come and go, so they are asked."""

    cluster_id: str
    settings: DecisionSettings
    voter_ids: Callable[[], Iterable[int]]
    liveness: Liveness
    random: Random
    tokens: TokenSettings = TokenSettings()
    has_authorizer: bool = False
    """Whether ACLs are enforced; where they are not, none is taken."""
    # How many changes of partitions a caller may still make (KIP-599).
    quota: "Callable[[Caller], topic_creation.Quota]" = lambda caller: topic_creation.unlimited

    def configs(self) -> ConfigContext:
        """Return what is known about configurations, with the voters of now."""
        return replace(self.settings.configs, controller_ids=frozenset(self.voter_ids()))


class Ask(msgspec.Struct, frozen=True):
    """One request in its turn. ``request`` is of the class that its row is for."""

    context: ControllerContext
    caller: Caller
    # Each row names its own request class, which no annotation of the table can say.
    request: Any
    version: int
    moment: Moment

    @property
    def image(self) -> Image:
        """The newest image."""
        return self.moment.image

    @property
    def state(self) -> ControllerState:
        """The newest image and its index."""
        return self.moment.state

    @property
    def settings(self) -> DecisionSettings:
        """The controller's own configuration."""
        return self.context.settings

    @property
    def configs(self) -> ConfigContext:
        """What decisions about configurations are made upon."""
        return self.context.configs()

    @property
    def topics(self) -> "topic_creation.TopicContext":
        """What decisions about topics are made upon."""
        context = self.context
        return topic_creation.TopicContext(
            context.settings, context.random, context.quota(self.caller)
        )

    @property
    def tokens(self) -> "tokens.TokenContext":
        """What decisions about delegation tokens are made upon."""
        held = self.context.tokens
        return tokens.TokenContext(
            parse_principal(self.caller.principal),
            self.moment.wall,
            held.secret,
            held.lifetime_ms_max,
            held.renewal_ms,
        )


def _register_broker(ask: Ask) -> Decision[Message]:
    request, moment, live = ask.request, ask.moment, ask.context.liveness
    known = moment.image.cluster.brokers.get(request.broker_id)
    has_session = known is not None and live.has_session(known.id, known.epoch, moment.now)
    context = brokers.RegistrationContext(ask.context.cluster_id, moment.next_offset, has_session)
    decision = brokers.decide_broker_registration(
        moment.image, request, context, ask.context.settings
    )
    if decision.reply.error_code == ErrorCode.NONE:
        live.register(request.broker_id, decision.reply.broker_epoch, moment.now)
    return decision


def _heartbeat(ask: Ask) -> Decision[Message]:
    request, moment, live = ask.request, ask.moment, ask.context.liveness
    broker_id = request.broker_id
    if brokers.refuse_broker(moment.image, broker_id, request.broker_epoch) is None:
        read = Offset(request.current_metadata_offset)
        live.touch(broker_id, request.broker_epoch, read, moment.now)
    context = live.heartbeat_context(broker_id, moment.image)
    decision = heartbeats.decide_broker_heartbeat(
        moment.state, request, context, ask.context.settings
    )
    reply = decision.reply
    if reply.error_code == ErrorCode.NONE:
        is_leaving = request.want_shut_down and not reply.should_shut_down and not reply.is_fenced
        if is_leaving:
            live.enter_shutdown(broker_id, Offset(moment.next_offset + len(decision.records) - 1))
        elif reply.is_fenced and reply.should_shut_down:
            live.fence(broker_id)
    return decision


def _unregister_broker(ask: Ask) -> Decision[Message]:
    decision = brokers.decide_unregister_broker(ask.moment.image, ask.request, ask.context.settings)
    if decision.reply.error_code == ErrorCode.NONE:
        ask.context.liveness.forget(ask.request.broker_id)
    return decision


def _create_acls(ask: Ask) -> Decision[Message]:
    if not ask.context.has_authorizer:
        return acls.refuse_create_acls(ask.request)
    return acls.decide_create_acls(ask.image, ask.request, ask.context.random)


def _delete_acls(ask: Ask) -> Decision[Message]:
    if not ask.context.has_authorizer:
        return acls.refuse_delete_acls(ask.request)
    return acls.decide_delete_acls(ask.image, ask.request)


# Nobody who talks to a controller directly has logged in: only forwarded requests about tokens
# are decided, since a broker forwards those of clients that have.


def _create_token(ask: Ask) -> Decision[Message]:
    if not ask.caller.is_forwarded:
        requester = parse_principal(ask.caller.principal)
        return Decision([], tokens.refuse_create(ask.request, requester, _NOT_ALLOWED))
    token_id = ask.context.random.uuid()
    return tokens.decide_create_delegation_token(ask.image, ask.request, token_id, ask.tokens)


def _renew_token(ask: Ask) -> Decision[Message]:
    if not ask.caller.is_forwarded:
        return Decision([], tokens.refuse_renew(_NOT_ALLOWED))
    return tokens.decide_renew_delegation_token(ask.image, ask.request, ask.tokens)


def _expire_token(ask: Ask) -> Decision[Message]:
    if not ask.caller.is_forwarded:
        return Decision([], tokens.refuse_expire(_NOT_ALLOWED))
    return tokens.decide_expire_delegation_token(ask.image, ask.request, ask.tokens)


Decider = Callable[[Ask], Decision[Any]]


def restore_reply(ask: Ask, reply: Message) -> Message:
    """Fill in what is not kept of the reply to a request that is sent again."""
    key = ApiKey(reply.SCHEMA.api_key or 0)
    if key is ApiKey.CREATE_TOPICS:
        return topic_creation.restore_configs(ask.image, reply, ask.topics)  # type: ignore[arg-type]
    if key is ApiKey.CREATE_DELEGATION_TOKEN:
        return tokens.restore_hmac(reply, ask.tokens)  # type: ignore[arg-type]
    return reply


DECISIONS: Final[Mapping[ApiKey, Decider]] = MappingProxyType(
    {
        # brokers and controllers
        ApiKey.BROKER_REGISTRATION: _register_broker,
        ApiKey.BROKER_HEARTBEAT: _heartbeat,
        ApiKey.UNREGISTER_BROKER: _unregister_broker,
        ApiKey.CONTROLLER_REGISTRATION: lambda ask: (
            register_controller.decide_controller_registration(ask.image, ask.request)
        ),
        ApiKey.ALLOCATE_PRODUCER_IDS: lambda ask: producer_ids.decide_allocate_producer_ids(
            ask.image, ask.request
        ),
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: lambda ask: replica_dirs.decide_assign_replicas(
            ask.image, ask.request, ask.settings
        ),
        # topics and partitions
        ApiKey.CREATE_TOPICS: lambda ask: topic_creation.decide_create_topics(
            ask.state, ask.request, ask.topics
        ),
        ApiKey.DELETE_TOPICS: lambda ask: topic_changes.decide_delete_topics(
            ask.state, ask.request, ask.topics, ask.version
        ),
        ApiKey.CREATE_PARTITIONS: lambda ask: topic_changes.decide_create_partitions(
            ask.image, ask.request, ask.topics
        ),
        ApiKey.ALTER_PARTITION: lambda ask: alter_partition.decide_alter_partition(
            ask.image, ask.request, ask.settings
        ),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda ask: reassignments.decide_alter_reassignments(
            ask.image, ask.request, ask.settings
        ),
        # Only read, and yet in its turn: whoever just began one finds it.
        ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda ask: Decision(
            [], reassignments.list_reassignments(ask.state, ask.request)
        ),
        # configuration and quotas
        ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda ask: (
            config_alterations.decide_incremental_alter_configs(ask.image, ask.request, ask.configs)
        ),
        ApiKey.ALTER_CONFIGS: lambda ask: config_alterations.decide_alter_configs(
            ask.image, ask.request, ask.configs
        ),
        ApiKey.ALTER_CLIENT_QUOTAS: lambda ask: client_quotas.decide_alter_client_quotas(
            ask.image, ask.request
        ),
        # who may
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda ask: scram.decide_alter_user_scram_credentials(
            ask.image, ask.request
        ),
        ApiKey.CREATE_ACLS: _create_acls,
        ApiKey.DELETE_ACLS: _delete_acls,
        ApiKey.CREATE_DELEGATION_TOKEN: _create_token,
        ApiKey.RENEW_DELEGATION_TOKEN: _renew_token,
        ApiKey.EXPIRE_DELEGATION_TOKEN: _expire_token,
    }
)
