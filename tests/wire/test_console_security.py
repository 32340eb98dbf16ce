"""The console of a cluster with logins and ACLs: who sees what, and requests of other sites."""

import base64
import re
from collections.abc import Iterator

import pytest
from authorized_session import authorized_node
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from console_node import Answer, RunningConsole
from one_node import OneNode
from secure_node import SecureNode
from tests.patience import SECONDS_MAX

from ottla.console.app import COOKIE
from ottla.console.routes import ROUTES

SECRET = "secret-topic"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> SecureNode:
    return authorized_node(tmp_path_factory.mktemp("console"))


@pytest.fixture(scope="module")
def node(secure: SecureNode) -> Iterator[OneNode]:
    running = secure.start()
    yield running
    running.stop()


def client(secure: SecureNode, user: str) -> dict[str, str]:
    return {
        "bootstrap.servers": secure.bootstrap("LOGIN"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }


@pytest.fixture(scope="module")
def console(secure: SecureNode, node: OneNode) -> Iterator[RunningConsole]:
    admin = AdminClient(client(secure, "node"))
    admin.create_topics([NewTopic(SECRET, 1, 1)])[SECRET].result(SECONDS_MAX)
    producer = Producer(client(secure, "node"))
    producer.produce(SECRET, b"confidential")
    assert producer.flush(SECONDS_MAX) == 0
    consumer = Consumer({**client(secure, "node"), "group.id": "secret-group"})
    consumer.subscribe([SECRET])
    consumer.poll(1)
    running = RunningConsole(secure.bootstrap("LOGIN"), needs_login=True)
    yield running
    running.stop()
    consumer.close()


def basic(user: str, password: str | None = None) -> str:
    text = f"{user}:{password or user + '-secret'}"
    return "Basic " + base64.b64encode(text.encode()).decode()


def log_in(
    console: RunningConsole, user: str, password: str | None = None, **headers: str
) -> Answer:
    form = {"user": user, "password": password or f"{user}-secret", "next": "/topics"}
    return console.call("POST", "/login", form, form=True, **headers)


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


def paths() -> list[tuple[str, str]]:
    return [(each.method, re.sub(r"\{\w+\}", "1", each.path)) for each in ROUTES]


def test_no_endpoint_answers_without_login(console: RunningConsole) -> None:
    for method, path in paths():
        for prefix in ("", "/api/v1"):
            answer = console.call(method, prefix + path, {} if method == "POST" else None)
            assert answer.status in (401, 303), (method, prefix + path)
            assert SECRET not in answer.text
            if answer.status == 303:
                assert answer.headers["location"].startswith("/login")
        answer = console.call(method, f"/api/v1{path}", cookie=f"{COOKIE}=0123")
        assert answer.status == 401


def test_requests_of_other_sites_change_nothing(console: RunningConsole) -> None:
    cookie = cookie_of(log_in(console, "node"))
    for method, path in paths():
        if method != "POST":
            continue
        for headers in (
            {"sec_fetch_site": "cross-site"},
            {"sec_fetch_site": "same-site"},
            {"origin": "https://evil.example"},
            {"origin": "null"},
        ):
            answer = console.call("POST", path, {}, form=True, cookie=cookie, **headers)
            assert answer.status == 403, (path, headers)
    foreign = log_in(console, "node", origin="https://evil.example")
    assert foreign.status == 403


def test_foreign_host_names_are_refused(console: RunningConsole) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "", "[::"):
        assert console.get("/login", host=host).status in (400, 421), host
    assert console.get("/login", host=f"localhost:{console.port}").status == 200


def test_login_gives_a_strict_cookie_and_a_new_session(console: RunningConsole) -> None:
    fixed = f"{COOKIE}=attacker"
    answer = log_in(console, "node", cookie=fixed)
    assert answer.status == 303 and answer.headers["location"] == "/topics"
    attributes = answer.headers["set-cookie"].lower()
    assert "httponly" in attributes and "samesite=strict" in attributes
    assert console.get("/topics", cookie=fixed).status == 303
    cookie = cookie_of(answer)
    again = log_in(console, "node", cookie=cookie)
    assert cookie_of(again) != cookie
    assert console.get("/topics", cookie=cookie).status == 303
    fresh = cookie_of(again)
    assert SECRET in console.get("/topics", cookie=fresh).text
    console.call("POST", "/logout", {}, form=True, cookie=fresh)
    assert console.get("/topics", cookie=fresh).status == 303


