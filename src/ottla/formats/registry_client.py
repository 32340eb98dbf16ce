"""A client of schema registries that speak Confluent's HTTP API.

An id or guid (`wire_format.py`) always means the same schema, so schemas are cached, at most
`SCHEMAS_MAX` of them. Settings have Confluent's names, with the prefix ``schema.registry.``; see
`RegistrySettings`.
"""

import base64
import http.client
import json
import logging
import ssl
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlsplit

import msgspec

from ottla.client.blocking.broker_client import ClientSettings, client_for
from ottla.client.client_security import BadClientSecurity
from ottla.client.failures import NoBroker
from ottla.config.addresses import BadAddress
from ottla.formats.registry_discovery import RegistryNotFound, find_registry
from ottla.formats.wire_format import SchemaRef
from ottla.runtime.blocking import process_id
from ottla.runtime.clock import SystemClock
from ottla.security.sasl.credentials import LoginFailed

log = logging.getLogger(__name__)

PREFIX: Final = "schema.registry."
SCHEMAS_MAX: Final = 1000
_REPLY_BYTES_MAX: Final = 16 << 20
_REFERENCES_MAX: Final = 100
# How long an id stays unknown: until then, records with it cost no request.
_UNKNOWN_MS: Final = 10_000
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_NAMES: Final = frozenset(
    f"{PREFIX}{each}"
    for each in (
        "url",
        "basic.auth.credentials.source",
        "basic.auth.user.info",
        "bearer.auth.credentials.source",
        "bearer.auth.token",
        "ssl.ca.location",
        "ssl.truststore.location",
        "request.timeout.ms",
    )
)

Json: TypeAlias = Any


class BadRegistrySettings(ValueError):
    """Settings that cannot be used; the message names them."""


class RegistryFailed(Exception):
    """The registry does not answer, or rejects a request; the message has its address."""


class UnknownSchema(ValueError):
    """The registry has no such schema or subject."""


class ClusterAddress(msgspec.Struct, frozen=True):
    """The cluster whose brokers say where its registry is."""

    bootstrap: tuple[str, ...]
    client_id: str
    properties: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"ClusterAddress({','.join(self.bootstrap)})"  # properties may be secret


class RegistrySettings(msgspec.Struct, frozen=True):
    """Where the registry is, and how to log in. Addresses are tried in order.

    Without addresses the brokers of ``cluster`` are asked for some, and no login is used.
    """

    urls: tuple[str, ...]
    user_info: str | None = None
    token: str | None = None
    ca_file: str | None = None
    timeout_ms: int = 10_000
    cluster: ClusterAddress | None = None

    @classmethod
    def of_cluster(cls, client: ClientSettings) -> "RegistrySettings":
        """Return the settings of the registry that the brokers of a cluster publish."""
        properties = tuple(sorted(client.properties.items()))
        return cls((), cluster=ClusterAddress(client.bootstrap, client.client_id, properties))

    def __repr__(self) -> str:
        return f"RegistrySettings({', '.join(map(_shown, self.urls))})"

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> "RegistrySettings | None":
        """Read settings that begin with ``schema.registry.``; None without a URL.

        Raises:
            BadRegistrySettings: a setting is unknown or invalid, or there is no URL.
        """
        given = {key: each for key, each in properties.items() if key.startswith(PREFIX)}
        for key in sorted(given.keys() - _NAMES):
            raise BadRegistrySettings(f"unknown setting {key}; known: {', '.join(sorted(_NAMES))}")
        urls = tuple(
            each.strip().rstrip("/")
            for each in given.get(f"{PREFIX}url", "").split(",")
            if each.strip()
        )
        if not urls:
            if given:
                raise BadRegistrySettings(f"{min(given)} needs {PREFIX}url")
            return None
        for each in urls:
            if urlsplit(each).scheme not in ("http", "https") or not urlsplit(each).hostname:
                raise BadRegistrySettings(
                    f"{PREFIX}url must begin with http:// or https://, not {_shown(each)!r}"
                )
        timeout = given.get(f"{PREFIX}request.timeout.ms", "10000")
        if not timeout.isdigit() or not int(timeout):
            raise BadRegistrySettings(f"{PREFIX}request.timeout.ms must be a number of ms")
        return cls(
            urls,
            given.get(f"{PREFIX}basic.auth.user.info"),
            given.get(f"{PREFIX}bearer.auth.token"),
            given.get(f"{PREFIX}ssl.ca.location") or given.get(f"{PREFIX}ssl.truststore.location"),
            int(timeout),
        )


class RegisteredSchema(msgspec.Struct, frozen=True):
    """A schema as the registry has it. ``kind`` is AVRO, JSON or PROTOBUF.

    ``id`` is 0 where it is known by its guid only; old registries have no guids.
    """

    id: int
    kind: str
    text: str
    references: "tuple[Reference, ...]" = ()
    guid: str | None = None

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"schema id {self.id}" if self.id else f"schema guid {self.guid}"


