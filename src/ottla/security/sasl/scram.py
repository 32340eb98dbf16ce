"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), server and client.

    C: n,,n=user,r=cnonce[,tokenauth=true]
    S: r=cnonce+snonce,s=base64 salt,i=iterations
    C: c=biws,r=cnonce+snonce,p=base64 proof
    S: v=base64 signature

Channel binding is not offered. A server that does not know the user answers with a salt derived
from the name and fails at the end, so that neither time nor replies tell which users exist. The
extension ``tokenauth=true`` logs in with a delegation token: its id is the user, its HMAC the
password.
"""

import base64
import binascii
import enum
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

import msgspec

from ottla.protocol.types import Millis
from ottla.security.principal import Principal
from ottla.security.sasl.exchange import Challenge, Login, Rejection, Step

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
CLIENT_ITERATIONS_MAX: Final = 1_000_000
"""The most that a client of ours computes for a server it does not know yet."""

# As long as the salts that ``kafka-configs`` and ``ottla user`` make.
DECOY_SALT_BYTES: Final = 24
_DECOY_SALT_BYTES_MAX: Final = 64
FAILED: Final = "Authentication failed during authentication due to invalid credentials"
_PRINTABLE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+\Z")
_CLIENT_FIRST: Final = re.compile(
    r"(?P<gs2>(?P<binding>n|y|p=[A-Za-z0-9.\-]+),(?:a=(?P<authzid>[^,]*))?,)"
    r"(?P<bare>n=(?P<user>[^,]*),r=(?P<nonce>[^,]*)(?P<extensions>(?:,[A-Za-z]+=[^,]*)*))\Z",
    re.DOTALL,
)
_CLIENT_FINAL: Final = re.compile(
    r"(?P<unsigned>c=(?P<binding>[^,]*),r=(?P<nonce>[^,]*)(?:,[A-Za-z]+=[^,]*)*)"
    r",p=(?P<proof>[^,]*)\Z",
    re.DOTALL,
)


class ScramMechanism(enum.IntEnum):
    """A mechanism by Kafka's number of it."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def hash_name(self) -> str:
        """The hash function, as `hashlib` calls it."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    def __str__(self) -> str:
        return self.name.replace("_", "-")


class Keys(NamedTuple):
    """What a server keeps of a password; never the password itself."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"Keys(iterations={self.iterations}, hidden)"


class ScramAccount(msgspec.Struct, frozen=True):
    """Whom a user name stands for, and by which keys."""

    principal: Principal
    keys: Keys
    expires_at: Millis | None = None
    is_token: bool = False


Lookup: TypeAlias = Callable[[str, bool], ScramAccount | None]
"""Account of a user name; True asks for a delegation token of that id. None: there is none."""


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Return the salted password, the function ``Hi`` of RFC 5802."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def stored_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return the key by which a server checks a client's proof."""
    return _hash(mechanism, _client_key(mechanism, salted))


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return the key by which a server proves itself."""
    return hmac.digest(salted, b"Server Key", mechanism.hash_name)


def keys_of(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> Keys:
    """Return what a server keeps of a password."""
    salted = salted_password(mechanism, password, salt, iterations)
    return Keys(salt, stored_key(mechanism, salted), server_key(mechanism, salted), iterations)


def _client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", mechanism.hash_name)


def _hash(mechanism: ScramMechanism, data: bytes) -> bytes:
    return hashlib.new(mechanism.hash_name, data).digest()


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


# -- server ----------------------------------------------------------------------------------------


class _Begun(NamedTuple):
    """A login after the client's first message. ``account`` is None for an unknown user."""

    account: ScramAccount | None
    keys: Keys
    gs2: str
    nonce: str
    messages: str
    """The first messages of both sides, as they are signed."""


class Decoys(NamedTuple):
    """How the challenges of unknown users look: like those of most users.

    ``secret`` makes their salts: the same on every attempt, and indistinguishable from real ones
    without the secret.
    """

    secret: bytes
    iterations: int = ITERATIONS_MIN
    salt_bytes: int = DECOY_SALT_BYTES


