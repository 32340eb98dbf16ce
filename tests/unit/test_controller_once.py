"""A repeated forwarded request is not decided again: it gets the first reply."""

from collections.abc import Generator
from typing import Any

import pytest
from controller_cluster import CLUSTER, ControllerCluster
from metadata_snapshots import snapshot_batches, snapshot_image

from ottla.api.cluster import controller_decisions
from ottla.api.cluster.controller_decisions import ControllerContext, DecisionCall, TokenSettings
from ottla.api.cluster.controller_handlers import ControllerHandlers
from ottla.api.security.access import Access
from ottla.api.surface.routes import Caller
from ottla.config.values import Password
from ottla.controller.active_controller import Moment
from ottla.controller.broker_liveness import Liveness
from ottla.controller.decision import Decision, finish
from ottla.metadata import answered_requests
from ottla.metadata.answered_requests import AnsweredRequest, AnsweredRequests, RequestIdentity
from ottla.metadata.image import Provenance
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal.framing import decode_framed, encode_framed
from ottla.protocol.internal.metadata_records import METADATA_RECORDS
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.schema import Message
from ottla.protocol.types import LeaderEpoch, Millis, Offset, Uuid
from ottla.runtime.ports import Address
from ottla.security.authorizer import AclAuthorizer

FIRST = RequestIdentity(Uuid(b"first request id"))
AGAIN = RequestIdentity(FIRST.id, is_resent=True)
OTHER = RequestIdentity(Uuid(b"other request id"))
APPEND = 2


class Controlling:
    """The controller's handlers over a small cluster with the topic ``t``."""

    def __init__(self) -> None:
        self.cluster = ControllerCluster(brokers=3)
        self.cluster.create("t")
        context = ControllerContext(
            cluster_id=CLUSTER,
            settings=self.cluster.settings,
            voter_ids=lambda: (100,),
            liveness=Liveness(10_000),
            random=self.cluster.random,
            tokens=TokenSettings(Password("secret")),
            access=Access(AclAuthorizer(["User:alice"])),
        )
        nobody: Any = None
        self.handlers = ControllerHandlers(nobody, nobody, context, nobody)
        self.context = context

    def decide(
        self, key: ApiKey, request: Message, identity: RequestIdentity | None
    ) -> Decision[Message]:
        caller = Caller(
            "User:alice",
            None,
            Address("192.0.2.1", 1),
            "CONTROLLER",
            is_forwarded=True,
            request=identity,
        )
        moment = Moment(
            state=self.cluster.state,
            now=Millis(5),
            wall=Millis(6),
            expiry=Millis(6),
            next_offset=Offset(self.cluster.offset),
            epoch=LeaderEpoch(1),
        )
        call = DecisionCall(self.context, caller, request, 1, moment)
        decide_on = getattr(controller_decisions, key.name.lower())
        decided = self.handlers.decide_once(key, call, decide_on)
        return finish(decided) if isinstance(decided, Generator) else decided

    def send(self, key: ApiKey, request: Message, identity: RequestIdentity | None) -> Any:
        return self.cluster.take(self.decide(key, request, identity))


def create(*names: str) -> CreateTopicsRequest:
    configs = [CreatableTopicConfig("retention.ms", "5")]
    return CreateTopicsRequest([CreatableTopic(name, 2, 2, configs=configs) for name in names])


def append(value: str) -> IncrementalAlterConfigsRequest:
    config = AlterableConfig("cleanup.policy", APPEND, value)
    return IncrementalAlterConfigsRequest([AlterConfigsResource(2, "t", [config])])


def reassign() -> AlterPartitionReassignmentsRequest:
    partition = ReassignablePartition(0, [0, 1, 2])
    return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic("t", [partition])])


