"""The decisions of the active controller, one function per API; `ottla.api.surface.table` names
them.

Each function passes a request, and what the active controller knows beside the image, to a pure
decision of `ottla.controller`. State that is not in the log (the brokers' sessions) is changed
here: each decision is made exactly once, in its turn.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ottla.api.security.access import OPEN, Access
from ottla.api.surface.routes import ANONYMOUS, Caller
from ottla.config.values import Password
from ottla.controller import brokers, heartbeats
from ottla.controller import register_controller as registrations
from ottla.controller.active_controller import Moment
from ottla.controller.broker_liveness import Liveness
from ottla.controller.config_rules import ConfigContext
from ottla.controller.decision import ControllerState, Decision, Steps
from ottla.controller.decision_settings import DecisionSettings
from ottla.controller.mutation_quotas import MutationQuotas, RequestQuota
from ottla.controller.token_index import TokenIndex
from ottla.metadata.image import Image
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema import Message
from ottla.protocol.types import Offset
from ottla.quotas.client_quotas import quota_client
from ottla.runtime.lazy import LazyModule
from ottla.runtime.ports import Random
from ottla.security.acl import AclOperation, ResourceType
from ottla.security.principal import parse_principal

# Brokers and controllers register at every start; other requests come later, if ever.
if TYPE_CHECKING:
    from ottla.api.cluster import controller_authorization as authorizing
    from ottla.controller import (
        acls,
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
    from ottla.controller import (
        alter_partition as alter_partitions,
    )
    from ottla.protocol.messages import alter_configs as whole_configs
    from ottla.protocol.messages import incremental_alter_configs as incremental_configs
else:
    authorizing = LazyModule("ottla.api.cluster.controller_authorization")
    whole_configs = LazyModule("ottla.protocol.messages.alter_configs")
    incremental_configs = LazyModule("ottla.protocol.messages.incremental_alter_configs")
    acls = LazyModule("ottla.controller.acls")
    config_alterations = LazyModule("ottla.controller.config_alterations")
    alter_partitions = LazyModule("ottla.controller.alter_partition")
    producer_ids = LazyModule("ottla.controller.producer_ids")
    client_quotas = LazyModule("ottla.controller.client_quotas")
    reassignments = LazyModule("ottla.controller.reassignments")
    replica_dirs = LazyModule("ottla.controller.replica_dirs")
    scram = LazyModule("ottla.controller.scram")
    tokens = LazyModule("ottla.controller.tokens")
    topic_changes = LazyModule("ottla.controller.topic_changes")
    topic_creation = LazyModule("ottla.controller.topic_creation")


log = logging.getLogger(__name__)

_NOT_ALLOWED: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class TokenSettings(msgspec.Struct, frozen=True):
    """The ``delegation.token.*`` keys; without a secret there are no tokens."""

    secret: Password | None = None
    lifetime_ms_max: int = 604_800_000
    renewal_ms: int = 86_400_000


class ControllerContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the active controller knows beside the image; ``voter_ids`` may change."""

    cluster_id: str
    settings: DecisionSettings
    voter_ids: Callable[[], Iterable[int]]
    liveness: Liveness
    random: Random
    tokens: TokenSettings = TokenSettings()
    token_index: TokenIndex = msgspec.field(default_factory=TokenIndex)
    """Finds tokens by their passwords."""
    access: Access = OPEN
    """Authorizes changes. ACLs can be created only if they are enforced."""
    mutations: MutationQuotas = msgspec.field(default_factory=MutationQuotas)
    """How many changes of partitions each client may still make (KIP-599)."""

    def configs(self) -> ConfigContext:
        """Return the context of decisions about configurations, with the current voters."""
        return replace(self.settings.configs, controller_ids=frozenset(self.voter_ids()))


class DecisionCall(msgspec.Struct, frozen=True):
    """One request to decide. ``request`` is of the class of its API."""

    context: ControllerContext
    caller: Caller
    # Each decision has its own request class, so none can be annotated here.
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
        """The context of decisions about configurations."""
        return replace(self.context.configs(), is_forwarded=self.caller.is_forwarded)

    @property
    def topics(self) -> "topic_creation.TopicContext":
        """The context of decisions about topics."""
        context = self.context
        access = context.access
        describable = authorizing.Describable(access, self.caller) if access.is_enabled else None
        return topic_creation.TopicContext(
            context.settings, context.random, describable=describable
        )

    @property
    def tokens(self) -> "tokens.TokenContext":
        """The context of decisions about delegation tokens."""
        held = self.context.tokens
        return tokens.TokenContext(
            parse_principal(self.caller.principal),
            self.moment.wall,
            held.secret,
            held.lifetime_ms_max,
            held.renewal_ms,
            self.context.token_index,
        )


# -- nodes ----------------------------------------------------------------------


