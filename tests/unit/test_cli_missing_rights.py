"""The right that a refused request lacked, and the principal of a client."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.cli.commands.mirror_command import _hint as mirror_hint
from ottla.cli.connecting.missing_rights import (
    find_missing_right,
    find_right_in_text,
    own_principal,
)
from ottla.client.cluster import Cluster, Refused
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


@pytest.mark.parametrize(
    ("text", "written", "command"),
    [
        ("orders-3: TOPIC_AUTHORIZATION_FAILED", (), "--operation read --topic orders"),
        ("ottla...Refused: orders: TOPIC_AUTHORIZATION_FAILED", (), "read --topic orders"),
        ("dead-1: TOPIC_AUTHORIZATION_FAILED: no", ("dead-1",), "write --topic dead-1"),
        ("group g 1: GROUP_AUTHORIZATION_FAILED", (), "--operation read --group 1"),
        ("x: TRANSACTIONAL_ID_AUTHORIZATION_FAILED", (), "write --transactional-id x"),
        ("orders: CLUSTER_AUTHORIZATION_FAILED", (), "--operation create --cluster"),
    ],
)
def test_right_of_a_pipeline_is_found_in_its_message(
    text: str, written: tuple[str, ...], command: str
) -> None:
    right = find_right_in_text(text, written)
    assert right is not None and right.text("User:a").endswith(command)


@pytest.mark.parametrize("text", ["", "TOPIC_AUTHORIZATION_FAILED", "orders: NOT_COORDINATOR"])
def test_other_message_of_a_pipeline_names_no_right(text: str) -> None:
    assert find_right_in_text(text) is None


def test_long_message_of_a_pipeline_is_searched_in_linear_time() -> None:
    assert find_right_in_text("a" * 1_000_000 + "\n" + ": " * 1_000_000) is None


def test_mirror_names_the_right_and_the_cluster(tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text(
        "bootstrap.servers=a:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        "sasl.username=copier\nsasl.password=x\n"
    )
    cluster = cast("Cluster", SimpleNamespace(last_api=ApiKey.CREATE_TOPICS))
    refused = Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "orders")
    hint = mirror_hint(refused, "--to", str(settings), cluster)
    assert "User:copier lacks the right CREATE on the cluster" in hint
    assert hint.endswith("--operation create --cluster, in the cluster of --to")
    other = Refused(ErrorCode.NOT_CONTROLLER, "orders")
    assert mirror_hint(other, "--to", str(settings), cluster) == ""