class Reference(msgspec.Struct, frozen=True):
    """A schema that another one uses under ``name``."""

    name: str
    subject: str
    version: int


class Registry:
    """Schemas by id and subject. Safe to pickle: each process opens its own connections."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._schemas: OrderedDict[tuple[SchemaRef, bool], RegisteredSchema] = OrderedDict()
        self._unknown: OrderedDict[tuple[SchemaRef, bool], int] = OrderedDict()
        self._registered: OrderedDict[tuple[str, str], RegisteredSchema] = OrderedDict()
        self._urls: tuple[str, ...] = settings.urls

    def __reduce__(self) -> tuple[object, ...]:
        return Registry, (self._settings,)

    def schema(self, ref: SchemaRef, *, serialized: bool = False) -> RegisteredSchema:
        """Return the schema with an id or a guid.

        ``serialized``: Protobuf as a descriptor, in base64.

        Raises:
            UnknownSchema: there is none. RegistryFailed: the registry cannot be asked.
        """
        key = (ref, serialized)
        if (schema := self._schemas.get(key)) is not None:
            self._schemas.move_to_end(key)
            return schema
        what, kind = (f"id {ref}", "ids") if isinstance(ref, int) else (f"guid {ref}", "guids")
        if self._clock.monotonic() < self._unknown.get(key, 0):
            raise UnknownSchema(f"schema {what} is unknown to the registry")
        query = "?format=serialized" if serialized else ""
        try:
            reply = self._request("GET", f"/schemas/{kind}/{ref}{query}")
        except UnknownSchema:
            _put(self._unknown, key, self._clock.monotonic() + _UNKNOWN_MS)
            raise UnknownSchema(f"schema {what} is unknown to the registry") from None
        schema = _read_schema(reply, ref)
        _put(self._schemas, key, schema)
        return schema

    def latest(self, subject: str, *, serialized: bool = False) -> RegisteredSchema:
        """Return the newest schema of a subject. Raises as `schema`."""
        return self.version(subject, "latest", serialized=serialized)

    def version(
        self, subject: str, version: int | str, *, serialized: bool = False
    ) -> RegisteredSchema:
        """Return one version of a subject. Raises as `schema`."""
        query = "?format=serialized" if serialized else ""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}{query}"
        try:
            found = self._request("GET", path)
        except UnknownSchema:
            raise UnknownSchema(f"subject {subject!r} is unknown to the registry") from None
        return _read_schema(found, int(found.get("id", 0)))

    def register(self, subject: str, kind: str, text: str) -> RegisteredSchema:
        """Register a schema, unless the subject has it already; return it.

        Raises:
            RegistryFailed: it is incompatible with an earlier one, or cannot be registered.
        """
        if (known := self._registered.get((subject, text))) is not None:
            return known
        body: dict[str, str] = {"schema": text}
        if kind != "AVRO":
            body["schemaType"] = kind
        try:
            reply = self._request("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
        except UnknownSchema as error:
            raise RegistryFailed(f"{_shown(self.urls[0])}: {error}") from error
        # Old registries answer the id alone.
        guid = None if reply.get("guid") is None else str(reply["guid"])
        schema = RegisteredSchema(int(reply["id"]), kind, text, (), guid)
        _put(self._registered, (subject, text), schema)
        return schema

    def referenced(self, schema: RegisteredSchema, *, serialized: bool = False) -> dict[str, str]:
        """Return the texts of all schemas that a schema uses, by name; used ones come first."""
        found: dict[str, str] = {}
        self._collect(schema, found, serialized, 0)
        return found

    def _collect(
        self, schema: RegisteredSchema, found: dict[str, str], serialized: bool, depth: int
    ) -> None:
        for each in schema.references:
            if each.name in found:
                continue
            if len(found) >= _REFERENCES_MAX or depth >= _REFERENCES_MAX:
                raise UnknownSchema(f"{schema.label} uses too many other schemas")
            used = self.version(each.subject, each.version, serialized=serialized)
            self._collect(used, found, serialized, depth + 1)
            found[each.name] = used.text

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses; the brokers are asked for them once if the settings have none.

        Raises:
            RegistryFailed: the brokers publish none, or do not answer.
        """
        cluster = self._settings.cluster
        if not self._urls and cluster is not None:
            client = ClientSettings(cluster.bootstrap, cluster.client_id, dict(cluster.properties))
            try:
                registry = find_registry(client_for(client))
            except (
                RegistryNotFound,
                NoBroker,
                LoginFailed,
                BadClientSecurity,
                BadAddress,
            ) as error:
                raise RegistryFailed(str(error)) from error
            self._urls = registry.urls
            level = logging.INFO if registry.is_local else logging.WARNING
            log.log(level, "schema registry found by the brokers url=%s", ",".join(registry.urls))
        return self._urls

    # -- HTTP --------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Json = None) -> Json:
        """Send any request of the API; return the reply, which is JSON.

        Raises:
            UnknownSchema: the registry answers 404. RegistryFailed: it rejects the request
                otherwise, or cannot be asked.
        """
        return self._any_request(method, path, body)

    def _request(self, method: str, path: str, body: Json = None) -> dict[str, Json]:
        found = self._any_request(method, path, body)
        if not isinstance(found, dict):
            where = _shown(self.urls[0])
            raise RegistryFailed(f"schema registry {where}: the reply is not an object of JSON")
        return found

    def _any_request(self, method: str, path: str, body: Json) -> Json:
        failures = []
        for url in self.urls:
            try:
                status, reply = self._exchange(url, method, path, body)
            except (OSError, http.client.HTTPException) as error:
                failures.append(f"{_shown(url)}: {str(error) or type(error).__name__}")
                continue
            if status >= 500:
                failures.append(f"{_shown(url)}: status {status}: {_message(reply)}")
                continue
            return _checked(url, status, reply)
        raise RegistryFailed(
            f"schema registry {'; '.join(failures)}; check {PREFIX}url and that it is running"
        )

    def _exchange(self, url: str, method: str, path: str, body: Json) -> tuple[int, bytes]:
        place = urlsplit(url)
        connection = self._connect(url)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, place.path + path, data, self._headers(place.username, url))
            reply = connection.getresponse()
            content = reply.read(_REPLY_BYTES_MAX + 1)
        finally:
            connection.close()
        if len(content) > _REPLY_BYTES_MAX:
            raise OSError(f"the reply is larger than {_REPLY_BYTES_MAX} bytes")
        return reply.status, content

    def _connect(self, url: str) -> http.client.HTTPConnection:
        place, timeout_s = urlsplit(url), self._settings.timeout_ms / 1000
        assert place.hostname is not None
        if place.scheme == "http":
            return http.client.HTTPConnection(place.hostname, place.port, timeout=timeout_s)
        context = ssl.create_default_context(cafile=self._settings.ca_file)
        return http.client.HTTPSConnection(
            place.hostname, place.port, timeout=timeout_s, context=context
        )

    def _headers(self, user: str | None, url: str) -> dict[str, str]:
        headers = {"Accept": f"{_CONTENT_TYPE}, application/json", "Content-Type": _CONTENT_TYPE}
        info = self._settings.user_info
        if info is None and user:
            info = f"{user}:{urlsplit(url).password or ''}"
        if info is not None:
            headers["Authorization"] = f"Basic {base64.b64encode(info.encode()).decode()}"
        elif self._settings.token is not None:
            headers["Authorization"] = f"Bearer {self._settings.token}"
        return headers


