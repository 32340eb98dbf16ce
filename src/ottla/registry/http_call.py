"""One HTTP request and its reply, apart from any HTTP library."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from ottla.registry.rules import errors
from ottla.registry.rules.paths import Target
from ottla.registry.rules.subjects import normalise_subject

CONTENT_TYPES: Final = (
    "application/vnd.schemaregistry.v1+json",
    "application/vnd.schemaregistry+json",
    "application/json",
)
APPLIED_HEADER: Final = "x-ottla-applied"
"""In replies of the leader: the offset below which it has applied all records."""

PRINCIPAL_HEADER: Final = "x-ottla-principal"
"""In forwarded requests: the client that a broker has identified by its certificate."""

HOST_HEADER: Final = "x-ottla-client-host"
"""In forwarded requests: the address of the client, for ACLs with hosts."""

Body = TypeVar("Body")


class Identity(msgspec.Struct, frozen=True):
    """Who sent a request, and from where."""

    principal: str
    host: str


class Reply(msgspec.Struct, frozen=True):
    """A status, a body and headers. ``body`` is JSON."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class RawRequest(msgspec.Struct, frozen=True):
    """A request as it arrived, for the leader to repeat. ``path`` includes the query."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    is_forwarded: bool = False


class Call(msgspec.Struct, frozen=True):
    """A request whose path was matched: ``names`` are the variable segments of its path."""

    raw: RawRequest
    target: Target
    names: tuple[str, ...]
    identity: Identity

    @property
    def subject(self) -> str:
        """The first variable of the path, as the one name of a subject."""
        return normalise_subject(self.names[0])

    def read(self, kind: type[Body]) -> Body:
        """Return the body. Raises a Rejection."""
        if not self.raw.body.strip():
            raise errors.Rejection(422, "The request body must not be null")
        try:
            return msgspec.json.decode(self.raw.body, type=kind, strict=False)
        except msgspec.ValidationError as error:
            raise errors.Rejection(422, f"Unprocessable Entity: {error}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise errors.Rejection(400, f"Bad Request: {error}") from error


def json_reply(value: Any, status: int = 200) -> Reply:  # noqa: ANN401 - JSON
    """Return a reply with a JSON value."""
    return Reply(status, msgspec.json.encode(value))


def text_reply(text: str) -> Reply:
    """Return a reply whose body is a schema itself."""
    return Reply(200, text.encode("utf-8", "replace"))


def error_reply(rejection: errors.Rejection) -> Reply:
    """Return the reply of a rejected request."""
    body = {"error_code": rejection.body_code, "message": rejection.message}
    return json_reply(body, rejection.status)


def pick_content_type(accept: str) -> str | None:
    """Return the content type of a reply by the Accept header; None: none that we offer."""
    if not accept.strip():
        return CONTENT_TYPES[0]
    best: tuple[float, int, str] | None = None
    for part in accept.split(",")[:100]:
        media, _, parameters = part.partition(";")
        media, weight = media.strip().lower(), _weight(parameters)
        for index, offered in enumerate(CONTENT_TYPES):
            is_match = media in (offered, "*/*", "application/*")
            if is_match and weight > 0 and (best is None or (weight, -index) > best[:2]):
                best = (weight, -index, offered)
    return None if best is None else best[2]


def _weight(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0


def is_json(content_type: str) -> bool:
    """Say whether a request's body may be read."""
    media = content_type.partition(";")[0].strip().lower()
    return media in ("", *CONTENT_TYPES, "application/octet-stream")


Handler = Callable[[Call], Any]
