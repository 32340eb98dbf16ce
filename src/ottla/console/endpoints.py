"""What a handler of the console gets and returns, and the row of the table that names it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from ottla.client.cluster import Cluster
from ottla.formats.registry_client import RegistrySettings
from ottla.operations.rows import Row
from ottla.runtime.ports import Clock, Random, Worker

NUMBER_MAX: Final = 2**63 - 1


class Rejected(Exception):
    """A request that is not served; ``status`` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class User(msgspec.Struct, frozen=True):
    """The caller of a request: the clients with which the user reaches cluster and registry.

    ``name`` is empty where nobody logs in. ``jobs_key`` tells whose searches are listed.
    """

    name: str
    cluster: Cluster
    registry: RegistrySettings | None
    jobs_key: str = ""


class Jobs(Protocol):
    """The searches that run."""

    def start(self, owner: str, job: Any) -> str:  # noqa: ANN401 - `search.SearchJob`
        """Run a search; return its id. Raises `Rejected`: there are too many."""
        ...

    def get(self, owner: str, job_id: str) -> Any:  # noqa: ANN401 - as above
        """Return a search of an owner. Raises `Rejected`: there is none."""
        ...

    def cancel(self, owner: str, job_id: str) -> None:
        """Stop a search."""
        ...

    def resume(self, owner: str, job_id: str) -> None:
        """Continue a search that has stopped."""
        ...

    def list(self, owner: str) -> list[Any]:
        """Return the searches of an owner, the newest first."""
        ...


class Context(msgspec.Struct, frozen=True):
    """What all requests share. ``worker`` runs what blocks or takes long."""

    clock: Clock
    random: Random
    worker: Worker
    jobs: Jobs
    is_read_only: bool = False


class Call(msgspec.Struct, frozen=True):
    """One request. ``names`` are the variable parts of its path, ``values`` its query and body."""

    user: User
    context: Context
    names: Mapping[str, str]
    values: Mapping[str, Any]

    @property
    def cluster(self) -> Cluster:
        """The user's client of the cluster."""
        return self.user.cluster

    def text(self, name: str, default: str = "") -> str:
        """Return a value as text, without blanks around it."""
        value = self.values.get(name)
        return default if value is None else str(value).strip()

    def raw(self, name: str) -> str | None:
        """Return a value as it was sent; None if it was not. JSON values become JSON text."""
        value = self.values.get(name)
        if value is None or isinstance(value, str):
            return value
        return msgspec.json.encode(value).decode()

    def required(self, name: str) -> str:
        """Return a value. Raises `Rejected` if it is missing."""
        text = self.text(name)
        if not text:
            raise Rejected(400, f"{name} is missing")
        return text

    def number(self, name: str, default: int, *, low: int = 0, high: int = NUMBER_MAX) -> int:
        """Return a value as a number. Raises `Rejected` if it is none, or out of range."""
        text = self.text(name)
        if not text:
            return default
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
            raise Rejected(400, f"{name} must be a number")
        if not low <= int(text) <= high:
            raise Rejected(400, f"{name} must be {low} to {high}")
        return int(text)

    def flag(self, name: str) -> bool:
        """Return whether a value says yes."""
        return self.text(name).lower() in ("true", "yes", "on", "1")

    def one_of(self, name: str, choices: tuple[str, ...]) -> str:
        """Return one of some values; the first is the default. Raises `Rejected`."""
        text = self.text(name) or choices[0]
        if text not in choices:
            raise Rejected(400, f"{name} must be one of {', '.join(choices)}")
        return text


class Done(msgspec.Struct, frozen=True):
    """A change that was made. ``location`` is the page to show next."""

    message: str
    location: str
    data: Row = {}


class Download(msgspec.Struct, frozen=True):
    """A file that is made while it is sent."""

    content_type: str
    file_name: str
    parts: AsyncIterator[bytes]


class Events(msgspec.Struct, frozen=True):
    """Server-sent events: each is a name, and data for pages and programs."""

    rows: AsyncIterator[tuple[str, Row]]
    template: str


Result: TypeAlias = "Row | Done | Download | Events"
Handler: TypeAlias = Callable[[Call], Awaitable[Result]]


class Parameter(msgspec.Struct, frozen=True):
    """A value of the query or the body of a request."""

    name: str
    help: str
    is_required: bool = False
    choices: tuple[str, ...] = ()


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table: a path, what it does, and the template of its page.

    GET ``/topics`` is a page; ``/topics.json`` and ``/api/v1/topics`` are the same as JSON.
    """

    method: str
    path: str
    summary: str
    handler: Handler
    template: str = ""
    parameters: tuple[Parameter, ...] = ()
    is_preview: bool = False
    """A POST that changes nothing unless ``execute`` is set."""

    @property
    def is_change(self) -> bool:
        """Whether it may change something."""
        return self.method == "POST"
