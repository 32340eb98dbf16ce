"""Client security from Kafka's and librdkafka's property names, and tokens for it."""

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from ottla.client.client_security import BadClientSecurity, connection_options, is_secret
from ottla.client.connection import Options
from ottla.runtime.clock import SystemClock
from ottla.runtime.randomness import SystemRandom
from ottla.security.sasl.credentials import LoginFailed

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECRET = "tall-giraffe"


def options(**properties: str) -> Options:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return connection_options(named, SystemRandom(), SystemClock())


def problem(**properties: str) -> str:
    with pytest.raises(BadClientSecurity) as caught:
        options(**properties)
    assert SECRET not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("tls")
    ca = trustme.CA()
    leaf = ca.issue_cert("client", common_name="carol")
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    key = leaf.private_key_pem.bytes()
    contents = {"ca": ca.cert_pem.bytes(), "crt": chain, "key": key, "store": key + chain}
    for name, data in contents.items():
        (root / name).write_bytes(data)
    return {name: str(root / name) for name in contents}


def context_of(found: Options) -> ssl.SSLContext:
    assert found.tls is not None
    return found.tls()


def test_no_properties_mean_plaintext_without_login() -> None:
    found = options(acks="all", linger_ms="5")
    assert (found.tls, found.login) == (None, None)


@pytest.mark.parametrize("names", ["kafka", "librdkafka"])
def test_both_families_of_names_are_understood(files: dict[str, str], names: str) -> None:
    kafka = {
        "ssl_truststore_location": files["ca"],
        "ssl_keystore_location": files["store"],
        "sasl_mechanism": "PLAIN",
        "sasl_jaas_config": f'{PLAIN} username="alice" password="{SECRET}";',
    }
    librdkafka = {
        "ssl_ca_location": files["ca"],
        "ssl_certificate_location": files["crt"],
        "ssl_key_location": files["key"],
        "sasl_mechanisms": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": SECRET,
    }
    found = options(security_protocol="sasl_ssl", **(kafka if names == "kafka" else librdkafka))
    context = context_of(found)
    assert context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1
    assert found.login is not None and found.login.mechanism == "PLAIN"
    assert found.login.start("localhost").step(None) == f"\0alice\0{SECRET}".encode()
    assert SECRET not in repr(found)


@pytest.mark.parametrize("algorithm", ["", "none"])
def test_host_name_check_can_be_turned_off(files: dict[str, str], algorithm: str) -> None:
    found = options(
        security_protocol="SSL",
        ssl_ca_location=files["ca"],
        ssl_endpoint_identification_algorithm=algorithm,
    )
    context = context_of(found)
    assert not context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED


def test_problems_name_the_key(files: dict[str, str]) -> None:
    sasl = {"security_protocol": "SASL_PLAINTEXT"}
    assert "security.protocol=TLS must be one of" in problem(security_protocol="TLS")
    assert "did you mean ssl.truststore.location?" in problem(ssl_trutstore_location="x")
    assert "/nowhere.pem" in problem(security_protocol="SSL", ssl_ca_location="/nowhere.pem")
    assert "ssl.certificate.location is set without ssl.key.location" in problem(
        security_protocol="SSL", ssl_certificate_location=files["crt"]
    )
    assert "mean the same" in problem(
        security_protocol="SSL", ssl_ca_location=files["ca"], ssl_truststore_location="other"
    )
    assert "verification=false is not supported" in problem(
        enable_ssl_certificate_verification="false"
    )
    assert "(sasl.mechanism is not set, so it is GSSAPI)" in problem(**sasl)
    assert "GSSAPI needs sasl.kerberos.service.name" in problem(sasl_mechanism="GSSAPI", **sasl)
    assert "needs sasl.username and sasl.password" in problem(sasl_mechanism="PLAIN", **sasl)
    assert "sasl.username is not set" in problem(
        sasl_mechanism="PLAIN", sasl_password=SECRET, **sasl
    )
    assert "sasl.jaas.config: " in problem(
        sasl_mechanism="PLAIN", sasl_jaas_config=f'{PLAIN} password="{SECRET}"', **sasl
    )
    assert "exclude each other" in problem(
        sasl_mechanism="PLAIN",
        sasl_username="a",
        sasl_password=SECRET,
        sasl_jaas_config=f'{PLAIN} username="a" password="{SECRET}";',
        **sasl,
    )


def test_secret_keys_are_recognised() -> None:
    secret = ("sasl.password", "sasl.jaas.config", "ssl.key.password", "ssl.key.pem")
    assert all(map(is_secret, secret))
    assert not any(map(is_secret, ("sasl.username", "ssl.ca.location", "security.protocol")))


# -- tokens --------------------------------------------------------------------


class Provider(http.server.BaseHTTPRequestHandler):
    """Gives tokens to the client `me`; remembers what it was sent."""

    seen: list[tuple[str, str]]
    lifetime_s: int
    answer: dict[str, Any] | None = None

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.seen.append((self.headers["Authorization"], body))
        token = {"access_token": f"token-{len(self.seen)}", "expires_in": self.lifetime_s}
        data = json.dumps(token if self.answer is None else self.answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def provider() -> Iterator[tuple[str, type[Provider]]]:
    handler = type("Own", (Provider,), {"seen": [], "lifetime_s": 3600})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token", handler
        server.shutdown()
        thread.join()


def bearer(url: str, **more: str) -> Options:
    return options(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=url,
        **more,
    )


def first_token(found: Options) -> bytes:
    assert found.login is not None
    token = found.login.start("localhost").step(None)
    assert token is not None
    return token


def test_client_credentials_grant_is_used_and_its_token_kept(
    provider: tuple[str, type[Provider]],
) -> None:
    url, handler = provider
    jaas = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        f'clientId="me" clientSecret="{SECRET}" scope="kafka";'
    )
    found = bearer(url, sasl_jaas_config=jaas)
    assert b"token-1" in first_token(found) and b"token-1" in first_token(found)
    ((authorization, body),) = handler.seen
    assert authorization == "Basic bWU6dGFsbC1naXJhZmZl"
    assert body == "grant_type=client_credentials&scope=kafka"


def test_expired_token_is_requested_again(provider: tuple[str, type[Provider]]) -> None:
    url, handler = provider
    handler.lifetime_s = 0
    found = bearer(url, sasl_oauthbearer_client_id="me", sasl_oauthbearer_client_secret=SECRET)
    assert b"token-1" in first_token(found) and b"token-2" in first_token(found)


def test_reply_without_a_token_fails_the_login(provider: tuple[str, type[Provider]]) -> None:
    url, handler = provider
    handler.answer = {"error": SECRET}
    found = bearer(url, sasl_oauthbearer_client_id="me", sasl_oauthbearer_client_secret=SECRET)
    with pytest.raises(LoginFailed, match="without an access_token") as caught:
        first_token(found)
    assert SECRET not in str(caught.value)


def test_file_url_names_a_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc.def.ghi\n")
    assert b"Bearer abc.def.ghi\x01" in first_token(bearer((tmp_path / "token").as_uri()))


def test_bad_token_settings_are_refused() -> None:
    sasl = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    assert "needs sasl.oauthbearer.token.endpoint.url" in problem(**sasl)
    url = "sasl_oauthbearer_token_endpoint_url"
    assert "client.secret" in problem(**sasl, **{url: "https://example.org/token"})
    who = {"sasl_oauthbearer_client_id": "me", "sasl_oauthbearer_client_secret": SECRET}
    assert "must be https" in problem(**sasl, **who, **{url: "http://example.org/token"})
