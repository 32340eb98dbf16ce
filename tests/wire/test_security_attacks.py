"""Attacks on a node with TLS and SASL, over raw sockets: before and at the login.

The numbers are rows of docs/faults.md. After each attack the node serves a good client as before.
"""

import base64
import datetime
import gc
import json
import os
import random
import shutil
import socket
import ssl
import statistics
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from joserfc import jwt
from joserfc.jwk import OctKey
from one_node import Line, OneNode
from secure_node import SecureNode
from tests.fuzz.mutations import mutated
from tests.patience import SECONDS_MAX

from ottla.protocol.api_keys import APIS, ApiKey, Listener
from ottla.protocol.codec import decode
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frames import request_frame
from ottla.protocol.headers import RequestHeader
from ottla.protocol.messages import request_class
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.schema import Message
from ottla.runtime.ports import Address
from ottla.security.sasl import scram
from ottla.security.sasl.oauthbearer import client_first
from ottla.server.listener import Server

FAILURE_DELAY_S = 0.05  # of the node
HALF_OPEN = 200
FUZZED = 300
RSS_GROWTH_KIB_MAX = 24 * 1024
GUESSES = 200
_CLIENT_HELLO = bytes.fromhex("16030100c8010000c40303")


class Authority:
    """A root that the node trusts, and chains of any length below it."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.root = self._issue("root", self.key, None, is_authority=True)

    def _issue(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None,
        *,
        is_authority: bool,
        days: int = 30,
    ) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        ends = now + datetime.timedelta(days=days)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if issuer is None else issuer[0].subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(ends - datetime.timedelta(days=60))
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        return builder.sign(key if issuer is None else issuer[1], hashes.SHA256())

    def client(self, path: Path, *, below: int = 0, days: int = 30) -> Path:
        """Write a client's key and chain with ``below`` authorities between it and the root."""
        at, chain = (self.root, self.key), []
        for number in range(below):
            key = ec.generate_private_key(ec.SECP256R1())
            at = (self._issue(f"ca-{number}", key, at, is_authority=True), key)
            chain.insert(0, at[0])
        key = ec.generate_private_key(ec.SECP256R1())
        chain.insert(0, self._issue("carol", key, at, is_authority=False, days=days))
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        certificates = (each.public_bytes(serialization.Encoding.PEM) for each in chain)
        path.write_bytes(private + b"".join(certificates))
        return path


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[SecureNode]:
    found = SecureNode(tmp_path_factory.mktemp("secure"))
    with found.ca_file.open("ab") as trusted:
        trusted.write(authority.root.public_bytes(serialization.Encoding.PEM))
    return found


@pytest.fixture(scope="module")
def running(secure: SecureNode) -> Iterator[OneNode]:
    node = secure.start()
    try:
        yield node
    finally:
        node.stop()


@pytest.fixture(autouse=True)
def serves_afterwards(secure: SecureNode, running: OneNode) -> Iterator[None]:
    yield
    for listener in ("LOGIN", "SECURE"):
        assert log_in(secure, listener).error_code == 0


def ask(key: ApiKey, version: int, body: Message) -> bytes:
    return bytes(request_frame(RequestHeader(key, version, 1, "test"), body))


HELLO = ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("a", "1"))


def shake(mechanism: str) -> bytes:
    return ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism))


def prove(token: bytes) -> bytes:
    return ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(token))


def connect(secure: SecureNode, listener: str) -> Line:
    """Connect; after a TLS handshake where the listener has one."""
    line = Line(Address("localhost", secure.ports[listener]))
    if listener in ("TLS", "MUTUAL", "SECURE"):
        context = ssl.create_default_context(cafile=str(secure.ca_file))
        line.sock = context.wrap_socket(line.sock, server_hostname="localhost")
    return line


def answer(line: Line) -> SaslAuthenticateResponse:
    body = line.frame()[5:]
    reply = decode(SaslAuthenticateResponse, 2, memoryview(body))
    assert isinstance(reply, SaslAuthenticateResponse)
    return reply


def log_in(
    secure: SecureNode,
    listener: str = "LOGIN",
    mechanism: str = "PLAIN",
    *tokens: bytes | Callable[[bytes], bytes],
) -> SaslAuthenticateResponse:
    """Send the tokens of one login; return the last answer."""
    with connect(secure, listener) as line:
        line.send(shake(mechanism))
        line.frame()
        reply = SaslAuthenticateResponse()
        for token in tokens or (b"\0alice\0alice-secret",):
            made = token if isinstance(token, bytes) else token(bytes(reply.auth_bytes))
            line.send(prove(made))
            reply = answer(line)
        if reply.error_code:
            assert line.is_closed()
        return reply


def fails(reply: SaslAuthenticateResponse) -> bool:
    return reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


