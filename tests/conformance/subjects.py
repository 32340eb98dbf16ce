"""Subjects of certificates in DER: the rows of ``tests/unit/golden/subjects.tsv``, and random ones.

A row of the table is the DER of a subject in hexadecimal, a tab, and the name that Java's
``X500Principal.getName()`` gives it, as a string of JSON; ``!`` is a subject that Java refuses.
``test_identities.py`` compares the table with Java; with WRITE_SUBJECTS=1 it writes it anew.
"""

import random
from collections.abc import Iterator

PRINTABLE, UTF8, T61, IA5, BMP, UNIVERSAL, GENERAL, NUMERIC, VISIBLE = (
    *(0x13, 0x0C, 0x14, 0x16, 0x1E, 0x1C, 0x1B, 0x12, 0x1A),
)
KEYWORDS = {
    "CN": "550403",
    "C": "550406",
    "L": "550407",
    "ST": "550408",
    "STREET": "550409",
    "O": "55040a",
    "OU": "55040b",
    "DC": "0992268993f22c640119",
    "UID": "0992268993f22c640101",
}
OTHERS = {
    "emailAddress": "2a864886f70d010901",
    "serialNumber": "550405",
    "surname": "550404",
    "title": "55040c",
    "givenName": "55042a",
    "dnQualifier": "55042e",
    "unknown": "2b0601040182371401",
    "large": "88375f",
    "huge": "2a" + "ff" * 12 + "7f",
}


def der(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(size)]) + size + content


def pair(kind: str, value: bytes | str, tag: int = UTF8) -> bytes:
    oid = bytes.fromhex({**KEYWORDS, **OTHERS}[kind])
    data = value if isinstance(value, bytes) else value.encode()
    return der(0x30, der(0x06, oid) + der(tag, data))


def name(*components: list[bytes]) -> bytes:
    return der(0x30, b"".join(der(0x31, b"".join(pairs)) for pairs in components))


def common_names() -> Iterator[str]:
    """Yield values with something to escape at every place."""
    yield from ("kafka1", "", " ", "  ", "   ", " a", "a ", "  a  ", "a  b")
    yield from ("\ra\r", "\r", "\n", "\t")
    for special in ',=+<>#;"\\':
        yield from (special, f"a{special}b", f"{special}a", f"a{special}", f" {special} ")
    yield from ("x,OU=admin", "x OU=admin", "x=y", "x\\,OU=admin", 'x",OU="admin', "a+CN=b")
    yield from ("a\0b", "\0", "a\x01b", "a\x7fb", "\x1b[31m", "a\nb", "a\rb", "\u2028", "\x85")
    yield from ("Müller", "Łódź", "日本", "😀", "e\u0301", "\ufeff", "\u202eadmin", "\ufffd", "ﬁ")
    yield from ("*", "a*b", "()", "a/b", "a:b", "'", "?", "@", "$1", "`", "{}", "~", "^", "|", "%")
    yield from ("x" * 127, "x" * 128, "x" * 300, "é" * 200)


def table() -> Iterator[bytes]:
    """Yield the subjects of the table."""
    yield name()
    yield name([])
    for value in common_names():
        yield name([pair("CN", value)])
    for kind in (*KEYWORDS, *OTHERS):
        yield name([pair("C", "US", PRINTABLE)], [pair(kind, "Duke", PRINTABLE)])
        yield name([pair(kind, "a,b=c ", UTF8)])
    for tag in (PRINTABLE, T61, IA5, BMP, UNIVERSAL, GENERAL, NUMERIC, VISIBLE, 0x02, 0x04, 0x03):
        yield name([pair("CN", b"Du,ke", tag)])
        yield name([pair("CN", b"\0D\0,", tag)])
    yield from _malformed_text()
    yield name([pair("CN", "a"), pair("OU", "b")], [pair("O", "c")])
    yield name([pair("OU", "b"), pair("CN", "a")])
    yield name([pair("CN", "a"), pair("CN", "a")])
    yield name([pair("CN", "a"), pair("emailAddress", "a@b", IA5), pair("DC", "x")])
    yield name([pair("DC", "org")], [pair("DC", "example")], [pair("UID", "duke")])
    yield name(*([pair("OU", str(number))] for number in range(20)))
    yield name([pair("CN", der(0x0C, b"a"), 0x30)])


def _malformed_text() -> Iterator[bytes]:
    """Yield values that are not UTF-8."""
    for data in (
        *(
            b"M\xfcller",
            b"\xc0\x80",
            b"\xe0\x80\x80",
            b"\xed\xa0\x80",
            b"\xed\xa0\x80x",
            b"\xed\xa0",
        ),
        *(b"\xed\xa0x", b"\xed\xa0\x80\xed\xb0\x80", b"\xf4\x90\x80\x80", b"\xf0\x80\x80\x80"),
        *(
            b"\xe2\x82",
            b"\xe2\x82x",
            b"\xf0\x9f\x98",
            b"\xf0\x9fx",
            b"\xff\xfe",
            b"\xf8\x88\x80\x80\x80",
        ),
    ):
        yield name([pair("CN", data, UTF8)])
        yield name([pair("CN", data, T61)])


def random_subjects(seed: int, count: int) -> Iterator[bytes]:
    """Yield random subjects, a part of them damaged."""
    rng = random.Random(seed)
    alphabet = [" ", "\r", *',=+<>#;"\\', "\0", "a", "Z", "7", "é", "日", "😀", "\x1f", "\u2029"]
    tags = [UTF8, UTF8, UTF8, PRINTABLE, T61, IA5, BMP, UNIVERSAL, GENERAL, VISIBLE]
    for _ in range(count):
        components = []
        for _ in range(rng.randrange(4)):
            pairs = []
            for _ in range(rng.choice([1, 1, 1, 2, 3])):
                text = "".join(rng.choice(alphabet) for _ in range(rng.randrange(8))).encode()
                data = rng.randbytes(rng.randrange(8)) if rng.random() < 0.3 else text
                pairs.append(pair(rng.choice([*KEYWORDS, *OTHERS]), data, rng.choice(tags)))
            components.append(pairs)
        subject = bytearray(name(*components))
        if rng.random() < 0.1:
            # The first byte stays: a certificate whose subject is no sequence is none.
            subject[rng.randrange(1, len(subject))] ^= 1 << rng.randrange(8)
        yield bytes(subject)
