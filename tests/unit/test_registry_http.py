"""The HTTP side of the schema registry: bounds, forwarding, headers, and what ACLs hide."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Coroutine
from typing import Any

import pytest
import uvicorn
from tests.unit.registry_harness import Application, TestNodes
from uvicorn.server import ServerState

from ottla.registry import http_app
from ottla.registry.access import Decides
from ottla.registry.http_call import HOST_HEADER, PRINCIPAL_HEADER
from ottla.registry.rules.settings import Defaults
from ottla.registry.service import RegistrySettings
from ottla.runtime import asgi_service
from ottla.security.acl import AclOperation, ResourceType, Subject
from simulation.loop import run_simulated

OLD = '{"type":"record","name":"R","fields":[{"name":"secretField","type":"int"}]}'
NEW = '{"type":"record","name":"R","fields":[{"name":"other","type":"string"}]}'


def run(main: Coroutine[Any, Any, None]) -> None:
    run_simulated(main)


def allowing(*rights: tuple[str, AclOperation]) -> Decides:
    """Return an authorizer for User:bob with rights on subjects; others may do everything."""

    def allows(
        who: Subject, operation: AclOperation, kind: ResourceType, name: str, is_audited: bool
    ) -> bool:
        if who.principal != "User:bob":
            return True
        return (name.removeprefix("_schemas:"), operation) in rights

    return Decides(allows)


BOB = {"x-test-user": "User:bob"}


# -- what a client that may only write sees -----------------------------------------------


def test_incompatible_schema_is_not_shown_to_a_client_that_may_not_read() -> None:
    async def main() -> None:
        application = Application(allowing(("s", AclOperation.WRITE)))
        path = "/subjects/s/versions"
        assert (await application.ask("POST", path, {"schema": OLD}))[0] == 200
        status, reply = await application.ask("POST", path, {"schema": NEW}, BOB)
        assert (status, reply["error_code"]) == (409, 409)
        assert "secretField" not in json.dumps(reply)
        assert "incompatible with an earlier schema" in reply["message"]
        status, reply = await application.ask("POST", path, {"schema": NEW})
        assert "secretField" in reply["message"]

    run(main())


def test_reply_of_a_registration_shows_a_writer_its_own_text_only() -> None:
    async def main() -> None:
        application = Application(allowing(("s", AclOperation.WRITE)))
        path = "/subjects/s/versions"
        metadata = {"properties": {"owner": "secretOwner"}}
        first = await application.ask("POST", path, {"schema": OLD, "metadata": metadata})
        assert first[0] == 200
        # Without a text, that of the last version is registered again, with other metadata.
        body = {"metadata": {"properties": {"a": "b"}}}
        status, reply = await application.ask("POST", path, body, BOB)
        assert (status, reply["version"]) == (200, 2)
        assert "secretField" not in json.dumps(reply)
        status, reply = await application.ask("POST", path, {"schema": OLD}, BOB)
        assert status == 200 and reply["schema"] == OLD
        assert "metadata" not in reply
        tags = {"tagsToAdd": []}
        assert (await application.ask("POST", f"{path}/1/tags", tags, BOB))[0] == 403

    run(main())


# -- forwarding ---------------------------------------------------------------------------


def test_acls_see_the_host_of_a_client_whose_request_was_forwarded() -> None:
    hosts: list[str] = []

    def allows(
        who: Subject, operation: AclOperation, kind: ResourceType, name: str, is_audited: bool
    ) -> bool:
        hosts.append(who.host)
        return True

    async def main() -> None:
        application = Application(Decides(allows), nodes=TestNodes("10.0.0.1"))
        forwarded = {"x-forward": "true", HOST_HEADER: "192.0.2.7"}
        for headers, host, seen in (
            (forwarded, "10.0.0.1", "192.0.2.7"),
            (forwarded, "10.0.0.9", "10.0.0.9"),  # no broker
            ({HOST_HEADER: "192.0.2.7"}, "10.0.0.1", "10.0.0.1"),  # not forwarded
            ({**forwarded, HOST_HEADER: "any where"}, "10.0.0.1", "10.0.0.1"),
            ({"x-forwarded-for": "192.0.2.7", "forwarded": "for=192.0.2.7"}, "10.0.0.9",
             "10.0.0.9"),
        ):  # fmt: skip
            hosts.clear()
            await application.ask("GET", "/subjects/s/versions", None, headers, host)
            assert set(hosts) == {seen}

    run(main())


def test_forwarded_request_names_the_client_that_this_node_has_identified() -> None:
    async def main() -> None:
        application = Application(settings=RegistrySettings(Defaults(), timeout_ms=1))
        application.store.is_leader = False
        lies = {PRINCIPAL_HEADER: "User:admin", HOST_HEADER: "10.0.0.1", "x-forward": "false"}
        user = {"x-test-user": "User:bob äß/"}
        body = {"mode": "READONLY"}
        await application.ask("PUT", "/mode/gr%C3%BC%C3%9Fe", body, {**lies, **user}, "192.0.2.7")
        request = application.leader.requests[0]
        headers = dict(request.headers)
        assert headers[PRINCIPAL_HEADER] == "User%3Abob%20%C3%A4%C3%9F/"
        assert headers[HOST_HEADER] == "192.0.2.7"
        assert [name for name, _ in request.headers].count(HOST_HEADER) == 1
        assert request.path == "/mode/gr%C3%BC%C3%9Fe"
        assert request.path.isascii()

    run(main())


def test_forwarded_request_is_not_forwarded_again() -> None:
    async def main() -> None:
        application = Application()
        application.store.is_leader = False
        status, reply = await application.ask(
            "PUT", "/mode/s", {"mode": "READONLY"}, {"x-forward": "true"}
        )
        assert (status, reply["error_code"]) == (500, 50004)
        assert application.leader.requests == []

    run(main())


# -- bounds -------------------------------------------------------------------------------


def test_requests_are_refused_while_the_topic_is_read() -> None:
    async def main() -> None:
        application = Application()
        application.store.is_loaded = False
        assert await application.ask("GET", "/subjects") == (
            503,
            {"error_code": 50301, "message": "The registry is loading its schemas"},
        )
        assert (await application.ask("GET", "/"))[0] == 200  # clients ask whether it is alive

    run(main())


def test_body_that_is_too_large_slow_or_one_of_too_many_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        application = Application(settings=RegistrySettings(Defaults(), body_bytes_max=1000))
        path = "/subjects/s/versions"
        assert (await application.ask("POST", path, b" " * 1001))[0] == 413

        async def never() -> dict[str, Any]:
            await asyncio.sleep(3600)
            raise AssertionError

        began = asyncio.get_running_loop().time()
        assert (await application.exchange("POST", path, never))[0] == 408
        waited = asyncio.get_running_loop().time() - began
        assert http_app.BODY_S <= waited < http_app.BODY_S + 1

        monkeypatch.setattr(http_app, "BODIES_BYTES_MAX", 1500)
        pieces = [b" " * 800]

        async def first_piece() -> dict[str, Any]:
            if not pieces:
                await asyncio.sleep(3600)
            return {"type": "http.request", "body": pieces.pop(), "more_body": True}

        async with asyncio.TaskGroup() as tasks:
            slow = tasks.create_task(application.exchange("POST", path, first_piece))
            await asyncio.sleep(1)
            assert (await application.ask("POST", path, b" " * 800))[0] == 503
        assert slow.result()[0] == 408
        # What was received is counted off.
        assert (await application.ask("POST", path, b" " * 800))[0] == 422

    run(main())


class Transport(asyncio.Transport):
    """Notes whether a connection was ended."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_over = False

    def write(self, data: Any) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    abort = close

    def pause_reading(self) -> None:
        return

    resume_reading = pause_reading


