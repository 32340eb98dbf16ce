"""TLS contexts from every kind of store, handshakes in memory, and reloads."""

import datetime
import os
import ssl
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from msgspec.structs import replace

from ottla.security.key_stores import STORE_BYTES_MAX, read_trust_store
from ottla.security.tls import TlsContexts, client_context, server_context
from ottla.security.tls_settings import (
    BadTls,
    StoreSettings,
    TlsSettings,
    client_tls_settings,
)

CA = trustme.CA()
OTHER_CA = trustme.CA()
LEAF = CA.issue_cert("localhost", "127.0.0.1", common_name="node")
KEY = LEAF.private_key_pem.bytes()
CHAIN = b"".join(blob.bytes() for blob in LEAF.cert_chain_pems)
TRUSTED = StoreSettings(certificates=CA.cert_pem.bytes())
SECRET = "store-secret"


def encrypted(key: bytes) -> bytes:
    loaded = load_pem_private_key(key, None)
    return loaded.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(SECRET.encode())
    )


def p12(password: str | None = SECRET) -> bytes:
    key = load_pem_private_key(KEY, None)
    chain = x509.load_pem_x509_certificates(CHAIN)
    encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    return pkcs12.serialize_key_and_certificates(b"node", key, chain[0], chain[1:], encryption)


def trust_p12() -> bytes:
    certificate = x509.load_pem_x509_certificate(CA.cert_pem.bytes())
    return pkcs12.serialize_key_and_certificates(
        b"ca", None, None, [certificate], BestAvailableEncryption(SECRET.encode())
    )


def store(tmp_path: Path, data: bytes, **others: str) -> StoreSettings:
    path = tmp_path / f"store-{len(list(tmp_path.iterdir()))}"
    path.write_bytes(data)
    return StoreSettings(location=str(path), **others)


INLINE = StoreSettings(key=KEY, certificates=CHAIN)
SERVER = TlsSettings(key_store=INLINE, trust_store=TRUSTED)
CLIENT = TlsSettings(trust_store=TRUSTED)


