"""A schema registry for tests: a real HTTP server that speaks the part of Confluent's API we use.

It stores schemas by id and subject, asks for credentials if it is given some, counts requests, and
can be told to fail. Protobuf schemas are stored as descriptors and returned with format=serialized.
"""

import base64
import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from ottla.formats import registry_client


class RegistryServer:
    def __init__(self, authorization: str | None = None) -> None:
        self.authorization = authorization
        self.schemas: dict[int, dict] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.failing = 0  # the next so many requests get status 500
        self.rejected: set[str] = set()  # subjects that take no new version
        self.compiled: dict[str, str] = {}  # a .proto file -> its descriptor in base64
        self.url = ""

    def add(
        self, subject: str, text: str, kind: str = "AVRO", references: list | None = None
    ) -> int:
        schema = {"schema": text, "schemaType": kind, "references": references or []}
        number = next((n for n, each in self.schemas.items() if each == schema), None)
        if number is None:
            number = len(self.schemas) + 1
            self.schemas[number] = schema
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: dict | None) -> tuple[int, dict]:
        if self.failing:
            self.failing -= 1
            return 500, {"error_code": 50001, "message": "out of order"}
        place = urlsplit(path)
        if found := re.fullmatch(r"/schemas/ids/(\d+)", place.path):
            return self._schema(int(found[1]), 40403, place.query)
        if found := re.fullmatch(r"/schemas/guids/([0-9a-f-]{36})", place.path):
            return self._schema(int(found[1].replace("-", ""), 16), 40403, place.query)
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/(\w+)", place.path):
            versions = self.subjects.get(unquote(found[1]), [])
            if not versions:
                return 404, {"error_code": 40401, "message": "Subject not found."}
            number = versions[-1] if found[2] == "latest" else versions[int(found[2]) - 1]
            return self._schema(number, 40402, place.query)
        found = re.fullmatch(r"/subjects/([^/]+)/versions", place.path)
        assert method == "POST" and found and body
        subject = unquote(found[1])
        if subject in self.rejected:
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
        return 200, {"id": self.add(subject, body["schema"], body.get("schemaType", "AVRO"))}

    def _schema(self, number: int, code: int, query: str) -> tuple[int, dict]:
        if number not in self.schemas:
            return 404, {"error_code": code, "message": f"Schema {number} not found"}
        found = {**self.schemas[number], "id": number, "version": 1}
        if query == "format=serialized":
            found["schema"] = self.compiled.get(found["schema"], found["schema"])
        return 200, found


@contextmanager
def run_registry(
    authorization: str | None = None, context: ssl.SSLContext | None = None
) -> Iterator[RegistryServer]:
    # Clients are kept by address, and the system may give a port that another test had.
    registry_client._registries.clear()
    state = RegistryServer(authorization)

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            state.requests.append(f"{self.command} {self.path}")
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            if state.authorization and self.headers.get("Authorization") != state.authorization:
                status, found = 401, {"error_code": 401, "message": "Unauthorized"}
            else:
                status, found = state.answer(self.command, self.path, body)
            content = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = reply

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        state.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        try:
            yield state
        finally:
            server.shutdown()
            serving.join()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
