"""IP addresses of clients in one spelling, so that two spellings of an address never differ.

The spelling is that of Java's ``InetAddress.getHostAddress()``, which Apache Kafka compares ACL
hosts with and shows in groups:

    ::ffff:127.0.0.1  ::ffff:7f00:1     127.0.0.1: an IPv4 client of a dual-stack socket
    ::1  0000::0001                     0:0:0:0:0:0:0:1
    fe80::1 on the interface 2          fe80:0:0:0:0:0:0:1%2: a scope belongs to one machine
"""

import ipaddress

from ottla.runtime.ports import Address


def canonical_host(text: str) -> str:
    """Return an IP address in the one spelling; any other text unchanged."""
    if ":" not in text:
        return text  # an IPv4 address has no second spelling
    address_text, separator, scope = text.partition("%")
    if separator and not scope:
        return text
    if address_text.startswith("[") and address_text.endswith("]"):
        address_text = address_text[1:-1]
    try:
        address = ipaddress.IPv6Address(address_text)
    except ValueError:
        return text
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    packed = address.packed
    groups = (packed[index] << 8 | packed[index + 1] for index in range(0, len(packed), 2))
    return ":".join(f"{group:x}" for group in groups) + separator + scope


def without_scope(host: str) -> str:
    """Return a canonical address without its scope; any other text unchanged.

    A scope is the number or name of a network interface. It has no meaning on other machines.
    """
    address_text, separator, _ = host.partition("%")
    return address_text if separator and ":" in address_text else host


def peer_address(name: tuple[object, ...]) -> Address:
    """Return a transport's ``peername`` as an address in the one spelling.

    The scope of an IPv6 address is its fourth member, a number that Java shows, too.
    """
    host, port = str(name[0]), int(str(name[1]))
    if len(name) > 3 and name[3]:
        host = f"{host.partition('%')[0]}%{name[3]}"
    return Address(canonical_host(host), port)