# -- TLS (25, 26) ----------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [HELLO, b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n", b"\0" * 100])
def test_25_plaintext_on_a_tls_port_is_closed(secure: SecureNode, data: bytes) -> None:
    with Line(Address("localhost", secure.ports["TLS"])) as line:
        line.send(data)
        rest = b""
        try:
            while part := line.sock.recv(1000):
                rest += part
        except ConnectionError:
            pass
        assert len(rest) < 20, "an alert at most"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_26_old_tls_is_refused(secure: SecureNode, version: ssl.TLSVersion) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    plain = socket.create_connection(("localhost", secure.ports["TLS"]), SECONDS_MAX)
    with plain, pytest.raises((ssl.SSLError, ConnectionError), match=r"(?i)alert protocol version"):
        context.wrap_socket(plain)


def test_26_unknown_server_name_gets_the_same_certificate(secure: SecureNode) -> None:
    context = ssl.create_default_context(cafile=str(secure.ca_file))
    plain = socket.create_connection(("localhost", secure.ports["TLS"]), SECONDS_MAX)
    with plain, pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        context.wrap_socket(plain, server_hostname="other.example")


def mutual_answer(
    secure: SecureNode, certificate: Path | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> str:
    """What a client with a certificate sees: a reply, or the alert that tells it why not.

    TLS 1.3: the client learns of it when it first reads.
    """
    context = ssl.create_default_context(cafile=str(secure.ca_file))
    context.maximum_version = version
    if certificate is not None:
        context.load_cert_chain(certificate)
    plain = socket.create_connection(("localhost", secure.ports["MUTUAL"]), SECONDS_MAX)
    try:
        with plain, context.wrap_socket(plain, server_hostname="localhost") as line:
            line.sendall(HELLO)
            return "a reply" if line.recv(4) else "closed"
    except ssl.SSLError as error:
        return error.reason
    except ConnectionError as error:
        return str(error)


def test_26_client_certificates_are_verified(
    secure: SecureNode, authority: Authority, tmp_path: Path
) -> None:
    for below in (0, 3):
        certificate = authority.client(tmp_path / "good.pem", below=below)
        assert mutual_answer(secure, certificate) == "a reply"
    stranger = trustme.CA().issue_cert("client", common_name="carol")
    stranger.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "stranger.pem"))
    for bad, alert in (
        (None, "CERTIFICATE_REQUIRED"),
        (tmp_path / "stranger.pem", "UNKNOWN_CA"),
        (authority.client(tmp_path / "expired.pem", days=-1), "CERTIFICATE_EXPIRED"),
        (authority.client(tmp_path / "long.pem", below=110), "ALERT"),
    ):
        reply = mutual_answer(secure, bad)
        assert "ALERT" in reply and alert in reply, (bad, reply)
    assert "ALERT" in mutual_answer(secure, tmp_path / "stranger.pem", ssl.TLSVersion.TLSv1_2)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl command")
