"""Client addresses in one spelling: Java's, with IPv4-mapped addresses as IPv4."""

import pytest

from ottla.runtime.host_address import canonical_host, peer_address, without_scope
from ottla.runtime.ports import Address


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("::ffff:7f00:1", "127.0.0.1"),
        ("::FFFF:7F00:0001", "127.0.0.1"),
        ("0:0:0:0:0:ffff:127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("[::1]", "0:0:0:0:0:0:0:1"),
        ("0:0:0:0:0:0:0:1", "0:0:0:0:0:0:0:1"),
        ("0000:0000::0001", "0:0:0:0:0:0:0:1"),
        ("2001:DB8::A", "2001:db8:0:0:0:0:0:a"),
        ("::", "0:0:0:0:0:0:0:0"),
        ("::127.0.0.1", "0:0:0:0:0:0:7f00:1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("fe80:0:0:0:0:0:0:1%2", "fe80:0:0:0:0:0:0:1%2"),
        ("::ffff:127.0.0.1%2", "127.0.0.1"),
        ("*", "*"),
        ("", ""),
        ("localhost", "localhost"),
        ("127.1", "127.1"),
        ("127.0.0.01", "127.0.0.01"),
        ("10.0.0.1%eth0", "10.0.0.1%eth0"),
        ("fe80::1%", "fe80::1%"),
        ("[::1", "[::1"),
    ],
)
def test_address_has_one_spelling(text: str, canonical: str) -> None:
    assert canonical_host(text) == canonical
    assert canonical_host(canonical) == canonical


def test_scope_is_left_out_on_request() -> None:
    assert without_scope("fe80:0:0:0:0:0:0:1%2") == "fe80:0:0:0:0:0:0:1"
    assert without_scope("10.0.0.1") == "10.0.0.1"
    assert without_scope("not an address%1") == "not an address%1"


@pytest.mark.parametrize(
    ("name", "host"),
    [
        (("10.0.0.1", 5), "10.0.0.1"),
        (("::ffff:10.0.0.1", 5, 0, 0), "10.0.0.1"),
        (("::1", 5, 0, 0), "0:0:0:0:0:0:0:1"),
        (("fe80::1", 5, 0, 2), "fe80:0:0:0:0:0:0:1%2"),
        (("fe80::1%eth0", 5, 0, 2), "fe80:0:0:0:0:0:0:1%2"),
        (("client", 5), "client"),
    ],
)
def test_peer_has_the_address_that_kafka_shows(name: tuple[str, int], host: str) -> None:
    assert peer_address(name) == Address(host, 5)
