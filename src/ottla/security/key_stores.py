"""Key stores and trust stores, as Kafka's ``ssl.*`` settings name them, read into PEM.

A PEM store is a file with a private key and its certificate chain, or both given in the settings.
A PKCS12 store is read whatever its type setting says, as Java does. JKS and JCEKS have no
maintained reader for Python: they are refused with the command that converts them.
"""

import os
import re
import stat
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from ottla.security.tls_settings import BadTls, StoreSettings

_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE: Final = 0x30
STORE_BYTES_MAX: Final = 16 << 20
_PEM_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----\n?", re.DOTALL)


class KeyMaterial(msgspec.Struct, frozen=True):
    """A certificate chain, leaf first, and its private key, unencrypted. Never printed."""

    chain: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyMaterial(hidden)"

    @property
    def leaf(self) -> x509.Certificate:
        """The node's own certificate."""
        return x509.load_pem_x509_certificate(self.chain)


def read_key_store(store: StoreSettings) -> KeyMaterial | None:
    """Return the key and chain of a store; None where none is configured.

    Raises:
        BadTls: missing, unreadable, of an unsupported type, or with a wrong password.
    """
    if store.key is not None or store.certificates is not None:
        if store.key is None or store.certificates is None:
            raise BadTls("ssl.keystore.key and ssl.keystore.certificate.chain must be set together")
        return _pem_material("ssl.keystore.key", store.key + b"\n" + store.certificates, store)
    if store.location is None:
        return None
    if store.key_location is not None:
        chain = _read(store.location, "ssl.certificate.location")
        key = _read(store.key_location, "ssl.key.location")
        return _pem_material(store.key_location, key + b"\n" + chain, store)
    data = _read(store.location, "ssl.keystore.location")
    if _is_pkcs12(store, data):
        return _pkcs12_material(store, data)
    return _pem_material(store.location, data, store)


def read_trust_store(store: StoreSettings) -> bytes | None:
    """Return the trusted certificates as PEM; None where no store is configured.

    Raises:
        BadTls: as `read_key_store`.
    """
    if store.certificates is not None:
        return _certificates("ssl.truststore.certificates", store.certificates)
    if store.location is None:
        return None
    data = _read(store.location, "ssl.truststore.location")
    if not _is_pkcs12(store, data):
        return _certificates(store.location, data)
    loaded = _load_pkcs12(store, data)
    found = [each.certificate for each in loaded.additional_certs]
    if loaded.cert is not None:
        found.append(loaded.cert.certificate)
    if not found:
        raise BadTls(f"{store.location} holds no certificate")
    return b"".join(each.public_bytes(Encoding.PEM) for each in found)


def _read(location: str, key: str) -> bytes:
    """Read a store. AlterConfigs may name any path: a device has no end, a pipe no beginning."""
    try:
        if not stat.S_ISREG(os.stat(location).st_mode):
            raise BadTls(f"{key}: {location} is not a regular file")
        with open(location, "rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise BadTls(f"{key}: cannot read {location}: {error.strerror}") from error
    if len(data) > STORE_BYTES_MAX:
        raise BadTls(f"{key}: {location} has more than {STORE_BYTES_MAX} bytes")
    return data


def _is_pkcs12(store: StoreSettings, data: bytes) -> bool:
    if data[:4] in _JKS_MAGIC:
        raise BadTls(
            f"{store.location} is a JKS store, which is not supported. Convert it: keytool "
            f"-importkeystore -srckeystore {store.location} -destkeystore {store.location}.p12 "
            "-deststoretype PKCS12"
        )
    return data[:1] == bytes([_DER_SEQUENCE])


def _load_pkcs12(store: StoreSettings, data: bytes) -> pkcs12.PKCS12KeyAndCertificates:
    password = None if store.password is None else store.password.encode()
    try:
        return pkcs12.load_pkcs12(data, password)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadTls(f"{store.location}: not a PKCS12 store, or a wrong password") from error


def _pkcs12_material(store: StoreSettings, data: bytes) -> KeyMaterial:
    loaded = _load_pkcs12(store, data)
    if loaded.key is None or loaded.cert is None:
        raise BadTls(f"{store.location} holds no private key with a certificate")
    chain = [loaded.cert.certificate, *(each.certificate for each in loaded.additional_certs)]
    return KeyMaterial(
        b"".join(each.public_bytes(Encoding.PEM) for each in chain),
        loaded.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def _pem_material(source: str, data: bytes, store: StoreSettings) -> KeyMaterial:
    keys = [block[0] for block in _PEM_BLOCK.finditer(data) if b"PRIVATE KEY" in block[1]]
    if len(keys) != 1:
        raise BadTls(f"{source} holds {len(keys)} private keys in PEM; there must be one")
    secret = store.key_password or store.password
    is_encrypted = b"ENCRYPTED" in keys[0]
    if is_encrypted and secret is None:
        raise BadTls(f"the private key in {source} is encrypted: set ssl.key.password")
    try:
        key = load_pem_private_key(
            keys[0], secret.encode() if is_encrypted and secret is not None else None
        )
    except (ValueError, TypeError) as error:
        raise BadTls(f"the private key in {source} cannot be read: wrong password?") from error
    except UnsupportedAlgorithm as error:
        raise BadTls(f"the private key in {source} is of a kind that is not supported") from error
    return KeyMaterial(
        _certificates(source, data),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def _certificates(source: str, data: bytes) -> bytes:
    blocks = [block[0] for block in _PEM_BLOCK.finditer(data) if block[1] == b"CERTIFICATE"]
    if not blocks:
        raise BadTls(f"{source} holds no certificate in PEM")
    try:
        for block in blocks:
            x509.load_pem_x509_certificate(block)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadTls(f"{source} holds a certificate that cannot be read") from error
    return b"".join(block if block.endswith(b"\n") else block + b"\n" for block in blocks)
