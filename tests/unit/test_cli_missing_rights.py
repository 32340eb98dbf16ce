"""The right that a refused request lacked, and the principal of a client."""

import pytest

from ottla.cli.missing_rights import find_missing_right, own_principal
from ottla.client.cluster import Refused
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode

TOPIC, GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("code", "subject", "api", "command", "end"),
    [
        (TOPIC, "a-1-0", ApiKey.PRODUCE, "produce", "--operation write --topic a-1"),
        (TOPIC, "a-1", ApiKey.METADATA, "produce", "--operation write --topic a-1"),
        (TOPIC, "a-1", ApiKey.METADATA, "topic describe", "--operation describe --topic a-1"),
        (TOPIC, "g: a-0", ApiKey.OFFSET_FETCH, "group lag", "--operation describe --topic a"),
        (TOPIC, "g", ApiKey.CONSUMER_GROUP_DESCRIBE, "", "--operation describe --topic TOPIC"),
        (TOPIC, "topic a", ApiKey.DESCRIBE_CONFIGS, "", "--operation describe_configs --topic a"),
        (GROUP, "my group", ApiKey.DELETE_GROUPS, "", "--operation delete --group 'my group'"),
        (CLUSTER, "ACLs", ApiKey.DESCRIBE_ACLS, "acl list", "--operation describe --cluster"),
    ],
)
def test_command_of_a_missing_right(
    code: ErrorCode, subject: str, api: ApiKey, command: str, end: str
) -> None:
    right = find_missing_right(Refused(code, subject), api, command)
    assert right is not None
    text = right.text("User:bob")
    assert text.endswith(f"ottla acl add --allow-principal User:bob {end}")
    assert right.text(None).endswith(f"--allow-principal User:NAME {end}")


def test_producer_id_needs_the_right_to_write_to_the_topic() -> None:
    refused = Refused(CLUSTER, "producer id")
    right = find_missing_right(refused, ApiKey.INIT_PRODUCER_ID, "produce", "a")
    assert right is not None and right.text("User:b").endswith("--operation write --topic a")


def test_other_errors_lack_no_right() -> None:
    refused = Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "a")
    assert find_missing_right(refused, ApiKey.METADATA) is None
    assert find_missing_right(Refused(TOPIC, "a"), None) is None


@pytest.mark.parametrize(
    ("properties", "principal"),
    [
        ({}, "User:ANONYMOUS"),
        ({"security.protocol": "SSL"}, None),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a"}, "User:a"),
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.username": "a"}, None),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": 'm required username="b";'}, "User:b"),
        (
            {
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.jaas.config": 'm required username="id" tokenauth="true";',
            },
            None,
        ),
    ],
)
def test_own_principal(properties: dict[str, str], principal: str | None) -> None:
    if "sasl.mechanism" in properties:
        properties = {"security.protocol": "SASL_SSL", **properties}
    assert own_principal(properties) == principal