def connect(state: ServerState, application: Application) -> tuple[Any, Transport]:
    """Return a connection of the HTTP server, and its transport."""
    config = uvicorn.Config(application.app, lifespan="off", log_config=None, proxy_headers=False,
                            timeout_keep_alive=asgi_service.KEEP_ALIVE_S)  # fmt: skip
    config.load()
    connection = asgi_service._Connection(config, state, {})
    transport = Transport()
    connection.connection_made(transport)
    return connection, transport


def test_head_that_is_sent_slowly_ends_the_connection() -> None:
    request = b"GET /subjects HTTP/1.1\r\nHost: x\r\n\r\n"

    async def main() -> None:
        connection, transport = connect(ServerState(), Application())
        for _ in range(2):  # the first request, and one on a connection that is kept
            connection.data_received(request)
            await asyncio.sleep(asgi_service.HEAD_S + 1)
            assert not transport.is_over
        assert transport.sent.count(b"200 OK") == 2
        for byte in request[: asgi_service.HEAD_S + 2]:
            connection.data_received(bytes([byte]))
            await asyncio.sleep(1)
        assert transport.is_over

    run(main())


def test_connection_that_sends_nothing_is_ended() -> None:
    async def main() -> None:
        _, transport = connect(ServerState(), Application())
        await asyncio.sleep(asgi_service.HEAD_S - 1)
        assert not transport.is_over
        await asyncio.sleep(2)
        assert transport.is_over

    run(main())