def shake(
    server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost"
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Complete a handshake in memory; raises what either side raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    at_server = server.wrap_bio(to_server, to_client, server_side=True)
    at_client = client.wrap_bio(to_client, to_server, server_hostname=name)
    pending = [at_client, at_server]
    for _ in range(10):
        for side in list(pending):
            try:
                side.do_handshake()
                pending.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not pending
    # With TLS 1.3 a client learns of a refused certificate by the first read.
    at_server.write(b"x")
    assert at_client.read(1) == b"x"
    return at_server, at_client


@pytest.mark.parametrize(
    "make",
    [
        lambda path: INLINE,
        lambda path: StoreSettings(key=encrypted(KEY), certificates=CHAIN, key_password=SECRET),
        lambda path: store(path, KEY + CHAIN, type="PEM"),
        lambda path: store(path, CHAIN + encrypted(KEY), type="PEM", key_password=SECRET),
        lambda path: store(path, p12(), type="PKCS12", password=SECRET),
        lambda path: store(path, p12(), type="JKS", password=SECRET),  # as Java reads it, too
        lambda path: store(path, p12(None), type="PKCS12"),
    ],
)
def test_every_kind_of_key_store_serves(make, tmp_path: Path) -> None:
    server = server_context(TlsSettings(key_store=make(tmp_path)))
    _, client = shake(server, client_context(CLIENT))
    assert client.version() == "TLSv1.3"


def test_pkcs12_trust_store_is_read(tmp_path: Path) -> None:
    trusted = store(tmp_path, trust_p12(), type="PKCS12", password=SECRET)
    shake(server_context(SERVER), client_context(TlsSettings(trust_store=trusted)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (TlsSettings(), "needs a certificate"),
        (TlsSettings(key_store=StoreSettings(key=KEY)), "must be set together"),
        (TlsSettings(key_store=StoreSettings(location="/none/at/all")), "/none/at/all"),
        (TlsSettings(key_store=StoreSettings(key=b"x", certificates=CHAIN)), "0 private keys"),
        (
            TlsSettings(key_store=StoreSettings(key=encrypted(KEY), certificates=CHAIN)),
            "ssl.key.password",
        ),
        (
            TlsSettings(
                key_store=StoreSettings(
                    key=encrypted(KEY), certificates=CHAIN, key_password="wrong"
                )
            ),
            "wrong password",
        ),
        (
            TlsSettings(
                key_store=StoreSettings(
                    key=KEY,
                    certificates=OTHER_CA.issue_cert("x").cert_chain_pems[0].bytes(),
                )
            ),
            "do not fit",
        ),
        (replace(SERVER, protocols=("TLSv1.1",)), "ssl.enabled.protocols"),
        (replace(SERVER, protocols=()), "ssl.enabled.protocols"),
        (replace(SERVER, cipher_suites=("TLS_NO_SUCH",)), "TLS_NO_SUCH"),
        (TlsSettings(key_store=INLINE, client_auth="required"), "needs a trust store"),
    ],
)
def test_bad_settings_are_refused_by_name_without_secrets(
    settings: TlsSettings, message: str
) -> None:
    with pytest.raises(BadTls, match=message) as caught:
        server_context(settings)
    assert SECRET not in str(caught.value) and "PRIVATE KEY" not in str(caught.value)


def test_jks_store_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    jks = store(tmp_path, b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(BadTls, match="keytool -importkeystore"):
        server_context(TlsSettings(key_store=jks))


def test_wrong_store_password_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTls, match="wrong password"):
        server_context(TlsSettings(key_store=store(tmp_path, p12(), password="wrong")))


# A key of the curve secp112r1, which no TLS has.
ODD_KEY = b"""-----BEGIN PRIVATE KEY-----
ME4CAQAwEAYHKoZIzj0CAQYFK4EEAAYENzA1AgEBBA6sbHRu5CvsIoyiOC9zuqEg
Ax4ABJjn0VB84rsElwSlSvvAICDlljF83TgeiJtOd+U=
-----END PRIVATE KEY-----
"""


@pytest.mark.parametrize("password", ["wrong", "", None])
def test_wrong_password_of_an_encrypted_key_is_refused_without_showing_it(
    password: str | None,
) -> None:
    key_store = StoreSettings(key=encrypted(KEY), certificates=CHAIN, key_password=password)
    with pytest.raises(BadTls, match=r"password") as caught:
        server_context(TlsSettings(key_store=key_store))
    assert 'wrong"' not in str(caught.value) and SECRET not in str(caught.value)


def test_key_of_an_unsupported_kind_is_refused() -> None:
    key_store = StoreSettings(key=ODD_KEY, certificates=CHAIN)
    with pytest.raises(BadTls, match="not supported"):
        server_context(TlsSettings(key_store=key_store))


def test_client_checks_host_name_by_default() -> None:
    server = server_context(SERVER)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(server, client_context(CLIENT), "elsewhere")
    shake(server, client_context(replace(CLIENT, endpoint_identification="")), "elsewhere")


def self_signed() -> tuple[bytes, bytes]:
    """Return key and certificate of a node that is its own authority, without key identifiers."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return secret, certificate.public_bytes(Encoding.PEM)


@pytest.mark.parametrize("number", [0, 1])
def test_each_self_signed_certificate_of_one_name_is_trusted(number: int) -> None:
    # Brokers of a cluster often have such certificates, all in one trust store.
    nodes = [self_signed(), self_signed()]
    trust = StoreSettings(certificates=b"".join(certificate for _, certificate in nodes))
    key, certificate = nodes[number]
    keys = StoreSettings(key=key, certificates=certificate)
    server = TlsSettings(key_store=keys, trust_store=trust, client_auth="required")
    client = TlsSettings(key_store=keys, trust_store=trust)
    shake(server_context(server), client_context(client))


def test_authority_below_the_root_can_be_trusted_alone() -> None:
    middle = CA.create_child_ca()
    leaf = middle.issue_cert("localhost")
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    keys = StoreSettings(key=leaf.private_key_pem.bytes(), certificates=chain)
    trust = StoreSettings(certificates=middle.cert_pem.bytes())
    shake(
        server_context(TlsSettings(key_store=keys)), client_context(TlsSettings(trust_store=trust))
    )


def test_client_refuses_an_unknown_authority_even_without_host_names() -> None:
    trust = StoreSettings(certificates=OTHER_CA.cert_pem.bytes())
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(
            server_context(SERVER),
            client_context(TlsSettings(trust_store=trust, endpoint_identification="")),
        )


def client_with(ca: trustme.CA | None) -> ssl.SSLContext:
    if ca is None:
        return client_context(CLIENT)
    leaf = ca.issue_cert("client", common_name="alice")
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    own = StoreSettings(key=leaf.private_key_pem.bytes(), certificates=chain)
    return client_context(TlsSettings(key_store=own, trust_store=TRUSTED))


@pytest.mark.parametrize(
    ("client_auth", "ca", "is_accepted"),
    [
        ("none", None, True),
        ("none", OTHER_CA, True),
        ("requested", None, True),
        ("requested", CA, True),
        ("requested", OTHER_CA, False),
        ("required", None, False),
        ("required", CA, True),
        ("required", OTHER_CA, False),
    ],
)
def test_client_certificates_are_asked_for_as_configured(
    client_auth: str, ca: trustme.CA | None, is_accepted: bool
) -> None:
    server = server_context(replace(SERVER, client_auth=client_auth))
    if not is_accepted:
        with pytest.raises(ssl.SSLError):
            shake(server, client_with(ca))
        return
    at_server, _ = shake(server, client_with(ca))
    has_certificate = at_server.getpeercert(binary_form=True) is not None
    assert has_certificate is (ca is not None and client_auth != "none")


def test_protocol_versions_and_ciphers_are_kept() -> None:
    only_12 = replace(
        SERVER,
        protocols=("TLSv1.2",),
        cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",),
    )
    _, client = shake(server_context(only_12), client_context(CLIENT))
    assert client.version() == "TLSv1.2"
    assert client.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    with pytest.raises(ssl.SSLError):
        shake(server_context(only_12), client_context(replace(CLIENT, protocols=("TLSv1.3",))))


def test_reload_takes_the_new_certificate_and_keeps_the_old_one_on_error(tmp_path: Path) -> None:
    path = tmp_path / "node.pem"
    path.write_bytes(KEY + CHAIN)
    contexts = TlsContexts(TlsSettings(key_store=StoreSettings(location=str(path))), server_context)
    first = contexts.get()
    assert not contexts.has_changed_files()

    path.write_bytes(b"damaged")
    assert contexts.has_changed_files()
    with pytest.raises(BadTls):
        contexts.reload()
    assert contexts.get() is first
    assert not contexts.has_changed_files(), "a bad file is not tried again until it changes"

    renewed = OTHER_CA.issue_cert("localhost")
    chain = b"".join(blob.bytes() for blob in renewed.cert_chain_pems)
    replacement = tmp_path / "new.pem"
    replacement.write_bytes(renewed.private_key_pem.bytes() + chain)
    os.replace(replacement, path)
    assert contexts.has_changed_files()
    contexts.reload()
    trust = StoreSettings(certificates=OTHER_CA.cert_pem.bytes())
    shake(contexts.get(), client_context(TlsSettings(trust_store=trust)))


def test_client_properties_are_read() -> None:
    settings = client_tls_settings(
        {
            "ssl.truststore.certificates": CA.cert_pem.bytes().decode(),
            "ssl.keystore.key": KEY.decode(),
            "ssl.keystore.certificate.chain": CHAIN.decode(),
            "ssl.endpoint.identification.algorithm": "",
            "ssl.enabled.protocols": "TLSv1.2, TLSv1.3",
        }
    )
    assert settings.endpoint_identification == "" and settings.protocols == ("TLSv1.2", "TLSv1.3")
    server = server_context(replace(SERVER, client_auth="required"))
    shake(server, client_context(settings), "elsewhere")
    assert "PRIVATE" not in repr(settings)


def test_store_that_is_no_file_or_has_no_end_is_refused(tmp_path: Path) -> None:
    """AlterConfigs may name any path: ``/dev/zero`` filled the memory, a pipe blocked the node."""
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    os.mkfifo(pipe)
    with large.open("wb") as file:
        file.truncate(STORE_BYTES_MAX + 1)
    for location, message in (
        (Path("/dev/zero"), "not a regular file"),
        (pipe, "not a regular file"),
        (tmp_path, "not a regular file"),
        (large, "more than"),
    ):
        with pytest.raises(BadTls, match=message):
            read_trust_store(StoreSettings(type="PEM", location=str(location)))