def register_broker(call: DecisionCall) -> Decision[Message]:
    """BrokerRegistration: a registered broker has a session from now on."""
    request, moment, live = call.request, call.moment, call.context.liveness
    known = moment.image.cluster.brokers.get(request.broker_id)
    has_session = known is not None and live.has_session(known.id, known.epoch, moment.now)
    context = brokers.RegistrationContext(call.context.cluster_id, moment.next_offset, has_session)
    decision = brokers.decide_broker_registration(
        moment.image, request, context, call.context.settings
    )
    if decision.reply.error_code == ErrorCode.NONE:
        live.register(request.broker_id, decision.reply.broker_epoch, moment.now)
    elif refusal := brokers.refuse_registration(moment.image, request, context):
        # A broker that was killed and started again repeats itself until its old session ends.
        is_passing = refusal.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        log.log(logging.INFO if is_passing else logging.WARNING,
                "broker registration refused broker=%d error=%s reason=%s",
                request.broker_id, refusal.code.name, refusal.message)  # fmt: skip
    return decision


def heartbeat(call: DecisionCall) -> Decision[Message]:
    """BrokerHeartbeat: extends the session, and starts or ends a controlled shutdown."""
    request, moment, live = call.request, call.moment, call.context.liveness
    broker_id = request.broker_id
    if brokers.refuse_broker(moment.image, broker_id, request.broker_epoch) is None:
        read = Offset(request.current_metadata_offset)
        connection = (call.caller.listener, call.caller.peer)
        live.touch(broker_id, request.broker_epoch, read, moment.now, connection)
    context = live.heartbeat_context(broker_id, moment.image)
    decision = heartbeats.decide_broker_heartbeat(
        moment.state, request, context, call.context.settings
    )
    reply = decision.reply
    if reply.error_code == ErrorCode.NONE:
        is_leaving = request.want_shut_down and not reply.should_shut_down and not reply.is_fenced
        if is_leaving:
            live.enter_shutdown(broker_id, Offset(moment.next_offset + len(decision.records) - 1))
        elif reply.is_fenced and reply.should_shut_down:
            live.fence(broker_id)
    return decision


def unregister_broker(call: DecisionCall) -> Decision[Message]:
    """UnregisterBroker."""
    decision = brokers.decide_unregister_broker(
        call.moment.image, call.request, call.context.settings
    )
    if decision.reply.error_code == ErrorCode.NONE:
        call.context.liveness.forget(call.request.broker_id)
    return decision


def register_controller(call: DecisionCall) -> Decision[Message]:
    """ControllerRegistration."""
    return registrations.decide_controller_registration(call.image, call.request)


def unregister_controller(call: DecisionCall) -> Decision[Message]:
    """UnregisterController."""
    voters = frozenset(call.context.voter_ids())
    return registrations.decide_unregister_controller(call.image, call.request, voters)


def allocate_producer_ids(call: DecisionCall) -> Decision[Message]:
    """AllocateProducerIds."""
    return producer_ids.decide_allocate_producer_ids(call.image, call.request)


def assign_replicas_to_dirs(call: DecisionCall) -> Decision[Message]:
    """AssignReplicasToDirs."""
    return replica_dirs.decide_assign_replicas(call.image, call.request, call.settings)


# -- topics and partitions ------------------------------------------------------


def _charged(
    call: DecisionCall,
    key: ApiKey,
    decide: "Callable[[topic_creation.TopicContext], Decision[Any]]",
) -> Decision[Any]:
    """Decide within the mutation quota of the client; the reply has its throttle time."""
    quota = _mutation_quota(call, key)
    if quota is None:
        return decide(call.topics)
    decision = decide(msgspec.structs.replace(call.topics, quota=quota))
    decision.reply.throttle_time_ms = quota.throttle_ms
    return decision


def _mutation_quota(call: DecisionCall, key: ApiKey) -> RequestQuota | None:
    client = quota_client(call.caller.principal, call.caller.client_id)
    return call.context.mutations.of(call.image, client, key, call.version, call.moment.now)


def create_topics(call: DecisionCall) -> Steps[Decision[Message]]:
    """CreateTopics, in steps."""
    access, caller = call.context.access, call.caller
    request, refused = authorizing.authorize_create_topics(access, caller, call.request)
    quota = _mutation_quota(call, ApiKey.CREATE_TOPICS)
    topics = call.topics if quota is None else msgspec.structs.replace(call.topics, quota=quota)
    decision = yield from topic_creation.create_topics_steps(call.state, request, topics)
    if quota is not None:
        decision.reply.throttle_time_ms = quota.throttle_ms
    decision.reply.topics += refused
    return decision


def delete_topics(call: DecisionCall) -> Decision[Message]:
    """DeleteTopics."""
    access, caller = call.context.access, call.caller
    request, refused = authorizing.authorize_delete_topics(access, caller, call.request, call.image)
    decision = _charged(
        call,
        ApiKey.DELETE_TOPICS,
        lambda topics: topic_changes.decide_delete_topics(
            call.state, request, topics, call.version
        ),
    )
    decision.reply.responses += refused
    return decision