def test_reply_that_is_not_read_ends_the_connection() -> None:
    async def main() -> None:
        connection, transport = connect(ServerState(), Application())
        connection.pause_writing()
        connection.resume_writing()
        connection.pause_writing()
        await asyncio.sleep(1)
        connection.resume_writing()
        connection.data_received(b"GET /subjects HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(asgi_service.HEAD_S + 1)
        assert not transport.is_over
        connection.pause_writing()
        await asyncio.sleep(asgi_service.SEND_S + 1)
        assert transport.is_over

    run(main())


def test_connections_beyond_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi_service, "CONNECTIONS_MAX", 2)

    async def main() -> None:
        state, application = ServerState(), Application()
        transports = [connect(state, application)[1] for _ in range(3)]
        assert [transport.is_over for transport in transports] == [False, False, True]

    run(main())


# -- lists --------------------------------------------------------------------------------


def test_page_of_schemas_is_taken_before_rows_are_made() -> None:
    seen: list[str] = []

    def allows(
        who: Subject, operation: AclOperation, kind: ResourceType, name: str, is_audited: bool
    ) -> bool:
        seen.append(name)
        return True

    async def main() -> None:
        application = Application(Decides(allows))
        for number in range(50):
            body = {"schema": f'{{"type":"enum","name":"E{number}","symbols":["A"]}}'}
            await application.ask("POST", f"/subjects/s{number:02}/versions", body)
        seen.clear()
        status, rows = await application.ask("GET", "/schemas?offset=2&limit=3")
        assert status == 200
        assert [row["subject"] for row in rows] == ["s02", "s03", "s04"]
        assert len(seen) <= 6
        # A limit that is not positive is the largest one.
        assert len((await application.ask("GET", "/schemas?limit=0"))[1]) == 50
        assert len((await application.ask("GET", "/subjects?limit=-7"))[1]) == 50

    run(main())


# -- as Confluent's registry answers ------------------------------------------------------


def test_deleted_versions_are_listed_with_a_minus_sign() -> None:
    async def main() -> None:
        application = Application()
        for text in ('"int"', '"long"'):
            await application.ask("POST", "/subjects/s/versions", {"schema": text})
        await application.ask("DELETE", "/subjects/s/versions/1")
        listed = await application.ask("GET", "/subjects/s/versions?deletedAsNegative=true")
        assert listed == (200, [-1, 2])

    run(main())


def test_deletion_by_an_alias_deletes_its_subject_and_needs_rights_on_both() -> None:
    async def main() -> None:
        application = Application(allowing(("alias", AclOperation.DELETE)))
        await application.ask("POST", "/subjects/real/versions", {"schema": '"int"'})
        await application.ask("PUT", "/config/alias", {"alias": "real"})
        by_id = await application.ask("GET", "/schemas/ids/1?subject=alias")
        assert by_id[0] == 200
        assert (await application.ask("DELETE", "/subjects/alias", None, BOB))[0] == 403
        assert await application.ask("DELETE", "/subjects/alias/versions/1") == (200, 1)
        assert await application.ask("DELETE", "/subjects/alias?permanent=true") == (200, [1])
        assert (await application.ask("GET", "/subjects/real/versions"))[0] == 404

    run(main())


def test_version_minus_one_registers_unless_the_latest_has_the_content() -> None:
    async def main() -> None:
        application = Application()
        path = "/subjects/s/versions"
        assert (await application.ask("PUT", "/config", {"compatibility": "NONE"}))[0] == 200
        for text, version in (('"int"', 1), ('"int"', 1), ('"long"', 2), ('"int"', 3)):
            body = {"schema": text, "version": -1}
            assert (await application.ask("POST", path, body))[1]["version"] == version

    run(main())


