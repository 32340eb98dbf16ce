"""Who sent an HTTP request: by certificate, or by HTTP basic or bearer authentication.

The users are those of the brokers: a password is proven to the mechanism PLAIN, or to SCRAM by
playing its client here; a bearer token to OAUTHBEARER. A password that was proven is not proven
again for `KEPT_MS`, or until a SCRAM user changes: SCRAM takes milliseconds on purpose.

A broker that forwards a request of a client with a certificate names the client in a header. It is
believed if the sender has a certificate of its own, and may act for the cluster.
"""

import base64
import binascii
import hashlib
import hmac
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from ottla.metadata.image import Image
from ottla.protocol.types import Millis
from ottla.registry.client_hosts import named_host
from ottla.registry.http_app import Unauthenticated, is_forwarded
from ottla.registry.http_call import PRINCIPAL_HEADER, Identity
from ottla.runtime.ports import Clock, Random, Worker
from ottla.security.principal import ANONYMOUS, CertificateRefused
from ottla.security.sasl import oauthbearer, plain
from ottla.security.sasl.exchange import Challenge, Exchange, Login, Mechanisms, Step
from ottla.security.sasl.scram import ScramClient, ScramFailed, ScramMechanism

if TYPE_CHECKING:  # it loads the library of certificates: 5 MB
    from ottla.security.certificate_login import LoginByCertificate

KEPT_MS: Final = 60_000
KEPT_MAX: Final = 1_000
HEADER_LENGTH_MAX: Final = 64 * 1024
_REALM: Final = 'realm="ottla schema registry"'


class OpenAuthentication:
    """Everybody is anonymous, unless a certificate says otherwise."""

    def __init__(
        self,
        by_certificate: "LoginByCertificate | None",
        may_act_for_cluster: Callable[[Identity], bool],
    ) -> None:
        self._by_certificate = by_certificate
        self._may_act_for_cluster = may_act_for_cluster

    async def identify(
        self, headers: Mapping[str, str], certificate: bytes | None, host: str
    ) -> Identity:
        """Return the sender. Raises Unauthenticated."""
        if self._by_certificate is None:
            return Identity(ANONYMOUS, host)
        try:
            principal = self._by_certificate(certificate).principal or ANONYMOUS
        except CertificateRefused as error:
            raise Unauthenticated("Certificate") from error
        sender = Identity(principal, host)
        client = headers.get(PRINCIPAL_HEADER)
        if client and is_forwarded(headers) and certificate and self._may_act_for_cluster(sender):
            return Identity(unquote(client), named_host(headers) or host)
        return sender


class LoginAuthentication:
    """Clients log in with every request, as users of SASL mechanisms."""

    def __init__(
        self,
        mechanisms: Mechanisms,
        image: Callable[[], Image],
        clock: Clock,
        random: Random,
        worker: Worker,
    ) -> None:
        self._mechanisms = mechanisms
        self._image = image
        self._clock = clock
        self._random = random
        self._worker = worker
        self._secret = random.bytes(32)
        self._proven: dict[bytes, tuple[Millis, object, str]] = {}

    async def identify(
        self, headers: Mapping[str, str], certificate: bytes | None, host: str
    ) -> Identity:
        """Return the sender. Raises Unauthenticated."""
        text = headers.get("authorization", "")
        scheme, _, credentials = text.strip().partition(" ")
        if len(text) > HEADER_LENGTH_MAX:
            raise self._refused()
        principal = None
        if scheme.lower() == "basic":
            principal = await self._basic(credentials.strip())
        elif scheme.lower() == "bearer" and oauthbearer.NAME in self._mechanisms:
            principal = await self._bearer(credentials.strip())
        if principal is None:
            raise self._refused()
        return Identity(principal, host)

    def _refused(self) -> Unauthenticated:
        has_passwords = any(name != oauthbearer.NAME for name in self._mechanisms)
        schemes = ["Basic"] if has_passwords else []
        schemes += ["Bearer"] if oauthbearer.NAME in self._mechanisms else []
        return Unauthenticated(", ".join(f"{scheme} {_REALM}" for scheme in schemes))

    async def _bearer(self, token: str) -> str | None:
        step = await _step(self._mechanisms[oauthbearer.NAME](), oauthbearer.client_first(token))
        if not isinstance(step, Login):
            return None
        if step.expires_at is not None and step.expires_at <= self._clock.now():
            return None
        return str(step.principal)

    async def _basic(self, credentials: str) -> str | None:
        key = hmac.digest(self._secret, credentials.encode(), hashlib.sha256)
        users, now = self._image().scram, self._clock.monotonic()
        proven = self._proven.get(key)
        if proven is not None and proven[0] > now and proven[1] is users:
            return proven[2]
        try:
            user, _, password = base64.b64decode(credentials, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        if not user or not password or "\0" in user + password:
            return None
        principal = await self._password(user, password)
        if principal is not None:
            if len(self._proven) >= KEPT_MAX:
                self._proven.clear()
            self._proven[key] = (Millis(now + KEPT_MS), users, principal)
        return principal

    async def _password(self, user: str, password: str) -> str | None:
        """Return the principal that a password proves, to any mechanism with passwords."""
        if plain.NAME in self._mechanisms:
            exchange = self._mechanisms[plain.NAME]()
            step = await _step(exchange, plain.client_token(user, password))
            if isinstance(step, Login):
                return str(step.principal)
        for mechanism in ScramMechanism:
            if str(mechanism) in self._mechanisms:
                nonce = base64.b64encode(self._random.bytes(18)).decode()
                client = ScramClient(mechanism, user, password, nonce)
                exchange = self._mechanisms[str(mechanism)]()
                login = await self._worker.run(partial(_prove, client, exchange))
                # A delegation token's login is refused: it does not name its mechanism here.
                if login is not None:
                    return str(login.principal)
        return None


def _prove(client: ScramClient, exchange: Exchange) -> Login | None:
    """Play both sides of SCRAM; return the login, if the password is right. Slow."""
    challenge = exchange.step(client.first())
    if not isinstance(challenge, Challenge):
        return None
    try:
        step = exchange.step(client.final(challenge.token))
    except ScramFailed:
        return None
    return step if isinstance(step, Login) else None


async def _step(exchange: Exchange, token: bytes) -> Step:
    step = exchange.step(token)
    return await step if inspect.isawaitable(step) else step
