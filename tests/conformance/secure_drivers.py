"""Java, kafkajs, @platformatic/kafka and kcat, each with the login that a request names."""

import re
import shutil
import subprocess
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
from client_contract import Refused
from client_drivers import DriverClient, node_modules
from secure_node import SecureNode

from kafka_jars import classpath

HERE = Path(__file__).parent / "secure_clients"
LINES = HERE.parents[1] / "clients" / "drivers" / "lines.mjs"
MODULES = "org.apache.kafka.common.security"
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
SECONDS_MAX = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How a client connects: files of PEM, and credentials."""

    bootstrap: str
    protocol: str
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    mechanism: str | None = None
    user: str = "alice"
    password: str = "alice-secret"
    token: str | None = None
    is_bad: bool = False


PROTOCOLS = {
    "OPEN": "PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "SECURE": "SASL_SSL",
}


def login_of(secure: SecureNode, listener: str, mechanism: str | None = None) -> Login:
    """Good credentials for a listener."""
    login = Login(
        bootstrap=secure.bootstrap(listener), protocol=PROTOCOLS[listener], mechanism=mechanism
    )
    if login.protocol.endswith("SSL"):
        login = replace(login, ca=str(secure.ca_file))
    if listener == "MUTUAL":
        login = replace(login, cert=str(secure.client_cert), key=str(secure.client_key))
    if mechanism == "OAUTHBEARER":
        login = replace(login, token=secure.token())
    return login


class SecureDriver(DriverClient):
    """A program that takes a login with each request."""

    mechanisms = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

    def round_trip(self, login: Login, topic: str) -> list[str]:
        """Create a topic, write three records and read them in a group."""
        found: list[str] = self._ask("round_trip", topic=topic, **self._settings(login))
        return found

    def log_in(self, login: Login) -> str:
        """Return the cluster's id. Raises `Refused`."""
        return str(self._ask("login", **self._settings(login)))

    def _settings(self, login: Login) -> dict[str, object]:
        return {"login": asdict(login)}


class _NodeDriver(SecureDriver):
    script = "?"

    def __init__(self, _: Path) -> None:
        home = Path(node_modules())
        for source in (HERE / self.script, LINES):
            (home / source.name).write_text(source.read_text())
        super().__init__(["node", str(home / self.script)], {"NODE_NO_WARNINGS": "1"})


class KafkaJs(_NodeDriver):
    name = "kafkajs"
    script = "secure_kafkajs.mjs"


class Platformatic(_NodeDriver):
    name = "platformatic"
    script = "secure_platformatic.mjs"


class Java(SecureDriver):
    name = "java"

    def __init__(self, root: Path) -> None:
        self._token = root / "java.token"
        source = str(HERE / "SecureClient.java")
        allowed = f"-D{ALLOWED_URLS}={self._token.as_uri()}"
        super().__init__(["java", "-Xmx256m", allowed, "-cp", classpath(), source])

    def produce_for(self, login: Login, topic: str, seconds: int) -> dict[str, object]:
        """Send without retries for some seconds; return what failed and the login metrics."""
        asked = {"topic": topic, "seconds": seconds, **self._settings(login)}
        found: dict[str, object] = self._ask("produce_for", **asked)
        return found

    def _settings(self, login: Login) -> dict[str, object]:
        return {"config": self.properties(login)}

    def properties(self, login: Login) -> dict[str, str]:
        config = {
            "bootstrap.servers": login.bootstrap,
            "security.protocol": login.protocol,
            "default.api.timeout.ms": "15000" if login.is_bad else "60000",
            "request.timeout.ms": "10000",
        }
        if login.ca is not None:
            config |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": login.ca}
        if login.cert is not None and login.key is not None:
            config |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": Path(login.cert).read_text(),
                "ssl.keystore.key": _pkcs8(Path(login.key)),
            }
        if login.mechanism is not None:
            config |= {"sasl.mechanism": login.mechanism, **self._jaas(login)}
        return config

    def _jaas(self, login: Login) -> dict[str, str]:
        named = f'required username="{login.user}" password="{login.password}";'
        if login.mechanism == "PLAIN":
            return {"sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule {named}"}
        if login.mechanism != "OAUTHBEARER":
            return {"sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule {named}"}
        self._token.write_text(login.token or "")
        return {
            "sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": (
                f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
            ),
            "sasl.oauthbearer.token.endpoint.url": self._token.as_uri(),
        }


def _pkcs8(key: Path) -> str:
    """Return a private key in the only form that Java reads."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    loaded = load_pem_private_key(key.read_bytes(), None)
    return loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


class Kcat:
    """kcat as Debian packages it: one process for each step. It takes no token.

    librdkafka before 2.6.1 repeats its nonce in the last message of SCRAM. Apache Kafka 4 and this
    server reject that (CVE-2024-56128).
    """

    name = "kcat"
    mechanisms = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

    def __init__(self, _: Path) -> None:
        if shutil.which("kcat") is None:
            pytest.skip("kcat is not installed")
        said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
        found = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", said)
        assert found, said
        self.repeats_nonce = tuple(map(int, found.groups())) < (2, 6, 1)

    def round_trip(self, login: Login, topic: str) -> list[str]:
        sent = "".join(f"value-{number}\n" for number in range(3))
        self._run(login, "-P", "-t", topic, stdin=sent)
        read = ("-X", "auto.offset.reset=earliest", "-G", topic, "-c", "3", "-q", topic)
        return self._run(login, *read).split()

    def log_in(self, login: Login) -> str:
        return self._run(login, "-L", "-m", "5")

    def _run(self, login: Login, *arguments: str, stdin: str = "") -> str:
        options = {"security.protocol": login.protocol.lower()}
        files = {"ca": login.ca, "certificate": login.cert, "key": login.key}
        options |= {f"ssl.{name}.location": at for name, at in files.items() if at is not None}
        if login.mechanism is not None:
            options |= {
                "sasl.mechanism": login.mechanism,
                "sasl.username": login.user,
                "sasl.password": login.password,
            }
        settings = [part for pair in options.items() for part in ("-X", "=".join(pair))]
        done = subprocess.run(
            ["kcat", "-b", login.bootstrap, *settings, *arguments],
            input=stdin,
            text=True,
            capture_output=True,
            timeout=SECONDS_MAX,
        )
        if done.returncode != 0:
            raise Refused(-1, done.stderr)
        return done.stdout

    def close(self) -> None:
        """Nothing is kept open."""