def test_26_renegotiation_is_refused(secure: SecureNode) -> None:
    at = f"localhost:{secure.ports['TLS']}"
    command = ["openssl", "s_client", "-connect", at, "-tls1_2", "-CAfile", str(secure.ca_file)]
    done = subprocess.run(
        command, input="R\n", capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    shown = done.stdout + done.stderr
    assert "RENEGOTIATING" in shown
    assert "no renegotiation" in shown or "handshake failure" in shown, shown[-500:]


def test_26_half_open_handshakes_do_not_hold_others(secure: SecureNode) -> None:
    before = resident_kib()
    lines = [Line(Address("localhost", secure.ports["SECURE"])) for _ in range(HALF_OPEN)]
    try:
        for number, line in enumerate(lines):
            line.send(_CLIENT_HELLO[: number % len(_CLIENT_HELLO)])
        began = time.monotonic()
        for _ in range(5):
            assert log_in(secure, "SECURE").error_code == 0
        assert time.monotonic() - began < 5
        assert resident_kib() - before < HALF_OPEN * 1024
    finally:
        for line in lines:
            line.sock.close()


# -- before and at the login (45-49) ---------------------------------------------------------------


def test_45_every_other_api_before_the_login_closes(secure: SecureNode) -> None:
    allowed = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
    for key, api in APIS.items():
        if key in allowed or Listener.BROKER not in api.listeners:
            continue
        version = api.versions[1]
        head = struct.pack(">hhih", key, version, 1, -1) + bytes(64)
        with connect(secure, "LOGIN") as line:
            line.send(struct.pack(">i", len(head)) + head)
            assert line.is_closed(), key.title
    assert request_class(ApiKey.METADATA)  # the table of APIs was not empty


@pytest.mark.parametrize("size", [1 << 30, 600 * 1024])
@pytest.mark.parametrize("listener", ["LOGIN", "SECURE"])
def test_46_frame_above_the_limit_is_refused_by_its_length(
    secure: SecureNode, listener: str, size: int
) -> None:
    for first in (b"", shake("SCRAM-SHA-256")):
        with connect(secure, listener) as line:
            if first:
                line.send(first)
                line.frame()
            line.send(struct.pack(">i", size))
            assert line.is_closed()


def scram_client(user: str = "alice", password: str = "alice-secret") -> scram.ScramClient:
    nonce = base64.b64encode(os.urandom(18)).decode()
    return scram.ScramClient(scram.ScramMechanism.SCRAM_SHA_256, user, password, nonce)


def test_47_scram_with_a_wrong_nonce_or_a_replayed_final_fails(secure: SecureNode) -> None:
    client, finals = scram_client(), []

    def final(challenge: bytes) -> bytes:
        finals.append(client.final(challenge))
        return finals[0]

    name = "SCRAM-SHA-256"
    assert log_in(secure, "LOGIN", name, client.first(), final).error_code == 0
    assert fails(log_in(secure, "LOGIN", name, client.first(), lambda _: finals[0]))

    def shortened(challenge: bytes) -> bytes:
        """Only the client's part of the nonce (CVE-2024-56128)."""
        own = client.first().partition(b"r=")[2]
        text = client.final(challenge)
        return b"c=biws,r=" + own + b"," + text.rpartition(b",")[2]

    assert fails(log_in(secure, "LOGIN", name, client.first(), shortened))


def test_47_unknown_user_gets_a_challenge_like_any_other(secure: SecureNode) -> None:
    def challenge(user: str) -> list[bytes]:
        with connect(secure, "LOGIN") as line:
            line.send(shake("SCRAM-SHA-256"))
            line.frame()
            line.send(prove(scram_client(user).first()))
            return bytes(answer(line).auth_bytes).split(b",")

    known, unknown, again = challenge("alice"), challenge("mallory"), challenge("mallory")
    assert unknown[1] == again[1] != known[1], "the salt of a user does not change"
    assert known[2] == unknown[2] == b"i=4096"
    client = scram_client("mallory")
    assert fails(log_in(secure, "LOGIN", "SCRAM-SHA-256", client.first(), client.final))


@pytest.mark.parametrize("iterations", [1, 4095])
def test_47_credentials_with_too_few_iterations_are_refused(
    secure: SecureNode, iterations: int
) -> None:
    admin = AdminClient({"bootstrap.servers": secure.bootstrap("OPEN"), "log_level": 0})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, iterations)
    wanted = UserScramCredentialUpsertion("bob", info, b"secret", b"salt")
    with pytest.raises(KafkaException):
        admin.alter_user_scram_credentials([wanted])["bob"].result(SECONDS_MAX)


@pytest.mark.parametrize(
    "token",
    [
        b"bob\0alice\0alice-secret",
        b"alice\0alice-secret",
        b"\0alice\0alice-secret\0",
        b"\0\0alice-secret",
        b"\0alice\0",
        b"\0alice\0alice-secre",
        b"\xff\xfe\0alice\0x",
        b"",
    ],
)
def test_48_plain_tokens_that_do_not_fit_fail(secure: SecureNode, token: bytes) -> None:
    assert fails(log_in(secure, "LOGIN", "PLAIN", token))


def _token(secure: SecureNode, head: dict[str, object], claims: dict[str, object]) -> str:
    every = {"sub": "alice", "aud": "kafka", "exp": int(time.time()) + 300, **claims}
    kept = {name: value for name, value in every.items() if value is not None}
    return jwt.encode({"alg": "RS256", "kid": "one", **head}, kept, secure.key)


def test_49_bad_tokens_fail(secure: SecureNode) -> None:
    def bearer(token: str) -> SaslAuthenticateResponse:
        tokens = (client_first(token), lambda _: b"\x01")
        with connect(secure, "LOGIN") as line:
            line.send(shake("OAUTHBEARER"))
            line.frame()
            line.send(prove(tokens[0]))
            reply = answer(line)
            if not reply.error_code and reply.auth_bytes:
                line.send(prove(b"\x01"))
                reply = answer(line)
            return reply

    assert bearer(_token(secure, {}, {})).error_code == 0
    public = secure.key.as_pem(private=False)
    claims = {"sub": "alice", "aud": "kafka", "exp": int(time.time()) + 300}
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"one"}').rstrip(b"=").decode()
    for bad in (
        jwt.encode({"alg": "HS256", "kid": "one"}, claims, OctKey.import_key(os.urandom(32))),
        _hs256(head, claims, public),
        _token(secure, {}, {"exp": int(time.time()) - 3600}),
        _token(secure, {}, {"nbf": int(time.time()) + 3600}),
        _token(secure, {}, {"aud": None}),
        _token(secure, {}, {"exp": None}),
        _token(secure, {"kid": "../../etc/passwd"}, {}),
        _token(secure, {"kid": "one' OR 1=1"}, {}),
        "a.b.c",
        "." * 10_000,
    ):
        assert fails(bearer(bad)), bad[:80]


