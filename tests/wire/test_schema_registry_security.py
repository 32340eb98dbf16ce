"""Logins and ACLs of the schema registry."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.patience import SECONDS_MAX

from ottla.testing.cluster import Cluster, run_cluster

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "schema.registry.authentication.required": True,
    "listener.name.schema_registry.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.schema_registry.plain.sasl.jaas.config": (
        f'{PLAIN} user_admin="admin-secret" user_alice="alice-secret";'
    ),
}


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with run_cluster(1, schema_registry=True, config=CONFIG) as cluster:
        yield cluster


def ask(
    node: Cluster, method: str, path: str, login: str | None = None, body: object = None
) -> tuple[int, object, str | None]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(node.schema_registry_url + path, data, method=method)
    request.add_header("Content-Type", "application/json")
    if login is not None:
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=SECONDS_MAX) as reply:
            return reply.status, json.loads(reply.read()), None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read()), error.headers["www-authenticate"]


def test_requests_without_or_with_wrong_password_are_refused(node: Cluster) -> None:
    for login in (None, "admin:wrong", "nobody:admin-secret", "admin", ":"):
        status, body, challenge = ask(node, "GET", "/subjects", login)
        assert (status, body) == (401, {"error_code": 40101, "message": "Unauthorized"})
        assert challenge is not None
        assert challenge.startswith("Basic")
    assert ask(node, "GET", "/subjects", "admin:admin-secret")[0] == 200


def test_acls_on_subjects_decide(node: Cluster) -> None:
    # Content and names of its own: other tests of this node grant rights, too.
    schema = {"schema": '{"type": "record", "name": "Orders", "fields": []}'}
    alice, admin = "alice:alice-secret", "admin:admin-secret"
    path = "/subjects/orders-value/versions"
    schema_id = ask(node, "POST", path, admin, schema)[1]["id"]  # type: ignore[index]
    status, body, _ = ask(node, "GET", path, alice)
    assert status == 403
    assert body == {
        "error_code": 40301,
        "message": "User is denied operation Read on Subject: orders-value",
    }
    listed = "/subjects?subjectPrefix=orders"
    assert ask(node, "GET", listed, alice)[1] == []
    assert ask(node, "GET", f"/schemas/ids/{schema_id}", alice)[0] == 403
    assert ask(node, "GET", "/config", alice)[0] == 403
    _allow(node, "_schemas:orders-", AclOperation.READ)
    assert _eventually(lambda: ask(node, "GET", path, alice)[0] == 200)
    assert ask(node, "GET", listed, alice)[1] == ["orders-value"]
    assert ask(node, "GET", f"/schemas/ids/{schema_id}", alice)[0] == 200
    assert ask(node, "POST", path, alice, {"schema": '"long"'})[0] == 403
    assert ask(node, "DELETE", "/subjects/orders-value", alice)[0] == 403
    assert ask(node, "PUT", "/config/orders-value", alice, {"compatibility": "NONE"})[0] == 403


def test_name_of_another_context_is_not_a_way_around_acls(node: Cluster) -> None:
    alice, admin = "alice:alice-secret", "admin:admin-secret"
    body = {"schema": '"string"'}
    assert ask(node, "POST", "/subjects/:.secret:plans/versions", admin, body)[0] == 200
    _allow(node, "_schemas:plans", AclOperation.READ)
    path = "/subjects/plans/versions/latest"
    assert _eventually(lambda: ask(node, "GET", "/subjects/plans/versions", alice)[0] == 404)
    assert ask(node, "GET", path, alice)[0] == 403
    assert ask(node, "GET", path, admin)[0] == 200
    look_up = ask(node, "POST", "/subjects/plans", alice, body)
    assert look_up[0] == 403


def test_id_of_a_schema_does_not_tell_the_name_of_its_subject(node: Cluster) -> None:
    alice, admin = "alice:alice-secret", "admin:admin-secret"
    body = {"schema": '{"type": "record", "name": "Hidden", "fields": []}'}
    schema_id = ask(node, "POST", "/subjects/hidden-value/versions", admin, body)[1]["id"]  # type: ignore[index]
    status, reply, _ = ask(node, "GET", f"/schemas/ids/{schema_id}", alice)
    assert status == 403 and "hidden" not in json.dumps(reply)
    assert "hidden" not in json.dumps(ask(node, "GET", "/schemas", alice)[1])
    assert "hidden" not in json.dumps(ask(node, "GET", "/contexts", alice)[1])


def test_reference_is_not_a_way_to_read_a_schema(node: Cluster) -> None:
    alice, admin = "alice:alice-secret", "admin:admin-secret"
    secret = {"schema": '{"type": "record", "name": "Secret", "fields": []}'}
    assert ask(node, "POST", "/subjects/vault-value/versions", admin, secret)[0] == 200
    for operation in (AclOperation.READ, AclOperation.WRITE):
        _allow(node, "_schemas:mine", operation)
    body = {
        "schema": '{"type": "record", "name": "M", "fields": [{"name": "f", "type": "Secret"}]}',
        "references": [{"name": "Secret", "subject": "vault-value", "version": 1}],
    }
    for path in ("/subjects/mine/versions", "/subjects/mine"):
        assert ask(node, "POST", path, alice, body)[0] == 403
    path = "/compatibility/subjects/mine/versions?verbose=true"
    assert ask(node, "POST", path, alice, body)[0] == 403
    assert ask(node, "POST", "/subjects/mine/versions", alice, {"schema": '"int"'})[0] == 200


def test_alias_is_not_a_way_to_write_to_another_subject(node: Cluster) -> None:
    alice, admin = "alice:alice-secret", "admin:admin-secret"
    body = {"schema": '{"type": "record", "name": "Victim", "fields": []}'}
    assert ask(node, "POST", "/subjects/victim-value/versions", admin, body)[0] == 200
    for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.ALTER_CONFIGS):
        _allow(node, "_schemas:alias", operation)
    assert ask(node, "PUT", "/config/alias", alice, {"alias": "victim-value"})[0] == 200
    rules = {"rulesToMerge": {"domainRules": [{"name": "r", "kind": "CONDITION", "type": "CEL"}]}}
    assert ask(node, "POST", "/subjects/alias/versions/latest/tags", alice, rules)[0] == 403
    assert ask(node, "POST", "/subjects/alias/versions", alice, {"schema": '"int"'})[0] == 403
    assert ask(node, "GET", "/subjects/victim-value/versions", admin)[1] == [1]


def test_imported_ids_need_a_right_on_the_whole_registry(node: Cluster) -> None:
    alice = "alice:alice-secret"
    for operation in (AclOperation.WRITE, AclOperation.ALTER_CONFIGS):
        _allow(node, "_schemas:import", operation)
    assert ask(node, "PUT", "/mode/import", alice, {"mode": "READONLY"})[0] == 200
    assert ask(node, "PUT", "/mode/import", alice, {"mode": "IMPORT"})[0] == 403


def _allow(node: Cluster, name: str, operation: AclOperation) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    binding = AclBinding(
        ResourceType.TOPIC,
        name,
        ResourcePatternType.PREFIXED,
        "User:alice",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    for future in admin.create_acls([binding]).values():
        future.result(SECONDS_MAX)


def _eventually(is_true) -> bool:  # type: ignore[no-untyped-def]
    """The ACLs are published before CreateAcls is answered on the node; retry all the same."""
    return any(is_true() for _ in range(1000))