def test_modes_are_answered_as_they_were_sent() -> None:
    async def main() -> None:
        application = Application()
        assert await application.ask("PUT", "/mode/s", {"mode": "readonly"}) == (
            200,
            {"mode": "readonly"},
        )
        assert await application.ask("GET", "/mode/s") == (200, {"mode": "READONLY"})
        assert await application.ask("DELETE", "/mode/s?recursive=true") == (
            200,
            {"mode": "READONLY"},
        )
        assert await application.ask("DELETE", "/mode/s?recursive=true") == (200, {})
        assert (await application.ask("DELETE", "/mode/s"))[1]["error_code"] == 40401
        for path, status in (("/mode", 422), ("/mode/s", 422), ("/mode/:.__GLOBAL:", 200)):
            assert (await application.ask("PUT", path, {"mode": "FORWARD"}))[0] == status

    run(main())


def test_subject_with_a_control_character_is_rejected() -> None:
    async def main() -> None:
        application = Application()
        for name in ("a%00b", "a%7Fb", "a%C2%85b", "__GLOBAL", "__EMPTY"):
            reply = await application.ask("POST", f"/subjects/{name}/versions", {"schema": '"int"'})
            assert (reply[0], reply[1]["error_code"]) == (422, 42208)

    run(main())


# -- heads without end --------------------------------------------------------------------


def test_head_or_trailer_without_end_ends_the_connection() -> None:
    async def main() -> None:
        starts = (
            b"GET /subjects HTTP/1.1\r\nX: ",
            b"GET /",
            b"POST /subjects/s HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nX: ",
        )
        for start in starts:
            connection, transport = connect(ServerState(), Application())
            connection.data_received(start)
            for _ in range(64):
                if not transport.is_over:
                    connection.data_received(b"x" * 16_384)
                    await asyncio.sleep(0)
            assert transport.is_over

    run(main())


def test_body_is_no_head() -> None:
    async def main() -> None:
        connection, transport = connect(ServerState(), Application())
        text = json.dumps({"schema": '"int"', "padding": "x" * 2_000_000}).encode()
        head = (
            f"POST /subjects/s/versions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n\r\n"
        )
        connection.data_received(head.encode())
        for start in range(0, len(text), 65_536):
            connection.data_received(text[start : start + 65_536])
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert not transport.is_over
        assert b"200 OK" in transport.sent

    run(main())


def test_node_without_a_registry_loads_nothing_of_it() -> None:
    program = (
        "import sys, ottla.node.handle, ottla.node.build, ottla.cli.warming\n"
        "parts = ('uvicorn', 'starlette', 'httptools', 'h11', 'ottla.registry', 'ottla.schemas')\n"
        "print([name for name in sys.modules if name.startswith(parts)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"type": "CEL"}, "Missing rule name"),
        ({"name": "", "type": "CEL"}, "Empty rule name"),
        ({"name": "1a", "type": "CEL"}, "Illegal initial character in rule name: 1a"),
        ({"name": "a b", "type": "CEL"}, "Illegal character in rule name: a b"),
        ({"name": "a" * 65, "type": "CEL"}, "Rule name too long"),
        ({"name": "a"}, "Missing rule type"),
        ({"name": "a", "type": "CEL", "mode": "UPGRADE"}, "Domain rules can only be WRITE"),
        ({"name": "a", "type": "CEL", "mode": "READ", "onFailure": "x,y"}, "Multiple actions"),
    ],
)
def test_rule_that_no_client_could_run_is_rejected(rule: dict[str, str], reason: str) -> None:
    async def main() -> None:
        application = Application()
        rules = {"domainRules": [rule]}
        body = {"schema": '"int"', "ruleSet": rules}
        for method, path, content in (
            ("POST", "/subjects/s/versions", body),
            ("PUT", "/config/s", {"defaultRuleSet": rules}),
            ("PUT", "/config", {"overrideRuleSet": rules}),
        ):
            status, reply = await application.ask(method, path, content)
            assert (status, reply["error_code"]) == (422, 42210)
            assert reason in reply["message"]

    run(main())
