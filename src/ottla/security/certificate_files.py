"""A development authority and its certificates as files.

    ca.pem  ca.key        the authority; the key is only needed to sign
    NAME.crt  NAME.key    certificate and key, as librdkafka and most tools take them
    NAME.pem              both in one file: a key store of type PEM, as Kafka takes it

Files with a key have mode 0600.
"""

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from ottla.protocol.types import Millis
from ottla.security.certificate_authority import (
    CERTIFICATE_DAYS,
    KeyAndCertificate,
    create_authority,
    issue_certificate,
)
from ottla.security.private_files import PRIVATE, PUBLIC, write_file

AUTHORITY_NAME: Final = "Ottla development authority"


class CertificateFiles(msgspec.Struct, frozen=True):
    """Paths of what was written."""

    ca: str
    certificate: str
    key: str
    key_store: str

    @property
    def others(self) -> Mapping[str, str]:
        """The files that hold the private key."""
        return {"key": self.key, "key_store": self.key_store}


def create_certificate(
    directory: Path,
    name: str,
    hosts: Sequence[str],
    now_ms: Millis,
    *,
    days: int = CERTIFICATE_DAYS,
) -> CertificateFiles:
    """Write a key and a certificate; create the authority if the directory has none.

    Raises:
        BadAuthority: the authority there cannot be used. OSError.
    """
    now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = _authority(directory, now)
    made = issue_certificate(authority, name, hosts, now, days=days)
    paths = {end: directory / f"{name}.{end}" for end in ("crt", "key", "pem")}
    write_file(paths["crt"], made.certificate, PUBLIC)
    write_file(paths["key"], made.key, PRIVATE)
    write_file(paths["pem"], made.key + made.certificate, PRIVATE)
    return CertificateFiles(
        str(directory / "ca.pem"), str(paths["crt"]), str(paths["key"]), str(paths["pem"])
    )


def _authority(directory: Path, now: datetime.datetime) -> KeyAndCertificate:
    certificate, key = directory / "ca.pem", directory / "ca.key"
    if certificate.exists():
        return KeyAndCertificate(key.read_bytes(), certificate.read_bytes())
    made = create_authority(AUTHORITY_NAME, now)
    write_file(key, made.key, PRIVATE)
    write_file(certificate, made.certificate, PUBLIC)
    return made
