"""Users who have logged in: their credentials and clients, bounded and for a limited time.

Credentials stay in the memory of this process, inside the options of a client. A browser has a
random id in a cookie; only its hash is kept here. Programs send HTTP Basic with every request, and
get the client of an earlier request with the same credentials.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from ottla.client.cluster import ClientOptions, ClientPorts, Cluster
from ottla.console.endpoints import Rejected, User
from ottla.formats.registry_client import RegistrySettings
from ottla.runtime.ports import Address, Clock
from ottla.security.sasl.client import BadCredentials, password_credentials
from ottla.security.sasl.credentials import LoginFailed

SESSIONS_MAX: Final = 200
IDLE_MS_MAX: Final = 30 * 60_000
LIFETIME_MS_MAX: Final = 12 * 3_600_000
LOGINS_MAX: Final = 8
"""Logins that are tried at once; the others wait."""
FAILED_LOGIN_S: Final = 0.5
"""How long a wrong password keeps its place among `LOGINS_MAX`."""
TOKEN: Final = "delegation token"  # noqa: S105 - the name of a way to log in
MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", TOKEN)


class Upstream(msgspec.Struct, frozen=True):
    """The cluster that a console shows. ``needs_login``: each user logs in to its brokers.

    Otherwise all requests have the identity of ``options``: nobody, or that of a profile.
    """

    ports: ClientPorts
    bootstrap: Sequence[Address]
    options: ClientOptions
    needs_login: bool
    registry: RegistrySettings | None = None
    mechanisms: tuple[str, ...] = MECHANISMS


class Credentials(msgspec.Struct, frozen=True):
    """What a user types to log in."""

    name: str
    password: str
    mechanism: str

    def __repr__(self) -> str:
        return f"Credentials({self.name!r})"

    @property
    def digest(self) -> bytes:
        """Tells these credentials from others."""
        parts = (self.name, self.password, self.mechanism)
        return hashlib.sha256(repr(parts).encode()).digest()


class _Session(msgspec.Struct):
    user: User
    began: int
    used: int


class Sessions:
    """The sessions, by the hash of an id or of credentials; the least recently used go first."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._clock: Clock = upstream.ports.clock
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._logins = asyncio.Semaphore(LOGINS_MAX)
        self._shared: User | None = None
        self._opening = asyncio.Lock()

    @property
    def needs_login(self) -> bool:
        """Whether users log in."""
        return self._upstream.needs_login

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The ways to log in, the preferred one first."""
        return self._upstream.mechanisms

    async def shared_user(self) -> User:
        """Return the user of all requests where nobody logs in. Raises as `Cluster.open`."""
        assert not self.needs_login
        async with self._opening:
            if self._shared is None:
                cluster = await self._open(self._upstream.options)
                self._shared = User("", cluster, self._upstream.registry)
        return self._shared

    async def log_in(self, credentials: Credentials) -> str:
        """Return the id of a new session. Raises LoginFailed, NoBroker and `Rejected`."""
        user = await self._user_of(credentials)
        session_id = self._upstream.ports.random.bytes(32).hex()
        await self._keep(_hash(session_id), user)
        return session_id

    async def by_credentials(self, credentials: Credentials) -> User:
        """Return the user of credentials, with the client of an earlier request if there is one.

        Raises LoginFailed, NoBroker and `Rejected`.
        """
        user = self._touch(credentials.digest)
        if user is None:
            user = await self._user_of(credentials)
            await self._keep(credentials.digest, user)
        return user

    def by_id(self, session_id: str) -> User | None:
        """Return the user of a session; None if it does not exist, or has expired."""
        return self._touch(_hash(session_id))

    async def log_out(self, session_id: str) -> None:
        """End a session."""
        await self._drop(_hash(session_id))

    async def drop_expired(self) -> None:
        """End the sessions whose time is over."""
        now = self._clock.monotonic()
        for key in [key for key, one in self._sessions.items() if _is_over(one, now)]:
            await self._drop(key)

    async def close(self) -> None:
        """End all sessions."""
        for key in list(self._sessions):
            await self._drop(key)
        if self._shared is not None:
            await self._shared.cluster.close()

    def _touch(self, key: bytes) -> User | None:
        session = self._sessions.get(key)
        now = self._clock.monotonic()
        if session is None or _is_over(session, now):
            return None
        session.used = now
        self._sessions.move_to_end(key)
        return session.user

    async def _user_of(self, credentials: Credentials) -> User:
        if credentials.mechanism not in self.mechanisms:
            raise Rejected(400, f"mechanism must be one of {', '.join(self.mechanisms)}")
        is_token = credentials.mechanism == TOKEN
        mechanism = "SCRAM-SHA-256" if is_token else credentials.mechanism
        try:
            login = password_credentials(
                mechanism,
                credentials.name,
                credentials.password,
                self._upstream.ports.random,
                is_token=is_token,
            )
        except BadCredentials as error:
            raise Rejected(400, str(error)) from error
        options = self._upstream.options
        options = msgspec.structs.replace(
            options, connection=msgspec.structs.replace(options.connection, login=login)
        )
        async with self._logins:
            try:
                cluster = await self._open(options)
            except LoginFailed:
                await asyncio.sleep(FAILED_LOGIN_S)
                raise
        registry = self._upstream.registry
        if registry is not None:
            info = f"{credentials.name}:{credentials.password}"
            registry = msgspec.structs.replace(registry, user_info=info)
        return User(credentials.name, cluster, registry, credentials.name)

    async def _open(self, options: ClientOptions) -> Cluster:
        return await Cluster.open(self._upstream.ports, self._upstream.bootstrap, options)

    async def _keep(self, key: bytes, user: User) -> None:
        now = self._clock.monotonic()
        await self._drop(key)
        self._sessions[key] = _Session(user, now, now)
        while len(self._sessions) > SESSIONS_MAX:
            await self._drop(next(iter(self._sessions)))

    async def _drop(self, key: bytes) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            await session.user.cluster.close()


def _is_over(session: _Session, now: int) -> bool:
    return now - session.used > IDLE_MS_MAX or now - session.began > LIFETIME_MS_MAX


def _hash(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).digest()