MUTATIONS: dict[ApiKey, Message] = {
    ApiKey.CREATE_TOPICS: create("new", "other"),
    ApiKey.DELETE_TOPICS: DeleteTopicsRequest(topic_names=["t"]),
    ApiKey.CREATE_PARTITIONS: CreatePartitionsRequest([CreatePartitionsTopic("t", 9, None)]),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: append("compact"),
    ApiKey.ALTER_CLIENT_QUOTAS: AlterClientQuotasRequest(
        [
            RequestEntryData(
                [RequestEntityData("user", "u")], [OpData("producer_byte_rate", 5.0, False)]
            )
        ]
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AlterUserScramCredentialsRequest(
        upsertions=[ScramCredentialUpsertion("u", 1, 4096, b"salt", b"password" * 4)]
    ),
    ApiKey.CREATE_ACLS: CreateAclsRequest([AclCreation(2, "t", 3, "User:a", "*", 3, 3)]),
    ApiKey.UNREGISTER_BROKER: UnregisterBrokerRequest(2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: reassign(),
    ApiKey.CREATE_DELEGATION_TOKEN: CreateDelegationTokenRequest(None, None, [], -1),
}


@pytest.mark.parametrize("key", MUTATIONS, ids=lambda key: key.title)
def test_repeated_request_changes_nothing_and_gets_the_same_reply(key: ApiKey) -> None:
    controlling = Controlling()
    first = controlling.decide(key, MUTATIONS[key], FIRST)
    assert len(first.records) > 1  # the change and the stored reply
    response = controlling.cluster.take(first)
    again = controlling.decide(key, MUTATIONS[key], AGAIN)
    assert again.records == []
    assert again.reply == response


def test_repeated_create_topics_does_not_return_topic_exists() -> None:
    controlling = Controlling()
    controlling.send(ApiKey.CREATE_TOPICS, create("new"), FIRST)
    (again,) = controlling.send(ApiKey.CREATE_TOPICS, create("new"), AGAIN).topics
    assert (again.error_code, again.topic_id) == (0, controlling.cluster.image.topics.ids["new"])
    assert {each.name: each.value for each in again.configs}["retention.ms"] == "5"
    # Another request id is another request.
    for identity in (OTHER, None):
        (other,) = controlling.send(ApiKey.CREATE_TOPICS, create("new"), identity).topics
        assert other.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_append_to_a_config_list_happens_once() -> None:
    controlling = Controlling()
    for identity in (FIRST, AGAIN, AGAIN):
        controlling.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, append("compact"), identity)
    image = controlling.cluster.image
    (values,) = (v for k, v in image.configs.by_resource.items() if k.name == "t")
    assert values["cleanup.policy"].split(",").count("compact") == 1


def test_request_whose_first_attempt_was_never_appended_is_decided() -> None:
    controlling = Controlling()
    controlling.decide(ApiKey.CREATE_TOPICS, create("new"), FIRST)  # and leadership is lost
    (made,) = controlling.send(ApiKey.CREATE_TOPICS, create("new"), AGAIN).topics
    assert made.error_code == ErrorCode.NONE


def test_rejected_request_leaves_no_record() -> None:
    controlling = Controlling()
    assert controlling.decide(ApiKey.CREATE_TOPICS, create("t"), FIRST).records == []


def test_password_of_a_delegation_token_is_not_in_the_log() -> None:
    controlling = Controlling()
    key = ApiKey.CREATE_DELEGATION_TOKEN
    decision: Any = controlling.decide(key, MUTATIONS[key], FIRST)
    assert decision.reply.hmac
    assert all(decision.reply.hmac not in encode_framed(r) for r in decision.records)


def test_snapshot_keeps_answered_requests() -> None:
    controlling = Controlling()
    reply = controlling.send(ApiKey.CREATE_TOPICS, create("new"), FIRST)
    image = controlling.cluster.image
    batches = [
        [decode_framed(METADATA_RECORDS, encode_framed(each)).message for each in batch]
        for batch in snapshot_batches(image)
    ]
    loaded = snapshot_image(batches, Provenance())
    assert loaded.answered == image.answered
    controlling.cluster.state = type(controlling.cluster.state).of(loaded)
    assert controlling.send(ApiKey.CREATE_TOPICS, create("new"), AGAIN) == reply


def test_answered_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answered_requests, "COUNT_MAX", 3)
    monkeypatch.setattr(answered_requests, "BYTES_MAX", 10)
    ids = [Uuid(bytes([number]) * 16) for number in range(6)]
    kept = AnsweredRequests()
    for request_id in ids[:5]:
        kept = kept.with_request(request_id, AnsweredRequest(19, b"xy"))
    assert (kept.order, kept.reply_bytes) == (tuple(ids[2:5]), 6)
    kept = kept.with_request(ids[5], AnsweredRequest(19, b"x" * 9))
    assert (kept.order, kept.reply_bytes) == ((ids[5],), 9)
    assert list(kept.by_id) == [ids[5]]
