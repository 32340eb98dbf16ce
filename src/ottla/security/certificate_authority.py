"""A certificate authority for development: its key, and certificates that it signs.

Not for production: the authority's key is not protected, and nothing is ever revoked. Keys are
ECDSA on P-256, in PKCS 8.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 825
_SKEW: Final = datetime.timedelta(hours=1)


class BadAuthority(ValueError):
    """Files that are not an authority's certificate and key."""


class KeyAndCertificate(msgspec.Struct, frozen=True):
    """A private key and its certificate, both in PEM. Never printed."""

    key: bytes
    certificate: bytes

    def __repr__(self) -> str:
        return "KeyAndCertificate(hidden)"


def create_authority(
    name: str, now: datetime.datetime, *, days: int = AUTHORITY_DAYS
) -> KeyAndCertificate:
    """Return a new authority, which signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(name)
    builder = _builder(subject, subject, key, now, days).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    builder = builder.add_extension(_usage(is_authority=True), critical=True)
    return _pem(key, builder.sign(key, hashes.SHA256()))


def issue_certificate(
    authority: KeyAndCertificate,
    name: str,
    hosts: Sequence[str],
    now: datetime.datetime,
    *,
    days: int = CERTIFICATE_DAYS,
    key_password: str | None = None,
) -> KeyAndCertificate:
    """Return a key and a certificate for a server at ``hosts``, or for a client without any.

    Raises:
        BadAuthority: the authority's files do not fit together.
    """
    signer, issuer = _load(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_named(name), issuer.subject, key, now, days)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    builder = builder.add_extension(_usage(is_authority=False), critical=True)
    builder = builder.add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
        critical=False,
    )
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
    )
    if hosts:
        names = x509.SubjectAlternativeName([_host(each) for each in hosts])
        builder = builder.add_extension(names, critical=False)
    return _pem(key, builder.sign(signer, hashes.SHA256()), key_password)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _load(authority: KeyAndCertificate) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    try:
        key = load_pem_private_key(authority.key, None)
        certificate = x509.load_pem_x509_certificate(authority.certificate)
    except (ValueError, TypeError) as error:
        raise BadAuthority("the authority's certificate or key cannot be read") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadAuthority("the authority's key is not an elliptic curve key")
    if key.public_key() != certificate.public_key():
        raise BadAuthority("the authority's certificate and key do not belong together")
    return key, certificate


def _pem(
    key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, password: str | None = None
) -> KeyAndCertificate:
    encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    return KeyAndCertificate(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption),
        certificate.public_bytes(Encoding.PEM),
    )