def _hs256(head: str, claims: dict[str, object], key: bytes) -> str:
    """A token signed with the public key as a shared secret."""
    import hmac

    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    signature = hmac.digest(key, f"{head}.{body}".encode(), "sha256")
    return f"{head}.{body}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


# -- guessing (47, 53) -----------------------------------------------------------------------------


def test_53_guesses_are_delayed_and_do_not_slow_a_good_client(secure: SecureNode) -> None:
    ends: list[float] = []

    def guess() -> None:
        for _ in range(GUESSES // 10):
            began = time.monotonic()
            assert fails(log_in(secure, "LOGIN", "PLAIN", b"\0alice\0wrong"))
            ends.append(time.monotonic() - began)

    threads = [threading.Thread(target=guess) for _ in range(10)]
    for thread in threads:
        thread.start()
    times = []
    for _ in range(20):
        began = time.monotonic()
        assert log_in(secure).error_code == 0
        times.append(time.monotonic() - began)
    for thread in threads:
        thread.join(SECONDS_MAX)
    assert len(ends) == GUESSES
    assert min(ends) >= FAILURE_DELAY_S
    assert statistics.median(times) < 0.5


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_47_known_and_unknown_users_take_the_same_time(secure: SecureNode, mechanism: str) -> None:
    def timed(user: str) -> float:
        """The time to the answer that depends on whether the user exists."""
        with connect(secure, "LOGIN") as line:
            line.send(shake(mechanism))
            line.frame()
            if mechanism == "PLAIN":
                token = f"\0{user}\0wrong-secret".encode()
            else:
                token = scram_client(user).first()
            began = time.perf_counter()
            line.send(prove(token))
            line.frame()
            return time.perf_counter() - began

    known, unknown = [], []
    for number in range(60):
        # Users take turns, so that a busy machine slows both.
        known.append(timed("alice"))
        unknown.append(timed(f"user-{number}"))
    one, other = statistics.median(known), statistics.median(unknown)
    assert abs(one - other) < max(0.002, 0.5 * min(one, other)), (one, other)


def test_client_that_leaves_during_the_failure_delay_holds_no_connection(
    secure: SecureNode, running: OneNode
) -> None:
    for _ in range(20):
        with connect(secure, "SECURE") as line:
            line.send(shake("PLAIN"))
            line.frame()
            line.send(prove(b"\0alice\0wrong"))
    deadline = time.monotonic() + SECONDS_MAX
    while running.call(open_connections("SECURE")):
        assert time.monotonic() < deadline, "connections of clients that have left stay open"


async def open_connections(listener: str) -> int:
    """Count the connections that a listener of this process holds."""
    # isinstance would ask the class of proxies, whose objects may be gone.
    servers = [each for each in gc.get_objects() if type(each) is Server]
    return sum(name == listener for each in servers for name in each._accepted.values())


# -- fuzzing before the login ----------------------------------------------------------------------


def resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


@pytest.mark.parametrize("listener", ["LOGIN", "SECURE", "TLS"])
def test_mutated_and_random_bytes_before_the_login_change_nothing(
    secure: SecureNode, listener: str
) -> None:
    rng = random.Random(28)
    frames = [
        HELLO,
        shake("PLAIN"),
        shake("SCRAM-SHA-256"),
        shake("OAUTHBEARER"),
        prove(b"\0alice\0x"),
        prove(scram_client().first()),
    ]
    before = 0
    for number in range(FUZZED if listener == "LOGIN" else FUZZED // 3):
        if number == 20:
            before = resident_kib()
        first = rng.choice([b"", shake("PLAIN"), shake("SCRAM-SHA-256")])
        bad = mutated(rng.choice(frames), rng, rng.choice(frames))
        if rng.random() < 0.3:
            bad = rng.randbytes(rng.randrange(1, 3000))
        if listener == "TLS":  # below the encryption: records of TLS
            line, first = Line(Address("localhost", secure.ports["TLS"])), b""
            if rng.random() < 0.5:
                bad = mutated(_CLIENT_HELLO + rng.randbytes(200), rng, _CLIENT_HELLO)
        else:
            line = connect(secure, listener)
        with line:
            line.sock.settimeout(0.02)
            try:
                line.send(first + bytes(bad))
                while line.sock.recv(4096):
                    pass
            except (OSError, TimeoutError):
                pass
    assert resident_kib() - before < RSS_GROWTH_KIB_MAX
