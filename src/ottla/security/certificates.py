"""The subject of a certificate, written as Java's ``X500Principal.getName()`` writes it.

Kafka names principals by it, and mapping rules are written for it, so it is Java's byte for byte:

    Name     ::= SEQUENCE OF SET OF SEQUENCE { type OBJECT IDENTIFIER, value ANY }
    written      last component first, joined by ``,``; the parts of a component by ``+``

- The types of RFC 2253 have a keyword; others are an OID.
- A value of an OID, or one that is not text, is ``#`` and its DER in hexadecimal.
- Text is read as UTF-8 whatever its type, with U+FFFD for what is malformed. ``, = + < > # ; " \\``
  get a backslash, and so do spaces and carriage returns at either end; a null character becomes
  ``\\00``.

The subject is read from the DER itself: a parsed certificate does not keep types and order.
"""

import codecs
import datetime
import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Final, NamedTuple

from cryptography import x509

from ottla.protocol.types import Millis

_KEYWORDS: Final = MappingProxyType(
    {
        "2.5.4.3": "CN",
        "2.5.4.6": "C",
        "2.5.4.7": "L",
        "2.5.4.8": "ST",
        "2.5.4.9": "STREET",
        "2.5.4.10": "O",
        "2.5.4.11": "OU",
        "0.9.2342.19200300.100.1.25": "DC",
        "0.9.2342.19200300.100.1.1": "UID",
    }
)
_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OID: Final = 0x06
_VERSION: Final = 0xA0
# UTF8String, PrintableString, T61String, IA5String, GeneralString and BMPString.
_TEXT_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
_LONG_TAG: Final = 0x1F
_LENGTH_BYTES_MAX: Final = 4
_OID_BYTES_MAX: Final = 128
"""Longer object identifiers are refused: their numbers cost quadratic time to write."""
# serialNumber, signature, issuer and validity come between the version and the subject.
_FIELDS_BEFORE_SUBJECT: Final = 4

_SPECIAL: Final = re.compile(r'[,=+<>#;"\\]')
_ENDS: Final = " \r"
_JAVA_UTF8: Final = "java-utf8"
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


class BadCertificate(ValueError):
    """A certificate that cannot be read."""


class Validity(NamedTuple):
    """The first and the last time, in milliseconds since 1970, at which a certificate is valid."""

    not_before: Millis
    not_after: Millis

    def reason_against(self, now: Millis) -> str | None:
        """Return why a certificate is not valid now; None if it is."""
        if now < self.not_before:
            return f"is not valid before {_date(self.not_before)}"
        return f"expired on {_date(self.not_after)}" if now > self.not_after else None


def validity_of(certificate: x509.Certificate) -> Validity:
    """Return when a certificate is valid; ends are whole seconds, and included."""
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return Validity(Millis(int(first.timestamp() * 1000)), Millis(int(last.timestamp() * 1000)))


def _date(time_ms: Millis) -> str:
    return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).isoformat()


def subject_name(certificate: x509.Certificate) -> str:
    """Return the subject of a certificate as Java writes it. Raises `BadCertificate`."""
    return written_name(subject_der(certificate.tbs_certificate_bytes))


def subject_der(certificate: bytes) -> bytes:
    """Return the subject in the DER of a TBSCertificate. Raises `BadCertificate`."""
    fields = list(_elements(_only(certificate, _SEQUENCE)))
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) <= _FIELDS_BEFORE_SUBJECT:
        raise BadCertificate("the certificate has no subject")
    return fields[_FIELDS_BEFORE_SUBJECT].der


def written_name(name: bytes) -> str:
    """Return a name in DER as Java writes it. Raises `BadCertificate`."""
    components = [_component(element) for element in _elements(_only(name, _SEQUENCE))]
    return ",".join(reversed(components))


def _component(element: "_Element") -> str:
    if element.tag != _SET:
        raise BadCertificate("a component of a name is not a set")
    return "+".join(map(_attribute, _elements(element.content)))


def _attribute(element: "_Element") -> str:
    members = list(_elements(element.content))
    if element.tag != _SEQUENCE or len(members) != 2 or members[0].tag != _OID:
        raise BadCertificate("an attribute of a name is not a type and a value")
    oid, value = _dotted(members[0].content), members[1]
    keyword = _KEYWORDS.get(oid)
    if keyword is None or value.tag not in _TEXT_TAGS:
        return f"{keyword or oid}=#{value.der.hex()}"
    return f"{keyword}={_escape(value.content.decode('utf-8', _JAVA_UTF8))}"


def _escape(value: str) -> str:
    escaped = _SPECIAL.sub(r"\\\g<0>", value).replace("\0", "\\00")
    text = escaped.lstrip(_ENDS)
    before = escaped[: len(escaped) - len(text)]
    inner = text.rstrip(_ENDS)
    after = text[len(inner) :]
    return "".join(f"\\{end}" for end in before) + inner + "".join(f"\\{end}" for end in after)


def _replace_malformed(error: UnicodeError) -> tuple[str, int]:
    """Replace malformed bytes as Java does: half of a surrogate pair is one character."""
    assert isinstance(error, UnicodeDecodeError), "only for decoding"
    surrogate = _SURROGATE.match(error.object, error.start)
    return "\ufffd", error.end if surrogate is None else surrogate.end()


codecs.register_error(_JAVA_UTF8, _replace_malformed)


# -- DER -----------------------------------------------------------------------------------------


class _Element(NamedTuple):
    """One element: its tag, its content, and all of its bytes."""

    tag: int
    content: bytes
    der: bytes


def _elements(data: bytes) -> Iterator[_Element]:
    """Yield the elements of ``data`` one after the other. Raises `BadCertificate`."""
    position = 0
    while position < len(data):
        start = position
        header = data[start : start + 2]
        if len(header) < 2 or header[0] & _LONG_TAG == _LONG_TAG:
            raise BadCertificate("an element has no tag that a name can have")
        position, length = start + 2, header[1]
        if length >= 0x80:
            size = length & 0x7F
            if not 1 <= size <= _LENGTH_BYTES_MAX:
                raise BadCertificate("an element has no definite length")
            length = int.from_bytes(data[position : position + size], "big")
            position += size
        end = position + length
        if end > len(data):
            raise BadCertificate("an element is longer than what it is part of")
        yield _Element(header[0], data[position:end], data[start:end])
        position = end


def _only(data: bytes, tag: int) -> bytes:
    """Return the content of the one element in ``data``. Raises `BadCertificate`."""
    elements = list(_elements(data))
    if len(elements) != 1 or elements[0].tag != tag:
        raise BadCertificate("the element is not of the expected type")
    return elements[0].content


def _dotted(oid: bytes) -> str:
    """Return an object identifier as numbers with dots. Raises `BadCertificate`."""
    if not oid or oid[-1] >= 0x80 or len(oid) > _OID_BYTES_MAX:
        raise BadCertificate("an attribute of a name has no type")
    numbers: list[int] = []
    number, is_first = 0, True
    for byte in oid:
        if is_first and byte == 0x80:
            raise BadCertificate("a number of a type begins with a zero")
        is_first = byte < 0x80
        number = number << 7 | byte & 0x7F
        if is_first:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