def test_wrong_passwords_and_redirects_are_refused(console: RunningConsole) -> None:
    answer = log_in(console, "node", "wrong")
    assert answer.status == 401 and "set-cookie" not in answer.headers
    assert console.get("/api/v1/topics", authorization=basic("node", "wrong")).status == 401
    assert console.get("/api/v1/topics", authorization="Bearer x").status == 401
    form = {"user": "node", "password": "node-secret", "next": "//evil.example/"}
    assert console.call("POST", "/login", form, form=True).headers["location"] == "/"


def test_user_without_rights_sees_what_the_kafka_api_shows(
    console: RunningConsole, secure: SecureNode
) -> None:
    admin = AdminClient(client(secure, "alice"))
    visible = set(admin.list_topics(timeout=SECONDS_MAX).topics)
    alice, node = basic("alice"), basic("node")
    listed = console.api("/topics?internal=true", authorization=alice)["topics"]
    assert {row["name"] for row in listed} == visible
    assert SECRET not in visible
    for path in (
        "/topics/" + SECRET,
        f"/topics/{SECRET}/messages",
        f"/topics/{SECRET}/messages/0/0",
    ):
        assert console.get("/api/v1" + path, authorization=alice).status in (403, 404), path
        assert console.get("/api/v1" + path, authorization=node).status == 200, path
    for path in ("", "/groups", "/brokers", "/brokers/1", "/security", "/transactions", "/letters"):
        answer = console.get("/api/v1" + path, authorization=alice)
        assert "secret-group" not in answer.text and SECRET not in answer.text, path
        assert "confidential" not in answer.text
    shown = console.api("/security", authorization=alice)
    assert shown["acls"] == [] and shown["acls_failure"]
    assert shown["users"] == []
    sent = {"value": "x"}
    refused = console.call("POST", f"/api/v1/topics/{SECRET}/messages", sent, authorization=alice)
    assert refused.status in (403, 404)
    search = console.call("POST", "/api/v1/searches", {"topic": SECRET, "text": "c"},
                          authorization=alice)  # fmt: skip
    assert search.status in (403, 404)


def test_searches_are_seen_by_their_owner_only(console: RunningConsole) -> None:
    alice, node = basic("alice"), basic("node")
    query = {"topic": SECRET, "text": "confidential"}
    job = console.api("/searches", query, authorization=node)["id"]
    assert console.get(f"/api/v1/searches/{job}", authorization=node).status == 200
    assert console.get(f"/api/v1/searches/{job}", authorization=alice).status == 404
    assert console.api("/searches", authorization=alice)["searches"] == []


def test_entries_are_created_explained_and_deleted(console: RunningConsole) -> None:
    node = basic("node")
    entry = {"principal": "User:bob", "operation": "read", "resource": "topic", "name": SECRET}
    question = "&".join(f"{name}={value}" for name, value in entry.items())
    before = console.api(f"/security?{question}", authorization=node)["decision"]
    assert before["is_allowed"] is False
    console.api("/security/acls", entry, authorization=node)
    after = console.api(f"/security?{question}", authorization=node)["decision"]
    assert after["is_allowed"] is True and after["entry"]["principal"] == "User:bob"
    assert "User:bob" in console.get("/security", authorization=node).text
    console.api("/security/acls/delete", entry, authorization=node)
    again = console.call("POST", "/api/v1/security/acls/delete", entry, authorization=node)
    assert again.status == 404


def test_changes_are_logged_with_the_user(
    console: RunningConsole, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "ottla.console.audit"):
        name = "audited-topic"
        console.api("/topics", {"name": name}, authorization=basic("node"))
        console.api(f"/topics/{name}/delete", {"confirm": name}, authorization=basic("node"))
        console.call("POST", "/api/v1/topics", {"name": name}, authorization=basic("alice"))
    lines = [each.getMessage() for each in caplog.records if each.name == "ottla.console.audit"]
    assert any("user='node'" in line and "was created" in line for line in lines)
    assert any("user='node'" in line and "was deleted" in line for line in lines)
    assert any("user='alice'" in line and "outcome=Refused" in line for line in lines)
    assert not any("secret" in line for line in lines)