_registries: dict[tuple[int, RegistrySettings], Registry] = {}


def registry_for(settings: RegistrySettings) -> Registry:
    """Return this process's client of a registry, with its cache."""
    return _registries.setdefault((process_id(), settings), Registry(settings))


def _put(cache: "OrderedDict[Any, Any]", key: object, value: object) -> None:
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > SCHEMAS_MAX:
        cache.popitem(last=False)


def _checked(url: str, status: int, reply: bytes) -> Json:
    where = f"schema registry {_shown(url)}"
    if status == 404:
        raise UnknownSchema(_message(reply))
    if status in (401, 403):
        raise RegistryFailed(
            f"{where} rejects the credentials (status {status}); set {PREFIX}url and "
            f"{PREFIX}basic.auth.user.info or {PREFIX}bearer.auth.token"
        )
    if status != 200:
        raise RegistryFailed(f"{where}: status {status}: {_message(reply)}")
    try:
        return json.loads(reply)
    except ValueError as error:
        raise RegistryFailed(f"{where}: the reply is not JSON") from error


def _message(reply: bytes) -> str:
    try:
        found = json.loads(reply)
    except ValueError:
        found = None
    if isinstance(found, dict) and "message" in found:
        return str(found["message"])
    return reply[:200].decode("utf-8", "replace") or "no message"


def _read_schema(reply: Mapping[str, Json], ref: SchemaRef) -> RegisteredSchema:
    references = tuple(
        Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
        for each in reply.get("references") or ()
    )
    kind = str(reply.get("schemaType") or "AVRO").upper()
    guid = ref if isinstance(ref, str) else reply.get("guid")
    number = ref if isinstance(ref, int) else 0
    return RegisteredSchema(
        number, kind, str(reply["schema"]), references, None if guid is None else str(guid)
    )


def _shown(url: str) -> str:
    """Return a URL without its password."""
    place = urlsplit(url)
    return url.replace(f"{place.netloc}", place.netloc.rpartition("@")[2], 1)