def create_partitions(call: DecisionCall) -> Decision[Message]:
    """CreatePartitions."""
    access, caller = call.context.access, call.caller
    request, refused = authorizing.authorize_create_partitions(access, caller, call.request)
    decision = _charged(
        call,
        ApiKey.CREATE_PARTITIONS,
        lambda topics: topic_changes.decide_create_partitions(call.image, request, topics),
    )
    decision.reply.results += refused
    return decision


def alter_partition(call: DecisionCall) -> Decision[Message]:
    """AlterPartition."""
    return alter_partitions.decide_alter_partition(call.image, call.request, call.settings)


def alter_partition_reassignments(call: DecisionCall) -> Decision[Message]:
    """AlterPartitionReassignments."""
    return reassignments.decide_alter_reassignments(call.image, call.request, call.settings)


def list_partition_reassignments(call: DecisionCall) -> Decision[Message]:
    """ListPartitionReassignments: writes nothing."""
    return Decision([], reassignments.list_reassignments(call.state, call.request))


# -- configuration and quotas ---------------------------------------------------


def incremental_alter_configs(call: DecisionCall) -> Decision[Message]:
    """IncrementalAlterConfigs."""
    access, caller = call.context.access, call.caller
    request, refused = authorizing.authorize_configs(access, caller, call.request)
    decision = config_alterations.decide_incremental_alter_configs(
        call.image, request, call.configs
    )
    result = incremental_configs.AlterConfigsResourceResponse
    decision.reply.responses += [result(*each) for each in refused]
    return decision


def alter_configs(call: DecisionCall) -> Decision[Message]:
    """AlterConfigs."""
    access, caller = call.context.access, call.caller
    request, refused = authorizing.authorize_configs(access, caller, call.request)
    decision = config_alterations.decide_alter_configs(call.image, request, call.configs)
    result = whole_configs.AlterConfigsResourceResponse
    decision.reply.responses += [result(*each) for each in refused]
    return decision


def alter_client_quotas(call: DecisionCall) -> Steps[Decision[Message]]:
    """AlterClientQuotas, in steps."""
    return client_quotas.alter_client_quotas_steps(call.image, call.request)


# -- access ---------------------------------------------------------------------


def alter_user_scram_credentials(call: DecisionCall) -> Steps[Decision[Message]]:
    """AlterUserScramCredentials, in steps."""
    return scram.alter_user_scram_credentials_steps(call.image, call.request)


def create_acls(call: DecisionCall) -> Decision[Message]:
    """CreateAcls."""
    if not call.context.access.is_enabled:
        return acls.refuse_create_acls(call.request)
    return acls.decide_create_acls(call.image, call.request, call.context.random)


def delete_acls(call: DecisionCall) -> Decision[Message]:
    """DeleteAcls."""
    if not call.context.access.is_enabled:
        return acls.refuse_delete_acls(call.request)
    return acls.decide_delete_acls(call.image, call.request)


def allows_token_requests(caller: Caller) -> bool:
    """Say whether a caller may manage tokens: it is authenticated, and not with a token."""
    return caller.principal != ANONYMOUS and not caller.is_token_authenticated


def create_delegation_token(call: DecisionCall) -> Decision[Message]:
    """CreateDelegationToken; for another owner it needs CREATE_TOKENS on that user."""
    caller, requester = call.caller, parse_principal(call.caller.principal)
    if not allows_token_requests(caller):
        return Decision([], tokens.refuse_create(call.request, requester, _NOT_ALLOWED))
    owner = tokens.owner_of(call.request, requester)
    if owner != requester and not call.context.access.allows(
        caller, AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)
    ):
        code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        return Decision([], tokens.refuse_create(call.request, requester, code))
    token_id = call.context.random.uuid()
    return tokens.decide_create_delegation_token(call.image, call.request, token_id, call.tokens)


def renew_delegation_token(call: DecisionCall) -> Decision[Message]:
    """RenewDelegationToken."""
    if not allows_token_requests(call.caller):
        return Decision([], tokens.refuse_renew(_NOT_ALLOWED))
    return tokens.decide_renew_delegation_token(call.image, call.request, call.tokens)


def expire_delegation_token(call: DecisionCall) -> Decision[Message]:
    """ExpireDelegationToken."""
    if not allows_token_requests(call.caller):
        return Decision([], tokens.refuse_expire(_NOT_ALLOWED))
    return tokens.decide_expire_delegation_token(call.image, call.request, call.tokens)


DecisionFunction = Callable[[DecisionCall], Decision[Any] | Steps[Decision[Any]]]
"""What the name of a decision row stands for."""


def restore_reply(call: DecisionCall, reply: Message) -> Message:
    """Restore the fields that the log does not keep of the reply to a repeated request."""
    key = ApiKey(reply.SCHEMA.api_key or 0)
    if key is ApiKey.CREATE_TOPICS:
        return topic_creation.restore_configs(call.image, reply, call.topics)  # type: ignore[arg-type]
    if key is ApiKey.CREATE_DELEGATION_TOKEN:
        return tokens.restore_hmac(reply, call.tokens)  # type: ignore[arg-type]
    return reply