class ScramExchange:
    """The server's side. ``nonce`` is fresh and printable."""

    def __init__(
        self, mechanism: ScramMechanism, lookup: Lookup, nonce: str, decoys: Decoys
    ) -> None:
        self._mechanism = mechanism
        self._lookup = lookup
        self._nonce = nonce
        self._decoys = decoys
        self._begun: _Begun | None = None

    def step(self, token: bytes) -> Step:
        """Take the client's first message, then its final one."""
        try:
            text = token.decode()
        except UnicodeDecodeError:
            return Rejection("SCRAM message is not UTF-8", "Invalid SASL/SCRAM message")
        return self._first(text) if self._begun is None else self._final(self._begun, text)

    def _first(self, text: str) -> Step:
        found = _CLIENT_FIRST.match(text)
        user = None if found is None else _unescape(found["user"])
        if found is None or not user or not _PRINTABLE.match(found["nonce"]):
            return Rejection("malformed SCRAM client first message", "Invalid SASL/SCRAM message")
        if found["binding"].startswith("p="):
            return Rejection("channel binding was asked for", "Channel binding is not supported")
        authorization_id = _unescape(found["authzid"] or "")
        if authorization_id not in ("", user):
            message = (
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
            return Rejection(message, message)
        is_token = ",tokenauth=true" in found["extensions"]
        account = self._lookup(user, is_token)
        keys = self._decoy(user) if account is None else account.keys
        if keys.iterations < ITERATIONS_MIN:
            return Rejection(
                f"credential of {user[:100]!r} has {keys.iterations} iterations", FAILED
            )
        nonce = found["nonce"] + self._nonce
        salt = base64.b64encode(keys.salt).decode()
        first = f"r={nonce},s={salt},i={keys.iterations}"
        self._begun = _Begun(account, keys, found["gs2"], nonce, f"{found['bare']},{first}")
        return Challenge(first.encode())

    def _decoy(self, user: str) -> Keys:
        """Return keys for an unknown user that no password fits."""
        decoys, name = self._decoys, user.encode()
        salt = hmac.digest(decoys.secret, b"salt " + name, "sha512")
        digest = hmac.digest(decoys.secret, b"keys " + name, "sha512")
        size = hashlib.new(self._mechanism.hash_name).digest_size
        salt_bytes = min(decoys.salt_bytes, _DECOY_SALT_BYTES_MAX)
        return Keys(salt[:salt_bytes], digest[-size:], digest[:size], decoys.iterations)

    def _final(self, begun: _Begun, text: str) -> Step:
        found = _CLIENT_FINAL.match(text)
        if found is None:
            return Rejection("malformed SCRAM client final message", "Invalid SASL/SCRAM message")
        binding = base64.b64encode(begun.gs2.encode()).decode()
        if found["binding"] != binding:
            return Rejection("channel binding does not match", FAILED)
        if not hmac.compare_digest(found["nonce"].encode(), begun.nonce.encode()):
            return Rejection("nonce does not match", FAILED)
        message = f"{begun.messages},{found['unsigned']}".encode()
        is_proven = self._is_proven(begun.keys, message, found["proof"])
        if begun.account is None or not is_proven:
            return Rejection("wrong user name or password", FAILED)
        signature = hmac.digest(begun.keys.server_key, message, self._mechanism.hash_name)
        account = begun.account
        return Login(
            account.principal,
            b"v=" + base64.b64encode(signature),
            account.expires_at,
            account.is_token,
        )

    def _is_proven(self, keys: Keys, message: bytes, proof: str) -> bool:
        try:
            given = base64.b64decode(proof, validate=True)
        except (binascii.Error, ValueError):
            given = b""
        signature = hmac.digest(keys.stored_key, message, self._mechanism.hash_name)
        if len(given) != len(signature):
            given = bytes(len(signature))
        client_key = _xor(given, signature)
        return hmac.compare_digest(_hash(self._mechanism, client_key), keys.stored_key)


def _unescape(name: str) -> str | None:
    """Return a ``saslname``; None where ``=`` stands for nothing."""
    if re.search(r"=(?!2C|3D)", name):
        return None
    return name.replace("=2C", ",").replace("=3D", "=")


# -- client ----------------------------------------------------------------------------------------


class ScramFailed(Exception):
    """The server's messages are not those of a server that knows the password."""


class ScramClient:
    """The client's side: `first`, then `final` with the server's first, then `verify`."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        nonce: str,
        *,
        is_token: bool = False,
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}" + (",tokenauth=true" if is_token else "")
        self._signature = b""

    def first(self) -> bytes:
        """Return the first message."""
        return f"n,,{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """Return the final message.

        Raises:
            ScramFailed: the server's message is malformed, does not continue our nonce, or asks
                for too few or too many iterations.
        """
        text = server_first.decode(errors="replace")
        found = re.match(r"r=([^,]+),s=([^,]+),i=([0-9]{1,9})(?:,.*)?\Z", text, re.DOTALL)
        if found is None or not found[1].startswith(self._nonce) or found[1] == self._nonce:
            raise ScramFailed("the server's first SCRAM message is not an answer to ours")
        iterations = int(found[3])
        if not ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX:
            raise ScramFailed(f"the server asks for {iterations} iterations")
        try:
            salt = base64.b64decode(found[2], validate=True)
        except (binascii.Error, ValueError) as error:
            raise ScramFailed("the server's salt is not base64") from error
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        unsigned = f"c=biws,r={found[1]}"
        message = f"{self._bare},{text},{unsigned}".encode()
        hash_name = self._mechanism.hash_name
        self._signature = hmac.digest(server_key(self._mechanism, salted), message, hash_name)
        proof = _xor(
            _client_key(self._mechanism, salted),
            hmac.digest(stored_key(self._mechanism, salted), message, hash_name),
        )
        return f"{unsigned},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Check that the server knows the password, too.

        Raises:
            ScramFailed: it does not.
        """
        expected = b"v=" + base64.b64encode(self._signature)
        if not self._signature or not hmac.compare_digest(server_final, expected):
            raise ScramFailed("the server did not prove that it knows the password")
