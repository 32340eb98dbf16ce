"""The subject of a certificate, written as Java writes it (RFC 2253, last component first).

Attributes outside RFC 2253, such as an e-mail address, are written as ``OID=#`` and the DER of
their value in hexadecimal.
"""

import re
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

_KEYWORDS: Final = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
# DER tags of the string types that certificates use for other attributes.
_TAGS: Final = {NameOID.EMAIL_ADDRESS: 0x16, NameOID.SERIAL_NUMBER: 0x13}
_UTF8_TAG: Final = 0x0C
_SPECIAL: Final = re.compile(r'[,+"\\<>;]')


def subject_name(certificate: x509.Certificate) -> str:
    """Return the subject as Java's ``X500Principal.getName()`` writes it."""
    last_first = reversed(certificate.subject.rdns)
    return ",".join("+".join(map(_attribute, component)) for component in last_first)


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    keyword = _KEYWORDS.get(attribute.oid)
    raw = attribute.value
    value = raw if isinstance(raw, str) else raw.decode("latin-1")
    if keyword is not None:
        return f"{keyword}={_escape(value)}"
    data = value.encode()
    der = bytes([_TAGS.get(attribute.oid, _UTF8_TAG)]) + _der_length(len(data)) + data
    return f"{attribute.oid.dotted_string}=#{der.hex()}"


def _der_length(length: int) -> bytes:
    if length < 0x80:
        return bytes([length])
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(size)]) + size


def _escape(value: str) -> str:
    escaped = _SPECIAL.sub(lambda found: "\\" + found[0], value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    if escaped.endswith(" ") and len(value) > 1:
        escaped = escaped[:-1] + "\\ "
    return escaped
