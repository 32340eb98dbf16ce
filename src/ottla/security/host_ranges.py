"""Ranges of client addresses in CIDR notation, as hosts of ACLs (KIP-1276).

    10.1.0.0/16      every address whose first 16 bits are those of 10.1.0.0
    2001:db8::/32    likewise for IPv6

Bits behind the prefix are ignored, as in Kafka. An IPv4-mapped IPv6 range of at least 96 bits means
the IPv4 range: clients of a dual-stack socket are compared by their IPv4 address.
"""

import ipaddress
import re
from functools import lru_cache
from typing import Final, TypeAlias

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_MAPPED_BITS: Final = 96
_PARSED_MAX: Final = 10_000
_PREFIX: Final = re.compile(r"[0-9]{1,3}")


def is_range(host: str) -> bool:
    """Return whether the host of an ACL is written as a range."""
    return "/" in host


@lru_cache(maxsize=_PARSED_MAX)
def parse_range(text: str) -> Network:
    """Return the addresses that a range covers.

    Raises:
        ValueError: not a range in CIDR notation; a net mask or a scope is none.
    """
    address, _, prefix = text.partition("/")
    if not _PREFIX.fullmatch(prefix) or "%" in address:
        raise ValueError(f"Invalid CIDR notation: {text}")
    network = ipaddress.ip_network(text, strict=False)
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= _MAPPED_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return ipaddress.IPv4Network((int(mapped), network.prefixlen - _MAPPED_BITS))
    return network


@lru_cache(maxsize=_PARSED_MAX)
def is_in_range(text: str, host: str) -> bool:
    """Return whether a range covers a client's address, given without a scope.

    Text that is no address, or no range (a log may contain it), matches nothing.
    """
    try:
        address = ipaddress.ip_address(host)
        network = parse_range(text)
    except ValueError:
        return False
    return address in network
